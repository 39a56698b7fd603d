//! State that survives a crash of this process, such as the site's certificate authority and the identity.
//!
//! Each part is a small JSON file. The directory is in memory, so that a reboot deletes it, and only root can read it. Files are
//! replaced atomically.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::fs::{self, DirBuilder, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("journal {}", path.display())]
pub struct Error {
    path: PathBuf,
    source: io::Error,
}

/// A file in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(&'static str);

impl Page {
    /// The site's certificate authority.
    pub(crate) const AUTHORITY: Self = Self::new("authority.json");
    /// The machine's identity.
    pub(crate) const IDENTITY: Self = Self::new("identity.json");

    /// Returns the page with this file name. Each program has pages of its own besides those of this crate.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }
}

/// A directory with one file per page.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// Opens the journal in `folder`, which is created if missing.
    pub async fn open(folder: &Path) -> Result<Self, Error> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder).await;
        created.map_err(failed(folder))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Reads `page`. Invalid content is logged and treated as absent.
    pub async fn read<T: DeserializeOwned>(&self, page: Page) -> Result<Option<T>, Error> {
        let path = self.folder.join(page.0);
        let text = match fs::read(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed(&path))?,
        };
        let read = serde_json::from_slice(&text);
        let warn = |error: &serde_json::Error| {
            let error = runtime::cause(error);
            tracing::warn!(path = %path.display(), error, "invalid journal page ignored");
        };
        Ok(read.inspect_err(warn).ok())
    }

    /// Replaces the content of `page`, durably.
    pub async fn write(&self, page: Page, content: &impl Serialize) -> Result<(), Error> {
        let path = self.folder.join(page.0);
        let text = serde_json::to_vec(content).map_err(io::Error::from);
        let text = text.map_err(failed(&path))?;
        self.replace(&path, &text).await.map_err(failed(&path))
    }

    async fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&draft).await?;
        file.write_all(text).await?;
        file.sync_all().await?;
        fs::rename(&draft, path).await?;
        File::open(&self.folder).await?.sync_all().await
    }

    /// Deletes `page`.
    pub async fn clear(&self, page: Page) -> Result<(), Error> {
        let path = self.folder.join(page.0);
        match fs::remove_file(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(failed(&path)),
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    async fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("worker")).await.unwrap();
        (folder, journal)
    }

    #[tokio::test]
    async fn a_page_is_read_back_until_it_is_cleared() {
        let (_folder, journal) = journal().await;
        assert_eq!(journal.read::<u32>(Page::new("attempt.json")).await.unwrap(), None);
        journal.write(Page::new("attempt.json"), &7).await.unwrap();
        let again = Journal::open(&journal.folder).await.unwrap();
        assert_eq!(again.read(Page::new("attempt.json")).await.unwrap(), Some(7));
        journal.clear(Page::new("attempt.json")).await.unwrap();
        journal.clear(Page::new("attempt.json")).await.unwrap();
        assert_eq!(again.read::<u32>(Page::new("attempt.json")).await.unwrap(), None);
    }

    #[tokio::test]
    async fn only_the_owner_can_read_it() {
        let (_folder, journal) = journal().await;
        journal.write(Page::IDENTITY, &"key").await.unwrap();
        for path in [journal.folder.clone(), journal.folder.join("identity.json")] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
        }
    }

    #[tokio::test]
    async fn an_invalid_page_is_treated_as_absent() {
        let (_folder, journal) = journal().await;
        std::fs::write(journal.folder.join("attempt.json"), "{\"half").unwrap();
        assert_eq!(journal.read::<u32>(Page::new("attempt.json")).await.unwrap(), None);
    }
}
