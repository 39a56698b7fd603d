//! Prepares the disks that the metadata of the machine's instance describes: `metadata.instance.storage`.
//!
//! | command | what it does |
//! |---|---|
//! | `partition` | writes a partition table on each of `disks`, and reads it back |
//! | `format` | makes each of `filesystems` |
//! | `wipe` | erases what is known by its place on each of `disks`, and discards the rest where that can be done |
//! | `mount` | nothing: the next action would not see it |
//! | `version` | prints it |
//!
//! | variable | meaning |
//! |---|---|
//! | `MIRROR_HOST` | needed; whom to ask for the metadata: `GET http://$MIRROR_HOST:$METADATA_SERVICE_PORT/metadata` |
//! | `METADATA_SERVICE_PORT` | 50061 |
//! | `MBR` | any text: tables are of the old kind, not GPT |
//! | `TEST`, `JSON_FILE` | any text: the metadata is in this file instead |
//!
//! Everything is checked before anything is touched: all disks and devices are there and not in use, all partitions
//! fit, all programs are there. What fails is a failure of the action.

mod format;
mod layout;
mod mbr;
mod metadata;
mod partition;
mod wipe;

use std::io;
use std::path::{Path, PathBuf};

use crate::action::{self, Context};
use crate::disk::{self, Disk};
use crate::environment::Environment;
use metadata::Storage;

/// What to do with the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subcommand {
    /// Make file systems.
    Format,
    /// Nothing.
    Mount,
    /// Write partition tables.
    Partition,
    /// Say which version this is.
    Version,
    /// Make disks look new.
    Wipe,
}

/// Why the disks are not as described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{at}: {why}")]
    Metadata { at: String, why: String },
    #[error("the metadata's storage has no {0}")]
    Nothing(&'static str),
    #[error("the metadata's storage has {0}, which are not made here")]
    Unsupported(&'static str),
    #[error("{}: {why}", disk.display())]
    Layout { disk: PathBuf, why: String },
    #[error("{}: the partition table does not read back as it was written", .0.display())]
    Table(PathBuf),
    #[error("{}: {format:?} is no file system that can be made here", device.display())]
    Format { device: PathBuf, format: String },
    #[error("{}: this environment has no {program}, which makes {format}", device.display())]
    NoProgram { device: PathBuf, program: &'static str, format: String },
    #[error("{}: did not appear", .0.display())]
    Absent(PathBuf),
}

impl From<Error> for action::Error {
    fn from(error: Error) -> Self {
        Self::own(error)
    }
}

/// Does it.
pub(crate) async fn run(
    what: Subcommand,
    environment: &Environment,
    context: &Context,
) -> Result<(), action::Error> {
    match what {
        Subcommand::Mount => {
            context.progress.output(b"nothing is mounted: actions mount what they need\n");
            return Ok(());
        }
        Subcommand::Version => {
            let version = concat!("tinwright-worker ", env!("CARGO_PKG_VERSION"), "\n");
            context.progress.output(version.as_bytes());
            return Ok(());
        }
        Subcommand::Format | Subcommand::Partition | Subcommand::Wipe => {}
    }
    let storage = Storage::read(environment, context).await?;
    match what {
        Subcommand::Format => format::run(&storage.filesystems, environment, context).await,
        Subcommand::Partition => {
            let mbr = environment.optional("MBR").is_some();
            partition::run(storage, mbr, context).await
        }
        Subcommand::Wipe => wipe::run(storage, context).await,
        Subcommand::Mount | Subcommand::Version => Ok(()),
    }
}

/// The real disks at `paths`, held exclusively.
fn open<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Vec<Disk>, disk::Error> {
    paths.map(|path| Disk::open(path, false)?.real()).collect()
}

/// `error`, which a crate has for whatever went wrong, as one of reading or writing.
fn io_error(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
