//! Names below a base directory that cannot lead out of it.
//!
//! A path comes from a request and the directory from an image, so neither is trusted. A component `..` is refused, and
//! symbolic links, absolute ones too, are resolved as if the base were the root directory (openat2(2) with `RESOLVE_IN_ROOT`).
//! No function changes the root or working directory of the process.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::{Deadline, Error, Result, bounded::bounded};

/// Attempts at a resolution that the kernel gives up because something was renamed meanwhile.
const MAX_ATTEMPTS: usize = 16;

/// A file or directory found below a base. It stays the same one if names change afterwards.
#[derive(Debug)]
pub struct ResolvedPath {
    descriptor: OwnedFd,
    stat: Stat,
    name: PathBuf,
}

impl ResolvedPath {
    /// Returns the file type.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Returns the device number of its file system and its inode number.
    pub fn inode(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns the requested path, for messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Opens the file itself. The name is not resolved again.
    pub(crate) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let link = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        rustix::fs::open(link, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

impl AsFd for ResolvedPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Finds `path` below the directory `base`. A leading slash means the base.
///
/// # Errors
/// [`Error::Invalid`] if `path` has a component `..`, leads nowhere, or is not a path; [`Error::Failed`] if the base cannot be
/// opened or the file system does not answer; [`Error::Missing`] if the kernel has no openat2(2).
pub fn resolve_below(base: &Path, path: &Path, deadline: Deadline) -> Result<ResolvedPath> {
    check(path)?;
    let step = format!("resolve {} below {}", path.display(), base.display());
    let (base, path) = (base.to_owned(), path.to_owned());
    bounded(&step, deadline, move || resolve(&base, path), drop)
}

/// Refuses paths with a component `..`, which would mean something else below an image's symbolic links.
fn check(path: &Path) -> Result<()> {
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(Error::Invalid(format!("path {} has a component \"..\"", path.display())));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Error::Invalid("path has a zero byte".into()));
    }
    Ok(())
}

fn resolve(base: &Path, path: PathBuf) -> Result<ResolvedPath> {
    let step = || format!("open {}", base.display());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open(base, flags, Mode::empty()).map_err(|e| Error::failed(step(), e))?;
    let relative = path.strip_prefix("/").unwrap_or(&path);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let descriptor = open_in_root(root.as_fd(), relative).map_err(|e| unresolved(&path, e))?;
    let stat = rustix::fs::fstat(&descriptor)
        .map_err(|e| Error::failed(format!("stat {}", path.display()), e))?;
    Ok(ResolvedPath { descriptor, stat, name: path })
}

fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let attempt = || rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    // openat2(2): EAGAIN says that a rename elsewhere made it impossible to prove that ".." of a link stays inside.
    (1..MAX_ATTEMPTS)
        .map(|_| attempt())
        .find(|result| !matches!(result, Err(Errno::AGAIN)))
        .unwrap_or_else(attempt)
}

fn unresolved(path: &Path, errno: Errno) -> Error {
    let path = path.display();
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL => {
            Error::Invalid(format!("path {path}: {}", std::io::Error::from(errno)))
        }
        Errno::NOSYS => Error::Missing("the kernel has no openat2".into()),
        other => Error::failed(format!("resolve {path}"), other),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, time::Duration};

    use super::*;

    fn below(base: &Path, path: &str) -> Result<ResolvedPath> {
        resolve_below(base, Path::new(path), Deadline::after(Duration::from_secs(60)))
    }

    fn content(found: &ResolvedPath) -> String {
        let descriptor = found.open(OFlags::RDONLY).unwrap();
        std::io::read_to_string(fs::File::from(descriptor)).unwrap()
    }

    fn image() -> tempfile::TempDir {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join("etc/deep")).unwrap();
        fs::write(image.path().join("etc/passwd"), "of the image").unwrap();
        image
    }

    #[test]
    fn parent_components_are_refused_even_where_they_would_stay_inside() {
        let image = image();
        for path in ["../etc/passwd", "../../etc", "etc/../etc/passwd", "/..", "etc/.."] {
            let error = below(image.path(), path).unwrap_err();
            assert_eq!(error, Error::Invalid(format!("path {path} has a component \"..\"")));
        }
    }

    #[test]
    fn symbolic_links_stay_inside_the_image() {
        let image = image();
        symlink("/etc/passwd", image.path().join("absolute")).unwrap();
        symlink("../../../../etc/passwd", image.path().join("etc/deep/relative")).unwrap();
        symlink("/proc/self/root", image.path().join("proc")).unwrap();
        for path in ["absolute", "/absolute", "etc/deep/relative", "etc/passwd"] {
            assert_eq!(content(&below(image.path(), path).unwrap()), "of the image", "{path}");
        }
        assert!(matches!(below(image.path(), "proc/etc/passwd"), Err(Error::Invalid(_))));
    }

    #[test]
    fn magic_links_are_not_followed() {
        let outside = below(Path::new("/proc"), "self/root/etc").unwrap_err();
        assert!(matches!(outside, Error::Invalid(_)), "{outside}");
    }

    #[test]
    fn a_path_that_leads_nowhere_is_invalid_and_a_base_that_is_missing_is_not() {
        let image = image();
        for path in ["missing", "etc/passwd/file", "a\0b"] {
            assert!(matches!(below(image.path(), path), Err(Error::Invalid(_))), "{path:?}");
        }
        let missing = below(&image.path().join("missing"), "etc").unwrap_err();
        assert!(matches!(missing, Error::Failed { errno: Some(2), .. }), "{missing}");
    }

    #[test]
    fn an_empty_path_and_a_slash_are_the_base() {
        let image = image();
        let expected = rustix::fs::stat(image.path()).unwrap().st_ino;
        for path in ["", "/", "."] {
            let found = below(image.path(), path).unwrap();
            assert_eq!((found.file_type(), found.inode().1), (FileType::Directory, expected));
        }
    }
}
