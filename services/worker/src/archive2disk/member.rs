//! A validated entry of a tar.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Timespec;
use tar_core::parse::ParsedEntry;
use tar_core::{EntryType, SparseEntry};

use super::Error;
use super::fields;

/// An entry without a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Absolute, without `.` and `..`.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    /// Bytes of contents that follow it in the tar.
    pub(super) stored: u64,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File(Extent),
    Directory,
    /// The target, unchanged.
    SymbolicLink(PathBuf),
    /// A hard link to an earlier entry.
    HardLink(PathBuf),
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
}

/// A file's length, and the offset and length of each piece of data, in order. Everything between them is a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) length: u64,
    pub(super) pieces: Vec<(u64, u64)>,
}

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Permissions, twelve bits.
    pub(super) mode: u32,
    pub(super) modified: Timespec,
    pub(super) extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member {
    /// Validates `entry`. `holes` contains the pieces of data and the length of a sparse file. Returns `None` for a volume
    /// label, which describes the tar itself.
    pub(super) fn parse(
        entry: &ParsedEntry<'_>,
        holes: Option<(Vec<SparseEntry>, u64)>,
    ) -> Result<Option<Self>, Error> {
        // A volume label.
        if entry.entry_type == EntryType::Other(b'V') {
            return Ok(None);
        }
        let name = Path::new(OsStr::from_bytes(&entry.path));
        let modified = check_records(entry.pax.unwrap_or_default(), holes.is_some())?;
        let number = |value| u32::try_from(value).map_err(|_| damaged("an owner beyond 32 bits"));
        let extended = entry.xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
        let attributes = Attributes {
            uid: number(entry.uid)?,
            gid: number(entry.gid)?,
            mode: entry.mode & 0o7777,
            // Times before 1970 are negative, although the crate's type is unsigned.
            modified: modified
                .unwrap_or(Timespec { tv_sec: entry.mtime.cast_signed(), tv_nsec: 0 }),
            extended: extended.collect(),
        };
        let stored = entry.size;
        let path = destination(name)?;
        Ok(Some(Self { path, kind: kind(entry, name, holes)?, attributes, stored }))
    }
}

fn kind(
    entry: &ParsedEntry<'_>,
    name: &Path,
    holes: Option<(Vec<SparseEntry>, u64)>,
) -> Result<Kind, Error> {
    let target = || {
        let link = entry.link_target.as_deref().ok_or_else(|| damaged("a link without a target"));
        link.map(|link| Path::new(OsStr::from_bytes(link)))
    };
    let device = || {
        let numbers = entry.dev_major.zip(entry.dev_minor);
        numbers.ok_or_else(|| damaged("a device without numbers"))
    };
    Ok(match entry.entry_type {
        // Before POSIX, only a trailing slash marked a directory.
        EntryType::Regular if entry.path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => {
            Kind::File(extent(entry.size, holes)?)
        }
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::SymbolicLink(target()?.into()),
        EntryType::Link => Kind::HardLink(destination(target()?)?),
        EntryType::Char => device().map(|(major, minor)| Kind::CharacterDevice(major, minor))?,
        EntryType::Block => device().map(|(major, minor)| Kind::BlockDevice(major, minor))?,
        EntryType::Fifo => Kind::Fifo,
        EntryType::GnuLongName
        | EntryType::GnuLongLink
        | EntryType::XHeader
        | EntryType::XGlobalHeader
        | EntryType::Other(_) => {
            let what = "which is neither a file, a directory, a link nor a device";
            return Err(Error::Unsupported { name: name.into(), what });
        }
    })
}

/// Returns the extent of a file with `stored` bytes of data.
fn extent(stored: u64, holes: Option<(Vec<SparseEntry>, u64)>) -> Result<Extent, Error> {
    let Some((map, length)) = holes else {
        return Ok(Extent { length: stored, pieces: vec![(0, stored)] });
    };
    let (mut end, mut total) = (0_u64, 0_u64);
    for SparseEntry { offset, length } in &map {
        let behind = offset.checked_add(*length).filter(|_| *offset >= end);
        end = behind.ok_or_else(|| damaged("overlapping pieces of a sparse file"))?;
        total = total.saturating_add(*length);
    }
    if end > length || total != stored {
        return Err(damaged("pieces of a sparse file that do not match its size"));
    }
    Ok(Extent { length, pieces: map.iter().map(|piece| (piece.offset, piece.length)).collect() })
}

/// Validates the extended header's `records` that the crate does not validate. Returns the modification time in them.
fn check_records(records: &[u8], sparse: bool) -> Result<Option<Timespec>, Error> {
    let mut modified = None;
    for (key, value) in
        fields::parse_records(records).ok_or_else(|| damaged("malformed extended header"))?
    {
        let text = std::str::from_utf8(value);
        match key {
            b"mtime" => {
                let time = text.ok().and_then(fields::parse_time);
                modified = Some(time.ok_or_else(|| damaged("invalid time"))?);
            }
            // Programs disagree on the meaning of this size: it may include the list of pieces or not.
            b"size" if sparse => return Err(damaged("a sparse file with two sizes")),
            b"size" | b"uid" | b"gid" => {
                let number = text.ok().and_then(|text| text.parse::<u64>().ok());
                number.ok_or_else(|| damaged("invalid number"))?;
            }
            _ if key.starts_with(b"GNU.sparse.") && !sparse => {
                return Err(damaged("a sparse file without a list of its pieces"));
            }
            _ => {}
        }
    }
    Ok(modified)
}

fn destination(name: &Path) -> Result<PathBuf, Error> {
    fields::destination(name).ok_or_else(|| Error::Outside(name.into()))
}

fn damaged(what: &str) -> Error {
    Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, what))
}
