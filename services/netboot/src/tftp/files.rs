//! Where the bytes come from.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::name::Name;
use super::packet::Code;

/// A file to send.
#[derive(Debug)]
pub struct File {
    /// Its octets.
    pub content: Content,
    /// How many they are.
    pub size: u64,
}

impl From<Bytes> for File {
    fn from(bytes: Bytes) -> Self {
        Self { size: bytes.len() as u64, content: Content::Shared(bytes) }
    }
}

/// The octets of a file, read as they are sent.
#[derive(Debug)]
pub enum Content {
    /// In memory, shared by all who send it.
    Shared(Bytes),
    /// On disk.
    Open(std::fs::File),
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is none of this name.
    #[error("no such file")]
    NotFound,
    /// This client may not have it.
    #[error("access violation")]
    NotAllowed,
    /// It cannot be told now; the client may ask again.
    #[error("busy, ask again")]
    Later,
    /// It is there and cannot be read.
    #[error("file cannot be read")]
    Unreadable(#[source] io::Error),
}

impl Refusal {
    /// As the client is told.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound => Code::NOT_FOUND,
            Self::NotAllowed => Code::ACCESS_VIOLATION,
            Self::Later | Self::Unreadable(_) => Code::UNDEFINED,
        }
    }
}

/// What is served.
#[async_trait]
pub trait Files: Send + Sync + 'static {
    /// The file `name` means to the client at `client`. [`Name::Refused`] is never asked for.
    async fn open(&self, name: &Name, client: Ipv4Addr) -> Result<File, Refusal>;
}

/// Directories of loaders and other public files; of two files with one name the earlier directory's is served.
///
/// The kernel resolves every name beneath the directory (openat2(2), `RESOLVE_BENEATH`): a link may point elsewhere
/// inside it, and nowhere out.
#[derive(Clone, Debug)]
pub struct Directories(Arc<[OwnedFd]>);

impl Directories {
    /// Opens the directories at `paths`. Fails on the first that cannot be.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let open = |path: P| Ok(rustix::fs::open(path.as_ref(), flags, Mode::empty())?);
        Ok(Self(paths.into_iter().map(open).collect::<io::Result<Vec<_>>>()?.into()))
    }

    /// The names at the top of the directories that can be served: the loaders there are.
    pub fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for root in self.0.iter() {
            let readable = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let listing = Dir::new(rustix::fs::openat(root, ".", readable, Mode::empty())?)?;
            for entry in listing {
                let entry = entry?;
                let name = entry.file_name().to_str().ok().map(str::to_owned);
                names.extend(name.filter(|name| open_beneath(root, name).is_ok()));
            }
        }
        Ok(names)
    }

    /// The file at `path` and its size in octets.
    pub async fn find_file(&self, path: String) -> Result<(std::fs::File, u64), Refusal> {
        let directories = self.clone();
        let found = tokio::task::spawn_blocking(move || directories.find(&path));
        found.await.map_err(|failed| Refusal::Unreadable(failed.into()))?
    }

    fn find(&self, path: &str) -> Result<(std::fs::File, u64), Refusal> {
        let found = self.0.iter().map(|root| open_beneath(root, path));
        let mut found = found.skip_while(|result| matches!(result, Err(Refusal::NotFound)));
        found.next().unwrap_or(Err(Refusal::NotFound))
    }
}

#[async_trait]
impl Files for Directories {
    /// Files by their path. An empty `autoexec.ipxe` sends newer builds of iPXE on to DHCP; scripts are not ours.
    async fn open(&self, name: &Name, _: Ipv4Addr) -> Result<File, Refusal> {
        let path = match name {
            Name::File { path, .. } => path.clone(),
            Name::Autoexec(_) => return Ok(Bytes::new().into()),
            Name::Refused | Name::Script(_) | Name::Pxelinux(_) => return Err(Refusal::NotFound),
        };
        let (file, size) = self.find_file(path).await?;
        Ok(File { content: Content::Open(file), size })
    }
}

/// Opens a regular file and nothing else; not waiting keeps a pipe from holding the thread.
fn open_beneath(root: impl AsFd, path: &str) -> Result<(std::fs::File, u64), Refusal> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let path = OsStr::from_bytes(path.as_bytes());
    let opened = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    let file = std::fs::File::from(opened.map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Refusal::NotFound,
        Errno::XDEV | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO => {
            Refusal::NotAllowed
        }
        other => Refusal::Unreadable(other.into()),
    })?);
    let about = file.metadata().map_err(Refusal::Unreadable)?;
    if about.is_file() { Ok((file, about.len())) } else { Err(Refusal::NotFound) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory with a file, links in and out, a directory and a pipe.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("snponly.efi"), "loader").unwrap();
        std::fs::create_dir(at("boot")).unwrap();
        std::fs::write(at("boot/x"), "x").unwrap();
        symlink("boot/x", at("inside")).unwrap();
        symlink("/etc/passwd", at("outside")).unwrap();
        symlink("../../../../etc/passwd", at("climbing")).unwrap();
        symlink("/etc", at("boot/etc")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::RUSR).unwrap();
        directory
    }

    async fn open(directories: &Directories, path: &str) -> Result<u64, Code> {
        let name = Name::File { mac: None, path: path.into() };
        let opened = directories.open(&name, Ipv4Addr::LOCALHOST).await;
        opened.map(|file| file.size).map_err(|refusal| refusal.code())
    }

    #[tokio::test]
    async fn files_and_links_inside_are_served() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        assert_eq!(open(&directories, "snponly.efi").await, Ok(6));
        assert_eq!(open(&directories, "boot/x").await, Ok(1));
        assert_eq!(open(&directories, "inside").await, Ok(1));
    }

    #[tokio::test]
    async fn no_link_and_no_path_leads_out() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for path in ["outside", "climbing", "boot/etc/passwd", "../x", "/etc/passwd"] {
            assert_eq!(open(&directories, path).await, Err(Code::ACCESS_VIOLATION), "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_there() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for path in ["none", "boot", "pipe", "snponly.efi/x", ""] {
            assert_eq!(open(&directories, path).await, Err(Code::NOT_FOUND), "{path}");
        }
    }

    #[tokio::test]
    async fn the_earlier_directory_goes_before_the_later() {
        let (first, second) = (tempfile::tempdir().unwrap(), directory());
        std::fs::write(first.path().join("snponly.efi"), "of our own").unwrap();
        let directories = Directories::open([first.path(), second.path()]).unwrap();
        assert_eq!(open(&directories, "snponly.efi").await, Ok(10));
        assert_eq!(open(&directories, "inside").await, Ok(1));
    }

    #[test]
    fn the_names_are_those_that_can_be_served() {
        let directory = directory();
        let names = Directories::open([directory.path()]).unwrap().names().unwrap();
        assert_eq!(names, ["inside", "snponly.efi"].map(str::to_owned).into());
    }
}
