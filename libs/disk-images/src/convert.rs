//! Conversion of an untrusted file to a raw disk or a tar.
//!
//! ```text
//! source ─▶ magic: gzip, xz, zstd, bzip2, zip ─▶ unpack, again up to 3 times ─┐
//!              └ disk or archive ◀────────────────────────────────────────────┘
//!                  ├ raw, fixed vhd ─────────────▶ copy ───────┐
//!                  ├ qcow2 ─▶ tables ─▶ imago ─────────────────┼─▶ disk.raw ─▶ properties
//!                  ├ vmdk, vdi, vhd, vhdx ─▶ qemu-img ─────────┘
//!                  └ tar ─▶ check ─▶ archive.tar
//! ```
//!
//! It is made for a sandbox: it opens the source, makes files in its directory, and runs
//! `/usr/bin/qemu-img`; nothing else. It has no timeout: whoever runs the sandbox ends it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::format::{Format, Wrapping};
use crate::magic::{self, Found};
use crate::partitions::{SECTOR, Table};
use crate::properties::Properties;
use crate::qcow2::{self, header::Header};
use crate::qemu::{self, Qemu};
use crate::refusal::Refusal;
use crate::source::Source;
use crate::sparse::{Budget, Limits, Scratch, SparseFile, writing};
use crate::vhd::{Footer, Kind as VhdKind};
use crate::{streams, tape, vmdk, zipped};

/// Maximum number of wrappings around an image.
const MAX_WRAPPINGS: usize = 3;

/// Kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes of a whole disk.
    Disk,
    /// Files of a system, in a tar.
    Archive,
}

/// A file to convert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The file. It does not change.
    pub source: PathBuf,
    /// Directory for the result and for temporary files.
    pub work: PathBuf,
    /// Name of the file as its owner knows it, or empty.
    pub name: String,
    /// Format that the owner declared, of the innermost file.
    pub declared: Option<Format>,
    /// Kind of the image.
    pub kind: Kind,
    /// Limits on the image.
    #[serde(default)]
    pub limits: Limits,
}

/// Result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Format of the image.
    pub format: Format,
    /// Wrappings around the image, from the outside to the inside.
    pub wrappings: Vec<Wrapping>,
    /// Size of the content in bytes.
    pub size_bytes: u64,
    /// The raw disk with holes for zeros, or the tar. It is in the job's directory.
    pub content: PathBuf,
    /// Properties of the disk. Nothing is known of an archive.
    pub properties: Properties,
}

/// Converts a file to a raw disk or a tar in the job's directory. Calls `progress` with the number
/// of bytes that were written so far, temporary files included.
pub fn convert(job: &Job, progress: &mut dyn FnMut(u64)) -> Result<Report, Refusal> {
    convert_with(Path::new(qemu::PROGRAM), job, progress)
}

/// A disk that was taken out of the layer of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerDisk {
    /// The file, in the directory that was given.
    pub path: PathBuf,
    /// Name of the file in the layer.
    pub name: String,
}

/// Takes the disk out of the layer of a container: a tar, which may be compressed, with exactly one
/// regular file below `disk/`. The disk is a new file in `work`, in any format of [`convert()`].
///
/// A layer with links, devices, sparse files, or names that lead out of it is refused.
pub fn disk_in_tar(
    layer: &Path,
    work: &Path,
    limits: &Limits,
    progress: &mut dyn FnMut(u64),
) -> Result<LayerDisk, Refusal> {
    let job = Job {
        source: layer.into(),
        work: work.into(),
        name: String::new(),
        declared: Some(Format::Tar),
        kind: Kind::Archive,
        limits: limits.clone(),
    };
    let path = result(&job, "layer.disk")?;
    let mut unwrapped = Unwrapped::open(&job, progress)?;
    unwrapped.format(&job)?;
    let unfinished = Scratch::new(path.clone());
    let create = || SparseFile::create(&path, unwrapped.budget);
    let mut report = unwrapped.progress.part();
    let name = tape::extract_disk(&unwrapped.source, limits, &create, &mut report)?;
    unfinished.keep();
    Ok(LayerDisk { path, name })
}

/// Converts the layer of a container or of an artifact: a tar with a disk in it, as [`disk_in_tar`]
/// takes it, or the disk itself, as [`convert()`] does. An archive is the layer itself.
pub fn convert_layer(job: &Job, progress: &mut dyn FnMut(u64)) -> Result<Report, Refusal> {
    if job.kind == Kind::Archive {
        return convert(job, progress);
    }
    match disk_in_tar(&job.source, &job.work, &job.limits, progress) {
        Ok(LayerDisk { path, name }) => {
            let disk = Scratch::new(path.clone());
            let report = convert(&Job { source: path, name, ..job.clone() }, progress);
            drop(disk);
            report
        }
        // Not a tar.
        Err(Refusal::Contradiction { declared: Format::Tar, .. }) => convert(job, progress),
        Err(refusal) => Err(refusal),
    }
}

