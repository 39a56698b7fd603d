//! Prepares the disks as described in the instance's metadata, in `metadata.instance.storage`.
//!
//! | command | effect |
//! |---|---|
//! | `partition` | writes a partition table on each of `disks`, and verifies it |
//! | `format` | creates each of `filesystems` |
//! | `wipe` | zeroes both ends of each of `disks`, and discards the rest if the disk can |
//! | `mount` | nothing: a mount would end with the action |
//! | `version` | prints the version |
//!
//! | variable | meaning |
//! |---|---|
//! | `MIRROR_HOST` | required; the metadata server: `GET http://$MIRROR_HOST:$METADATA_SERVICE_PORT/metadata` |
//! | `METADATA_SERVICE_PORT` | default: 50061 |
//! | `MBR` | any text: MBR instead of GPT |
//! | `TEST`, `JSON_FILE` | any text: read the metadata from this file instead |
//!
//! Everything is checked before the first write: all disks and devices exist and are not in use, all partitions fit, and
//! all programs exist.

mod format;
mod former_table;
mod layout;
mod mbr;
mod metadata;
mod partition;
mod wipe;

use std::io;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::disk::{self, Disk};
use crate::environment::Environment;
use crate::error;
use metadata::Storage;

/// A subcommand of rootio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subcommand {
    /// Create file systems.
    Format,
    /// Do nothing.
    Mount,
    /// Write partition tables.
    Partition,
    /// Print the version.
    Version,
    /// Erase partition tables and file system signatures.
    Wipe,
}

/// The disks cannot be prepared as described in the metadata.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{location}: {reason}")]
    Metadata { location: String, reason: String },
    #[error("the metadata's storage has no {0}")]
    Empty(&'static str),
    #[error("the metadata's storage has {0}, which are not supported")]
    Unsupported(&'static str),
    #[error("{}: {reason}", disk.display())]
    Layout { disk: PathBuf, reason: String },
    #[error("{}: the partition table read back differs from the one written", .0.display())]
    Table(PathBuf),
    #[error("{}: file system {format:?} is not supported", device.display())]
    Format { device: PathBuf, format: String },
    #[error("{}: the program {program} for {format} is missing in this environment", device.display())]
    NoProgram { device: PathBuf, program: &'static str, format: String },
    #[error("{}: device did not appear", .0.display())]
    NoDevice(PathBuf),
}

impl crate::error::StepError for Error {}

/// Runs the subcommand.
pub(crate) async fn run(
    subcommand: Subcommand,
    environment: &Environment,
    context: &Context,
) -> Result<(), error::Error> {
    let storage = async || Storage::fetch(environment, context).await;
    let line = match subcommand {
        Subcommand::Format => {
            return format::run(&storage().await?.filesystems, environment, context).await;
        }
        Subcommand::Partition => {
            let mbr = environment.optional("MBR").is_some();
            return partition::run(storage().await?, mbr, context).await;
        }
        Subcommand::Wipe => return wipe::run(storage().await?, context).await,
        Subcommand::Mount => "nothing to mount: each action mounts its file systems itself\n",
        Subcommand::Version => concat!("tinwright-worker ", env!("CARGO_PKG_VERSION"), "\n"),
    };
    context.progress.output(line.as_bytes());
    Ok(())
}

/// Opens the disks at `paths` exclusively. A file is an error.
fn open<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Vec<Disk>, disk::Error> {
    paths.map(|path| Disk::open(path, false)?.require_block_device()).collect()
}

/// Converts an error of another crate into an I/O error.
fn io_error(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
