//! Putting entries of a tar in place, with all that is known of them.
//!
//! The thread's root directory is the place itself: whatever links the tar has made before, no name of a later entry
//! leads out of it. An entry takes the place of what has its name, links included; only directories stay, and links to
//! directories where the tar has a directory, lest `lib -> usr/lib` of a system be lost to a tar with a `lib/` in it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags, fsetxattr,
    futimens, linkat, lsetxattr, makedev, mknodat, utimensat,
};
use rustix::process::chroot;

use super::Error;
use super::member::{Attributes, Extent, Kind, Member};
use crate::disk::block::is_zero;

/// How much of a file is copied at once, and the smallest hole that is left in one.
const STEP: usize = 64 << 10;

/// What is to be done once all entries are in place.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Directories, whose times change with what is put into them.
    directories: Vec<(PathBuf, Timespec)>,
}

/// Makes the directory at `path` the root of the calling thread.
pub(super) fn enter(path: &Path) -> Result<(), Error> {
    let put = |source| Error::Put { doing: "enter", path: path.into(), source };
    make_directory(path).map_err(put)?;
    let entered = chroot(path).map_err(io::Error::from);
    entered.and_then(|()| std::env::set_current_dir("/")).map_err(put)
}

impl Target {
    /// Puts `member` in place; a file's bytes are read from `content`.
    pub(super) fn put(&mut self, member: Member, content: &mut impl Read) -> Result<(), Error> {
        let Member { path, kind, attributes, stored: _ } = member;
        let put = |doing| {
            let path = path.clone();
            move |source: io::Error| Error::Put { doing, path, source }
        };
        if let Kind::Directory = kind {
            let made = self.directory(&path, &attributes);
            return made.map_err(put("make the directory"));
        }
        clear(&path).map_err(put("make room for"))?;
        match kind {
            Kind::File(extent) => file(&path, &extent, &attributes, content)?,
            Kind::SymbolicLink(target) => std::os::unix::fs::symlink(target, &path)
                .and_then(|()| dress(&path, &attributes))
                .map_err(put("make the link"))?,
            // What it is a name of has its attributes already.
            Kind::HardLink(target) => linkat(CWD, &target, CWD, &path, AtFlags::empty())
                .map_err(|source| put("make the link")(source.into()))?,
            Kind::CharacterDevice(major, minor) => {
                let number = makedev(major, minor);
                node(&path, FileType::CharacterDevice, number, &attributes)
                    .map_err(put("make the device"))?;
            }
            Kind::BlockDevice(major, minor) => {
                let number = makedev(major, minor);
                node(&path, FileType::BlockDevice, number, &attributes)
                    .map_err(put("make the device"))?;
            }
            Kind::Fifo => {
                node(&path, FileType::Fifo, 0, &attributes).map_err(put("make the pipe"))?;
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
        dress(path, attributes)?;
        fs::set_permissions(path, Permissions::from_mode(attributes.mode))?;
        self.directories.push((path.to_owned(), attributes.modified));
        Ok(())
    }

    /// Does what is left.
    pub(super) fn finish(self) -> Result<(), Error> {
        for (path, modified) in self.directories {
            let set = utimensat(CWD, &path, &times(modified), AtFlags::SYMLINK_NOFOLLOW);
            set.map_err(|source| Error::Put {
                doing: "set the time of",
                path,
                source: source.into(),
            })?;
        }
        Ok(())
    }
}

/// Makes `path` and what is missing above it.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Makes room at `path`: directories above it, nothing in its place. A directory that is not empty stays: an error.
fn clear(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), make_directory)?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the file at `path`, its pieces from `content`.
fn file(
    path: &Path,
    extent: &Extent,
    attributes: &Attributes,
    content: &mut impl Read,
) -> Result<(), Error> {
    let put = |source| Error::Put { doing: "write", path: path.into(), source };
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(put)?;
    for (place, length) in &extent.pieces {
        file.seek(SeekFrom::Start(*place)).map_err(put)?;
        let mut left = content.take(*length);
        let mut step = vec![0; STEP.min(usize::try_from(*length).unwrap_or(STEP))];
        while left.limit() > 0 {
            let read = left.read(&mut step).map_err(Error::Damaged)?;
            if read == 0 {
                return Err(Error::NoEnd);
            }
            copy(step.get(..read).unwrap_or_default(), &mut file).map_err(put)?;
        }
    }
    // A hole at the end is known by the length alone.
    file.set_len(extent.length).and_then(|()| dress_file(&file, attributes)).map_err(put)
}

/// Writes `bytes`, or leaves a hole.
fn copy(bytes: &[u8], file: &mut File) -> io::Result<()> {
    if bytes.len() == STEP && is_zero(bytes) {
        return file.seek(SeekFrom::Current(STEP as i64)).map(|_| ());
    }
    file.write_all(bytes)
}

/// Gives `file` its attributes. The owner comes first: changing it takes set-user-id bits and capabilities away.
fn dress_file(file: &File, attributes: &Attributes) -> io::Result<()> {
    fchown(file, Some(attributes.uid), Some(attributes.gid))?;
    for (name, value) in &attributes.extended {
        fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty())
            .map_err(|error| with(name, error.into()))?;
    }
    file.set_permissions(Permissions::from_mode(attributes.mode))?;
    Ok(futimens(file, &times(attributes.modified))?)
}

/// Gives what is at `path`, which is not followed, its attributes but for permissions, which links do not have.
fn dress(path: &Path, attributes: &Attributes) -> io::Result<()> {
    lchown(path, Some(attributes.uid), Some(attributes.gid))?;
    for (name, value) in &attributes.extended {
        lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())
            .map_err(|error| with(name, error.into()))?;
    }
    Ok(utimensat(CWD, path, &times(attributes.modified), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn node(path: &Path, kind: FileType, number: u64, attributes: &Attributes) -> io::Result<()> {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), number)?;
    dress(path, attributes)?;
    fs::set_permissions(path, Permissions::from_mode(attributes.mode))
}

/// `error` with the extended attribute that it befell.
fn with(name: &[u8], error: io::Error) -> io::Error {
    let name = String::from_utf8_lossy(name);
    io::Error::new(error.kind(), format!("extended attribute {name}: {error}"))
}

fn times(modified: Timespec) -> Timestamps {
    let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: untouched, last_modification: modified }
}
