//! Finding and opening the files that are served.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tftp::{ErrorCode, InvalidFileName};

use super::requested_file::RequestedFile;

/// Maximum number of entries of a directory that are searched for a name in another case.
const MAX_LISTED_ENTRIES: usize = 10_000;

/// A file to send.
#[derive(Debug)]
pub enum OpenFile {
    /// In memory, shared by all transfers.
    Memory(Bytes),
    /// On disk, read during the transfer.
    Disk(DiskFile),
}

/// A regular file on disk.
#[derive(Debug)]
pub struct DiskFile {
    /// The file.
    pub file: std::fs::File,
    /// The number of bytes.
    pub size: u64,
    /// Differs if the bytes may differ: an ETag.
    pub tag: String,
}

impl OpenFile {
    /// Returns the number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(file) => file.size,
        }
    }
}

/// The error of a file that is not served.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The name cannot be the name of a served file.
    #[error(transparent)]
    InvalidName(#[from] InvalidFileName),
    /// The transfer mode of the request is unknown.
    #[error("unknown mode")]
    UnknownMode,
    /// The file does not exist.
    #[error("no such file")]
    NotFound,
    /// The client may not read it.
    #[error("access violation")]
    NotAllowed,
    /// The file is not available now; the client may retry.
    #[error("busy, ask again")]
    TryLater,
    /// The file exists and cannot be read.
    #[error("file cannot be read")]
    Unreadable(#[source] io::Error),
}

impl FileError {
    /// The error code for the client.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound => ErrorCode::NOT_FOUND,
            Self::NotAllowed | Self::InvalidName(_) => ErrorCode::ACCESS_VIOLATION,
            Self::UnknownMode | Self::TryLater | Self::Unreadable(_) => ErrorCode::UNDEFINED,
        }
    }
}

/// A source of files.
#[async_trait]
pub trait FileSource: Debug + Send + Sync + 'static {
    /// Opens `file` for `client`.
    async fn open(&self, file: &RequestedFile, client: Ipv4Addr) -> Result<OpenFile, FileError>;
}

/// The error of a directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("opening the directory {}", path.display())]
pub struct OpenDirectoryError {
    path: PathBuf,
    source: io::Error,
}

/// Directories of loaders and other public files. If two have a file of one name, that of the first directory is served.
///
/// The kernel resolves every name beneath the directory (openat2(2), `RESOLVE_BENEATH`): a link may point elsewhere
/// inside it, and not out of it.
#[derive(Clone, Debug)]
pub struct Directories(Arc<[OwnedFd]>);

impl Directories {
    /// Opens the directories at `paths`. Fails if one of them cannot be opened.
    pub fn open<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, OpenDirectoryError> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let open = |path: P| {
            let path = path.as_ref();
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(|errno| OpenDirectoryError { path: path.to_owned(), source: errno.into() })
        };
        Ok(Self(paths.into_iter().map(open).collect::<Result<Vec<_>, _>>()?.into()))
    }

    /// Lists the files at the top of the directories that can be served: the loaders.
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

    /// True if a file at `path` can be served.
    pub fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|root| open_beneath(root, path).is_ok())
    }

    /// Opens the file at `path`.
    pub async fn find_file(&self, path: String) -> Result<DiskFile, FileError> {
        let directories = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let found = directories.0.iter().map(|root| open_beneath(root, &path));
            let mut found = found.skip_while(|result| matches!(result, Err(FileError::NotFound)));
            found.next().unwrap_or(Err(FileError::NotFound))
        });
        found.await.map_err(|failed| FileError::Unreadable(failed.into()))?
    }

    /// Opens the only file whose path differs from `path` in the case of letters only. Firmware on
    /// FAT volumes knows no case.
    async fn find_in_other_case(&self, path: String) -> Result<DiskFile, FileError> {
        let directories = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let spelled = directories.0.iter().find_map(|root| Some((root, spelled(root, &path)?)));
            let (root, spelled) = spelled.ok_or(FileError::NotFound)?;
            open_beneath(root, &spelled).map(|file| (spelled, file))
        });
        let found = found.await.map_err(|failed| FileError::Unreadable(failed.into()))?;
        let (spelled, file) = found?;
        tracing::info!(served = spelled, "file found in another case");
        Ok(file)
    }
}

/// Returns `path` as it is spelled beneath `root`: each component as the only entry of its
/// directory that differs in the case of letters at most.
fn spelled(root: &OwnedFd, path: &str) -> Option<String> {
    let mut spelled = String::new();
    for component in path.split('/') {
        let directory = if spelled.is_empty() { "." } else { &spelled };
        let name = spelled_entry(root, directory, component)?;
        if !spelled.is_empty() {
            spelled.push('/');
        }
        spelled.push_str(&name);
    }
    Some(spelled)
}