/// Converts with `program` in place of qemu-img.
fn convert_with(
    program: &Path,
    job: &Job,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Refusal> {
    let name = if job.kind == Kind::Disk { "disk.raw" } else { "archive.tar" };
    let content = result(job, name)?;
    let mut unwrapped = Unwrapped::open(job, progress)?;
    let format = unwrapped.format(job)?;
    let work = absolute(&job.work)?;
    let unfinished = Scratch::new(content.clone());
    let size_bytes = unwrapped.write(format, &Qemu { program, work: &work }, &content)?;
    let unpacked = unwrapped.unpacked.take();
    let content = unpacked.as_ref().map_or(content, |unpacked| unpacked.path.clone());
    if job.kind == Kind::Disk && !size_bytes.is_multiple_of(SECTOR) {
        let needs = format!("a disk has sectors of {SECTOR} bytes");
        return Err(Refusal::truncated(format, size_bytes, needs));
    }
    let properties = match job.kind {
        Kind::Disk => inspect(&content)?,
        Kind::Archive => Properties::default(),
    };
    unfinished.keep();
    unpacked.into_iter().for_each(Scratch::keep);
    let wrappings = unwrapped.wrappings;
    Ok(Report { format, wrappings, size_bytes, content, properties })
}

/// Returns the path of the result `name`. A file there is replaced, so that it must not be the
/// source.
fn result(job: &Job, name: &str) -> Result<PathBuf, Refusal> {
    let path = absolute(&job.work)?.join(name);
    if path == absolute(&job.source)? {
        let error = std::io::Error::other("the source is in the place of the result");
        return Err(writing(&path, &error));
    }
    Ok(path)
}

/// Reads the properties of the raw disk at `path`, which must not end before its partitions do.
fn inspect(path: &Path) -> Result<Properties, Refusal> {
    let disk = Source::open(path)?;
    let table = Table::read(&disk)?;
    table.check_length(&disk)?;
    Ok(Properties::read(&disk, &table))
}

/// Bytes written so far.
struct Progress<'a> {
    report: &'a mut dyn FnMut(u64),
    /// Bytes of the files that are complete.
    before: u64,
}

impl Progress<'_> {
    /// Returns the progress of one more file.
    fn part(&mut self) -> impl FnMut(u64) {
        move |bytes| (self.report)(self.before.saturating_add(bytes))
    }
}

/// A file without wrappings.
struct Unwrapped<'a> {
    source: Source,
    /// Temporary file with the content, if the source of the job is wrapped.
    scratch: Option<Scratch>,
    /// The unpacked file that is the content.
    unpacked: Option<Scratch>,
    name: String,
    found: Found,
    wrappings: Vec<Wrapping>,
    budget: Budget,
    progress: Progress<'a>,
}

impl<'a> Unwrapped<'a> {
    /// Opens the source of `job`, and unpacks it.
    fn open(job: &Job, progress: &'a mut dyn FnMut(u64)) -> Result<Self, Refusal> {
        let source = Source::open(&absolute(&job.source)?)?;
        let mut unwrapped = Self {
            found: magic::of(source.head(), source.tail()),
            // Counted from the outermost file: wrappings in wrappings have no budget of their own.
            budget: Budget::new(&job.limits, source.bytes()),
            source,
            scratch: None,
            unpacked: None,
            name: job.name.clone(),
            wrappings: Vec::new(),
            progress: Progress { report: progress, before: 0 },
        };
        while let Found::Wrapped(wrapping) = unwrapped.found {
            unwrapped.unwrap(wrapping, job)?;
        }
        match unwrapped.source.bytes() {
            0 => Err(Refusal::Empty { wrapping: unwrapped.wrappings.last().copied() }),
            _ => Ok(unwrapped),
        }
    }

