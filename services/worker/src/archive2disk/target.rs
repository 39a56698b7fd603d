//! Creates the entries of a tar in the file system, with their attributes.
//!
//! The destination is the thread's root directory, so that links in the tar cannot lead later entries out of it. An entry
//! replaces an existing file or link of the same name. Existing directories stay. If the tar has a directory where the file
//! system has a link to a directory, the link stays: otherwise a tar with `lib/` would replace a system's `lib -> usr/lib`.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags, linkat, lsetxattr,
    makedev, mknodat, utimensat,
};
use rustix::process::chroot;

use super::Error;
use super::member::{Attributes, Extent, Kind, Member};
use crate::disk::block::is_zero;

/// Bytes of a file that are copied at once; also the smallest hole that is left in one.
const COPY_BYTES: usize = 64 << 10;

/// The destination of an extraction.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Directories and their times. They are set at the end, because creating entries in a directory changes its time.
    directories: Vec<(PathBuf, Timespec)>,
}

/// Makes the directory at `path` the root of the calling thread.
pub(super) fn enter(path: &Path) -> Result<(), Error> {
    let put = |source| Error::Put { operation: "enter", path: path.into(), source };
    make_directory(path).map_err(put)?;
    let entered = chroot(path).map_err(io::Error::from);
    entered.and_then(|()| std::env::set_current_dir("/")).map_err(put)
}

impl Target {
    /// Creates `member`; a file's contents are read from `content`.
    pub(super) fn put(&mut self, member: Member, content: &mut impl Read) -> Result<(), Error> {
        let Member { path, kind, attributes, stored: _ } = member;
        let put = |operation| {
            let path = path.clone();
            move |source: io::Error| Error::Put { operation, path, source }
        };
        if let Kind::Directory = kind {
            let made = self.directory(&path, &attributes);
            return made.map_err(put("create the directory"));
        }
        clear(&path).map_err(put("replace"))?;
        match kind {
            Kind::File(extent) => file(&path, &extent, &attributes, content)?,
            Kind::SymbolicLink(target) => std::os::unix::fs::symlink(target, &path)
                .and_then(|()| set_attributes(&path, &attributes))
                .map_err(put("create the link"))?,
            // The attributes of the entry it links to are set already.
            Kind::HardLink(target) => linkat(CWD, &target, CWD, &path, AtFlags::empty())
                .map_err(|source| put("create the link")(source.into()))?,
            Kind::CharacterDevice(major, minor) => {
                let number = makedev(major, minor);
                node(&path, FileType::CharacterDevice, number, &attributes)
                    .map_err(put("create the device"))?;
            }
            Kind::BlockDevice(major, minor) => {
                let number = makedev(major, minor);
                node(&path, FileType::BlockDevice, number, &attributes)
                    .map_err(put("create the device"))?;
            }
            Kind::Fifo => {
                node(&path, FileType::Fifo, 0, &attributes).map_err(put("create the pipe"))?;
            }
            Kind::Directory => {}
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let there = fs::symlink_metadata(path);
        if there.as_ref().is_ok_and(|there| there.is_symlink()) && path.is_dir() {
            return Ok(());
        }
        if !there.is_ok_and(|there| there.is_dir()) {
            clear(path)?;
            fs::create_dir(path)?;
        }
        set_all_attributes(path, attributes)?;
        self.directories.push((path.to_owned(), attributes.modified));
        Ok(())
    }

    /// Sets the times of the directories.
    pub(super) fn finish(self) -> Result<(), Error> {
        for (path, modified) in self.directories {
            let set = utimensat(CWD, &path, &times(modified), AtFlags::SYMLINK_NOFOLLOW);
            set.map_err(|source| Error::Put {
                operation: "set the time of",
                path,
                source: source.into(),
            })?;
        }
        Ok(())
    }
}

/// Creates the directory `path` and missing parents.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Creates missing parents of `path`, and removes an existing file, link or empty directory there. A directory that is not
/// empty is an error.
fn clear(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), make_directory)?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the file at `path`, with data from `content`.
fn file(
    path: &Path,
    extent: &Extent,
    attributes: &Attributes,
    content: &mut impl Read,
) -> Result<(), Error> {
    let put = |source| Error::Put { operation: "write", path: path.into(), source };
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(put)?;
    for (place, length) in &extent.pieces {
        file.seek(SeekFrom::Start(*place)).map_err(put)?;
        let mut left = content.take(*length);
        let mut step = vec![0; COPY_BYTES.min(usize::try_from(*length).unwrap_or(COPY_BYTES))];
        while left.limit() > 0 {
            let read = left.read(&mut step).map_err(Error::Damaged)?;
            if read == 0 {
                return Err(Error::NoEnd);
            }
            copy(step.get(..read).unwrap_or_default(), &mut file).map_err(put)?;
        }
    }
    // The length creates a hole at the end.
    file.set_len(extent.length).and_then(|()| set_all_attributes(path, attributes)).map_err(put)
}

/// Writes `bytes`, or leaves a hole if they are zeroes.
fn copy(bytes: &[u8], file: &mut File) -> io::Result<()> {
    if bytes.len() == COPY_BYTES && is_zero(bytes) {
        return file.seek(SeekFrom::Current(COPY_BYTES as i64)).map(|_| ());
    }
    file.write_all(bytes)
}

/// Sets attributes and permissions of `path`, which must not be a link.
fn set_all_attributes(path: &Path, attributes: &Attributes) -> io::Result<()> {
    set_attributes(path, attributes)?;
    fs::set_permissions(path, Permissions::from_mode(attributes.mode))
}

/// Sets the attributes of `path`, but not its permissions, which links do not have. Does not follow links. The owner is set
/// first, because changing it clears capabilities.
fn set_attributes(path: &Path, attributes: &Attributes) -> io::Result<()> {
    lchown(path, Some(attributes.uid), Some(attributes.gid))?;
    for (name, value) in &attributes.extended {
        lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())
            .map_err(|error| xattr_error(name, error.into()))?;
    }
    Ok(utimensat(CWD, path, &times(attributes.modified), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn node(path: &Path, kind: FileType, number: u64, attributes: &Attributes) -> io::Result<()> {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), number)?;
    set_all_attributes(path, attributes)
}

/// Adds the name of the extended attribute to `error`.
fn xattr_error(name: &[u8], error: io::Error) -> io::Error {
    let name = String::from_utf8_lossy(name);
    io::Error::new(error.kind(), format!("extended attribute {name}: {error}"))
}

fn times(modified: Timespec) -> Timestamps {
    let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: untouched, last_modification: modified }
}
