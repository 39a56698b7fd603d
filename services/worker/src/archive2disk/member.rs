//! An entry of a tar, checked.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Timespec;
use tar_core::parse::ParsedEntry;
use tar_core::{EntryType, SparseEntry};

use super::Error;
use super::place;

/// An entry but for a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Absolute, without `.` and `..`.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    /// How many bytes of contents follow it in the tar.
    pub(super) stored: u64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File(Extent),
    Directory,
    /// What it says, as it says it.
    SymbolicLink(PathBuf),
    /// Another name of an earlier entry.
    HardLink(PathBuf),
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
}

/// A file's length and where in it its bytes are: place and length of each piece, in order. The rest are holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) length: u64,
    pub(super) pieces: Vec<(u64, u64)>,
}

/// What is known of a file besides its contents.
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
    /// What `entry` is, with the pieces and the length of a file with holes in it; none if it only tells something of
    /// the tar itself.
    pub(super) fn of(
        entry: &ParsedEntry<'_>,
        holes: Option<(Vec<SparseEntry>, u64)>,
    ) -> Result<Option<Self>, Error> {
        // The volume's label.
        if entry.entry_type == EntryType::Other(b'V') {
            return Ok(None);
        }
        let name = Path::new(OsStr::from_bytes(&entry.path));
        let modified = checked(entry.pax.unwrap_or_default(), holes.is_some())?;
        let number = |value| u32::try_from(value).map_err(|_| damaged("an owner beyond 32 bits"));
        let extended = entry.xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
        let attributes = Attributes {
            uid: number(entry.uid)?,
            gid: number(entry.gid)?,
            mode: entry.mode & 0o7777,
            // Before 1970 it is a negative number, also where the crate has none.
            modified: modified
                .unwrap_or(Timespec { tv_sec: entry.mtime.cast_signed(), tv_nsec: 0 }),
            extended: extended.collect(),
        };
        let stored = entry.size;
        let path = inside(name)?;
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
        // Before POSIX a slash was all that told them apart.
        EntryType::Regular if entry.path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => {
            Kind::File(extent(entry.size, holes)?)
        }
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::SymbolicLink(target()?.into()),
        EntryType::Link => Kind::HardLink(inside(target()?)?),
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

/// Where the `stored` bytes of a file are in it.
fn extent(stored: u64, holes: Option<(Vec<SparseEntry>, u64)>) -> Result<Extent, Error> {
    let Some((map, length)) = holes else {
        return Ok(Extent { length: stored, pieces: vec![(0, stored)] });
    };
    let (mut end, mut total) = (0_u64, 0_u64);
    for SparseEntry { offset, length } in &map {
        let behind = offset.checked_add(*length).filter(|_| *offset >= end);
        end = behind.ok_or_else(|| damaged("pieces of a file that overlap"))?;
        total = total.saturating_add(*length);
    }
    if end > length || total != stored {
        return Err(damaged("pieces of a file that do not make it up"));
    }
    Ok(Extent { length, pieces: map.iter().map(|piece| (piece.offset, piece.length)).collect() })
}

/// Checks the extended header's `records` that the crate takes leniently, and answers the time in them.
fn checked(records: &[u8], sparse: bool) -> Result<Option<Timespec>, Error> {
    let mut modified = None;
    for (key, value) in place::records(records).ok_or_else(|| damaged("an extended header"))? {
        let text = std::str::from_utf8(value);
        match key {
            b"mtime" => {
                let time = text.ok().and_then(place::time);
                modified = Some(time.ok_or_else(|| damaged("a time that is none"))?);
            }
            // Would it count the list of pieces, or not? Those who write such tars do not agree.
            b"size" if sparse => return Err(damaged("a file with holes that has two sizes")),
            b"size" | b"uid" | b"gid" => {
                let number = text.ok().and_then(|text| text.parse::<u64>().ok());
                number.ok_or_else(|| damaged("a number that is none"))?;
            }
            _ if key.starts_with(b"GNU.sparse.") && !sparse => {
                return Err(damaged("a file with holes that are not listed"));
            }
            _ => {}
        }
    }
    Ok(modified)
}

fn inside(name: &Path) -> Result<PathBuf, Error> {
    place::inside(name).ok_or_else(|| Error::Outside(name.into()))
}

fn damaged(what: &str) -> Error {
    Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, what))
}
