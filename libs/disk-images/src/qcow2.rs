//! Raw disks of images in QEMU's format qcow2 (QEMU, docs/interop/qcow2.txt).
//!
//! The library imago reads clusters that are plain or compressed by deflate. It opens no file but
//! the image itself. [`header`] refuses images that refer to others, and [`tables`] finds truncated
//! ones: readers take what is behind the end of the file as zeros.

pub(crate) mod header;
mod tables;

use std::fs::File;
use std::path::Path;

use imago::file::File as Storage;
use imago::qcow2::Qcow2;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder as _};

use crate::format::Format;
use crate::qcow2::header::Header;
use crate::refusal::Refusal;
use crate::source::Source;
use crate::sparse::{Budget, CHUNK_BYTES, Limits, SparseFile};

/// Writes the raw disk of the image at `from` to a new file at `to`, and calls `progress` with the
/// number of bytes written and that of the disk. An image that is not qcow2 is raw already, and
/// copied.
///
/// Images that refer to other files, or that have features beyond plain clusters and clusters
/// compressed by deflate, are refused.
pub fn to_raw(
    from: &Path,
    to: &Path,
    limits: &Limits,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Refusal> {
    let source = Source::open(from)?;
    if source.bytes() == 0 {
        return Err(Refusal::Empty { wrapping: None });
    }
    let budget = Budget::new(limits, source.bytes());
    if !source.head().starts_with(header::MAGIC) {
        let bytes = source.bytes();
        budget.check_size("size", bytes)?;
        let raw = SparseFile::create(to, budget)?;
        return source.copy(bytes, raw, &mut |written| progress(written, bytes));
    }
    let header = Header::parse(source.head(), source.bytes())?;
    if let Some(feature) = header.unsupported_feature() {
        return Err(Refusal::unsupported(Format::Qcow2, feature));
    }
    let bytes = header.bytes;
    convert(&source, &header, budget, to, &mut |written| progress(written, bytes))
}

/// Writes the raw disk of `source`, an image without unsupported features.
pub(crate) fn convert(
    source: &Source,
    header: &Header,
    budget: Budget,
    to: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, Refusal> {
    let bytes = header.bytes;
    check(source, header, budget)?;
    let image = open(source.file()?)?;
    let mut raw = SparseFile::create(to, budget)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    while raw.position() < bytes {
        let left = usize::try_from(bytes - raw.position()).unwrap_or(CHUNK_BYTES);
        let chunk = buffer.get_mut(..left.min(CHUNK_BYTES)).unwrap_or_default();
        let read = image.read(&mut *chunk, raw.position());
        read.map_err(|error| {
            let at = raw.position();
            Refusal::damaged(Format::Qcow2, format!("{error}, in the disk's bytes from {at}"))
        })?;
        raw.write(chunk)?;
        progress(raw.position());
    }
    raw.finish()
}

/// Returns an error if the disk is too large, or if a part of it is not in the file.
pub(crate) fn check(source: &Source, header: &Header, budget: Budget) -> Result<(), Refusal> {
    budget.check_size("virtual size", header.bytes)?;
    tables::check(source, header)
}

fn open(file: File) -> Result<FormatAccess<Storage>, Refusal> {
    let storage =
        Storage::try_from(file).map_err(|error| Refusal::io("opening the source", &error))?;
    let image = Qcow2::<Storage>::builder(storage).open(DenyImplicitOpenGate::default());
    let image = image.map_err(|error| Refusal::damaged(Format::Qcow2, error.to_string()))?;
    Ok(FormatAccess::new(image))
}
