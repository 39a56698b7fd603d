//! The Unix socket: created for its owner only; one that an earlier process has left is replaced.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::UnixListener;

/// A bound socket, whose file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    _file: SocketFile,
}

/// The file of a socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode number, by which a file of another process at the same path is recognized.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket was not removed");
        }
    }
}

/// Binds the socket `path`. Called before other tasks create files, because the process's file mode mask is changed meanwhile.
pub(crate) fn bind(path: &Path) -> anyhow::Result<UnixSocket> {
    let context = || format!("listening on {}", path.display());
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).with_context(context)?;
    }
    remove_abandoned(path).with_context(context)?;
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.with_context(context)?;
    let identity = identity(path).with_context(|| format!("{} is gone", path.display()))?;
    Ok(UnixSocket { listener, _file: SocketFile { path: path.to_owned(), identity } })
}

/// Removes a socket that no process listens on.
fn remove_abandoned(path: &Path) -> anyhow::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    anyhow::ensure!(metadata.file_type().is_socket(), "the file exists and is not a socket");
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "a socket of an ended process is replaced");
            Ok(std::fs::remove_file(path)?)
        }
        Ok(_) => anyhow::bail!("another process listens there"),
        Err(error) => Err(error.into()),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn d36_a_left_over_socket_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/imageapi.sock");
        std::fs::create_dir(directory.path().join("run")).unwrap();
        // Dropped without removing its file, as by a crash.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = bind(&path).unwrap_err();
        assert!(format!("{error:#}").contains("another process listens"), "{error:#}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[tokio::test]
    async fn the_socket_of_a_later_process_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("imageapi.sock");
        let earlier = bind(&path).unwrap();
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        let _later = bind(&path).unwrap();
        drop(earlier);
        assert!(path.exists());
    }
}