    /// Takes off one wrapping.
    fn unwrap(&mut self, wrapping: Wrapping, job: &Job) -> Result<(), Refusal> {
        let number = self.wrappings.len();
        if number == MAX_WRAPPINGS {
            return Err(Refusal::TooManyWrappings { limit: MAX_WRAPPINGS, innermost: wrapping });
        }
        let scratch = Scratch::new(absolute(&job.work)?.join(format!(".unpacked-{number}")));
        let mut to = SparseFile::create(&scratch.path, self.budget)?;
        let mut report = self.progress.part();
        self.name = match wrapping {
            Wrapping::Zip => {
                let is_wanted = |format| (format == Format::Tar) == (job.kind == Kind::Archive);
                let zip = zipped::Zip { source: &self.source, name: &self.name };
                zip.extract(&is_wanted, &job.limits, &mut to, &mut report)?
            }
            Wrapping::Gzip | Wrapping::Xz | Wrapping::Zstd | Wrapping::Bzip2 => {
                streams::decompress(wrapping, self.source.file()?, &mut to, &mut report)?;
                magic::without_wrapping(&self.name)
            }
        };
        drop(report);
        self.progress.before += to.finish()?;
        self.source = Source::open(&scratch.path)?;
        // Removes the file before this one.
        self.scratch = Some(scratch);
        self.found = magic::of(self.source.head(), self.source.tail());
        self.wrappings.push(wrapping);
        Ok(())
    }

    /// Returns the format, if it is one of the job's kind.
    fn format(&self, job: &Job) -> Result<Format, Refusal> {
        let format = magic::decide(self.found, job.declared, &self.name, self.source.head())?;
        match (job.kind, format) {
            (Kind::Disk, Format::Tar) => Err(Refusal::NotDisk { format }),
            (Kind::Archive, Format::Tar) | (Kind::Disk, _) => Ok(format),
            (Kind::Archive, _) => Err(Refusal::NotArchive { format }),
        }
    }

    /// Writes the raw disk or the tar to `to`. Returns its size.
    fn write(&mut self, format: Format, qemu: &Qemu<'_>, to: &Path) -> Result<u64, Refusal> {
        let head = self.source.head();
        let length = self.source.bytes();
        match format {
            Format::Raw => self.take(to),
            Format::Tar => {
                tape::check(&self.source)?;
                self.take(to)
            }
            Format::Qcow2 => {
                let header = Header::parse(head, length)?;
                match header.unsupported_feature() {
                    None => {
                        let mut report = self.progress.part();
                        qcow2::convert(&self.source, &header, self.budget, to, &mut report)
                    }
                    Some(_) => {
                        qcow2::check(&self.source, &header, self.budget)?;
                        self.run(qemu, format, header.bytes, to)
                    }
                }
            }
            Format::Vmdk => self.run(qemu, format, vmdk::check(head)?, to),
            Format::Vhd => {
                let footer = Footer::parse(self.source.tail(), length)?;
                match footer.kind {
                    VhdKind::Fixed => self.copy(footer.bytes, to),
                    VhdKind::Dynamic => self.run(qemu, format, footer.bytes, to),
                }
            }
            Format::Vdi | Format::Vhdx => self.run(qemu, format, 0, to),
        }
    }

    /// Makes the file the content. One that was unpacked keeps its name: a sandbox renames nothing.
    fn take(&mut self, to: &Path) -> Result<u64, Refusal> {
        let bytes = self.source.bytes();
        match self.scratch.take() {
            Some(unpacked) => self.unpacked = Some(unpacked),
            None => return self.copy(bytes, to),
        }
        Ok(bytes)
    }

    /// Makes the first `bytes` bytes of the file the content.
    fn copy(&mut self, bytes: u64, to: &Path) -> Result<u64, Refusal> {
        self.budget.check_size("size", bytes)?;
        let file = SparseFile::create(to, self.budget)?;
        self.source.copy(bytes, file, &mut self.progress.part())
    }

    /// Converts the image by qemu-img. `bytes` is the size of the disk, or 0 if it is not known.
    fn run(
        &mut self,
        qemu: &Qemu<'_>,
        format: Format,
        bytes: u64,
        to: &Path,
    ) -> Result<u64, Refusal> {
        self.budget.check_size("virtual size", bytes)?;
        let image = qemu::Image::new(qemu, format, &self.source)?;
        image.convert(self.budget, to, &mut self.progress.part())
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Refusal> {
    let operation = format!("looking for {}", path.display());
    std::path::absolute(path).map_err(|error| Refusal::io(&operation, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_qemu_img_are_refused_without_it_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let work = place.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let source = place.path().join("source");
        for (head, format) in [(&b"vhdxfile"[..], "vhdx"), (&[0; 0], "vdi")] {
            let mut content = vec![0; 4096];
            content[64..68].copy_from_slice(b"\x7f\x10\xda\xbe");
            content[..head.len()].copy_from_slice(head);
            std::fs::write(&source, content).unwrap();
            let job = Job {
                source: source.clone(),
                work: work.clone(),
                name: String::new(),
                declared: None,
                kind: Kind::Disk,
                limits: Limits::default(),
            };
            let error = convert_with(Path::new("/nowhere"), &job, &mut |_| {}).unwrap_err();
            let expected = format!("source: format {format}: needs qemu-img: install qemu-utils");
            assert_eq!(error.to_string(), expected);
            assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
        }
    }
}