/// Returns the entry of `directory` that is `name`, else the only one that differs in the case of
/// letters.
fn spelled_entry(root: &OwnedFd, directory: &str, name: &str) -> Option<String> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(root, directory, flags, Mode::empty(), resolve).ok()?;
    let (mut found, mut is_ambiguous) = (None, false);
    for entry in Dir::new(opened).ok()?.take(MAX_LISTED_ENTRIES) {
        let entry = entry.ok()?;
        let Ok(own) = entry.file_name().to_str() else { continue };
        if own == name {
            return Some(own.to_owned());
        }
        if own.eq_ignore_ascii_case(name) {
            is_ambiguous |= found.replace(own.to_owned()).is_some();
        }
    }
    found.filter(|_| !is_ambiguous)
}

#[async_trait]
impl FileSource for Directories {
    /// Opens files by their path, in another case if there is none in that of the request. An empty
    /// `autoexec.ipxe` makes newer builds of iPXE go on to DHCP. There are no scripts here.
    async fn open(&self, file: &RequestedFile, _: Ipv4Addr) -> Result<OpenFile, FileError> {
        match file {
            RequestedFile::File { path, .. } => match self.find_file(path.clone()).await {
                Err(FileError::NotFound) => self.find_in_other_case(path.clone()).await,
                found => found,
            }
            .map(OpenFile::Disk),
            RequestedFile::Autoexec(_) => Ok(OpenFile::Memory(Bytes::new())),
            RequestedFile::Script(_) | RequestedFile::Pxelinux(_) => Err(FileError::NotFound),
        }
    }
}

/// Opens a regular file. `NONBLOCK`, because opening a pipe would block the thread.
fn open_beneath(root: impl AsFd, path: &str) -> Result<DiskFile, FileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let path = OsStr::from_bytes(path.as_bytes());
    let opened = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    let file = std::fs::File::from(opened.map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => FileError::NotFound,
        Errno::XDEV | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO => {
            FileError::NotAllowed
        }
        other => FileError::Unreadable(other.into()),
    })?);
    let about = file.metadata().map_err(FileError::Unreadable)?;
    if !about.is_file() {
        return Err(FileError::NotFound);
    }
    let (inode, size, seconds, nanos) =
        (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
    Ok(DiskFile { file, size, tag: format!("\"{inode:x}-{size:x}-{seconds:x}.{nanos:x}\"") })
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

    async fn open(directories: &Directories, path: &str) -> Result<u64, ErrorCode> {
        let file = RequestedFile::File { mac: None, path: path.into() };
        let opened = directories.open(&file, Ipv4Addr::LOCALHOST).await;
        opened.map(|file| file.size()).map_err(|error| error.code())
    }

    #[tokio::test]
    async fn files_and_links_inside_the_directory_are_served() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        assert_eq!(open(&directories, "snponly.efi").await, Ok(6));
        assert_eq!(open(&directories, "boot/x").await, Ok(1));
        assert_eq!(open(&directories, "inside").await, Ok(1));
    }

    #[tokio::test]
    async fn no_link_and_no_path_leads_out_of_the_directory() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for path in ["outside", "climbing", "boot/etc/passwd", "../x", "/etc/passwd"] {
            assert_eq!(open(&directories, path).await, Err(ErrorCode::ACCESS_VIOLATION), "{path}");
        }
    }

    #[tokio::test]
    async fn a_file_is_found_in_another_case_if_there_is_only_one() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for (path, size) in [("SNPONLY.EFI", 6), ("BOOT/X", 1), ("Boot/x", 1), ("INSIDE", 1)] {
            assert_eq!(open(&directories, path).await, Ok(size), "{path}");
        }
        std::fs::write(directory.path().join("SnpOnly.efi"), "another loader").unwrap();
        assert_eq!(open(&directories, "SnpOnly.efi").await, Ok(14));
        assert_eq!(open(&directories, "SNPONLY.EFI").await, Err(ErrorCode::NOT_FOUND));
    }

    #[tokio::test]
    async fn no_path_in_another_case_leads_out_of_the_directory() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for path in ["OUTSIDE", "Climbing", "BOOT/ETC/passwd", "boot/Etc/passwd"] {
            assert!(open(&directories, path).await.is_err(), "{path}");
        }
    }

    #[tokio::test]
    async fn only_regular_files_are_found() {
        let directory = directory();
        let directories = Directories::open([directory.path()]).unwrap();
        for path in ["none", "boot", "pipe", "snponly.efi/x", ""] {
            assert_eq!(open(&directories, path).await, Err(ErrorCode::NOT_FOUND), "{path}");
        }
    }

    #[tokio::test]
    async fn the_file_of_the_first_directory_is_served() {
        let (first, second) = (tempfile::tempdir().unwrap(), directory());
        std::fs::write(first.path().join("snponly.efi"), "other file").unwrap();
        let directories = Directories::open([first.path(), second.path()]).unwrap();
        assert_eq!(open(&directories, "snponly.efi").await, Ok(10));
        assert_eq!(open(&directories, "inside").await, Ok(1));
    }

    #[test]
    fn only_names_that_can_be_served_are_listed() {
        let directory = directory();
        let names = Directories::open([directory.path()]).unwrap().names().unwrap();
        assert_eq!(names, ["inside", "snponly.efi"].map(str::to_owned).into());
    }
}
