//! Writes one file into a file system on a disk, atomically.
//!
//! | variable | meaning |
//! |---|---|
//! | `DEST_DISK` | required; the partition |
//! | `FS_TYPE` | its type; default: any that the kernel supports |
//! | `DEST_PATH` | required; absolute; links are followed inside the file system |
//! | `CONTENTS` | content; default: empty |
//! | `UID`, `GID` | required; decimal |
//! | `MODE`, `DIRMODE` | required; octal; set regardless of the umask, also on an existing file |

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::{Component, Path, PathBuf};

use crate::environment::{self, Environment};
use crate::error;
use crate::mounted_root::{TargetFilesystem, View};

/// A failed step of writing the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {operation} {}", disk.display(), path.display())]
pub(crate) struct Error {
    disk: PathBuf,
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl crate::error::StepError for Error {}

/// The parsed variables of the action.
#[derive(Clone, Debug)]
struct FileOptions {
    path: PathBuf,
    contents: Vec<u8>,
    uid: u32,
    gid: u32,
    mode: u32,
    dir_mode: u32,
}

/// A failed step: operation, path and cause.
type FailedStep = (&'static str, PathBuf, io::Error);

impl FileOptions {
    fn parse(environment: &Environment) -> Result<Self, environment::Error> {
        const EXPECTED: &str = "an absolute path that ends in a file name";
        let path = environment.required("DEST_PATH")?;
        let invalid = || environment::Error::invalid("DEST_PATH", path, EXPECTED);
        Ok(Self {
            path: file_path(path).ok_or_else(invalid)?,
            contents: environment.optional("CONTENTS").unwrap_or_default().into(),
            uid: environment.number("UID")?,
            gid: environment.number("GID")?,
            mode: environment.mode("MODE")?,
            dir_mode: environment.mode("DIRMODE")?,
        })
    }
}

/// Writes the file.
pub(crate) async fn run(environment: &Environment) -> Result<(), error::Error> {
    let filesystem = TargetFilesystem::parse(environment, "DEST_DISK")?;
    let (disk, options) = (filesystem.disk.clone(), FileOptions::parse(environment)?);
    let written = filesystem.with_mounted(View::Root, move || options.write()).await?;
    written.map_err(|(operation, path, source)| Error { disk, operation, path, source }.into())
}

/// Parses `text` as an absolute path to a file.
fn file_path(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let named = matches!(path.components().next_back(), Some(Component::Normal(_)));
    (path.is_absolute() && named && !text.ends_with(['/']) && !text.ends_with("/."))
        .then(|| path.into())
}

impl FileOptions {
    /// Writes a temporary file and renames it, so that a crash leaves either the old file or the new one.
    fn write(&self) -> Result<(), FailedStep> {
        let at = |operation, path: &Path| {
            let path = path.to_owned();
            move |error| (operation, path, error)
        };
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        self.make_directory(parent)?;
        // If the path is a link, the target of the link is written.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let parent = path.parent().unwrap_or(Path::new("/"));
        let draft = parent.join(".writefile.draft");
        self.fill(&draft).map_err(at("write", &path))?;
        let renamed = fs::rename(&draft, &path).and_then(|()| File::open(parent)?.sync_all());
        renamed.map_err(at("rename", &path))
    }

    fn fill(&self, draft: &Path) -> io::Result<()> {
        let _left_by_a_crash = fs::remove_file(draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        file.write_all(&self.contents)?;
        // The owner is set before the mode, because fchown(2) clears a set-user-id bit.
        fchown(&file, Some(self.uid), Some(self.gid))?;
        file.set_permissions(Permissions::from_mode(self.mode))?;
        file.sync_all()
    }

    /// Creates the missing parts of `path`; existing directories stay unchanged.
    fn make_directory(&self, path: &Path) -> Result<(), FailedStep> {
        if path.is_dir() {
            return Ok(());
        }
        path.parent().map_or(Ok(()), |parent| self.make_directory(parent))?;
        let made = fs::create_dir(path).and_then(|()| {
            chown(path, Some(self.uid), Some(self.gid))?;
            fs::set_permissions(path, Permissions::from_mode(self.dir_mode))
        });
        made.map_err(|error| ("create the directory", path.to_owned(), error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_destination_is_absolute_and_names_a_file() {
        for good in ["/etc/hostname", "/a", "//a/./b"] {
            assert!(file_path(good).is_some(), "{good}");
        }
        for bad in ["", "/", "etc/hostname", "/etc/", "/etc/..", "/etc/."] {
            assert!(file_path(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_path_parser_panic(text in "[/.a]{0,12}|\\PC{0,20}") {
            prop_assert!(file_path(&text).is_none_or(|path| path.is_absolute()));
        }
    }
}
