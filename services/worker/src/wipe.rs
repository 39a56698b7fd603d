//! Erases disks, and verifies that they read as zeroes.
//!
//! | variable | meaning |
//! |---|---|
//! | `DEST_DISK` | disks to erase, separated by commas |
//! | `WIPE_DISKS` | `all`: every disk of the machine, but no read-only disks, empty drives, or devices built on other disks |
//! | `PROGRESS_INTERVAL_SECONDS` | default and minimum: 1 |
//!
//! Exactly one of the first two variables is required, so that a forgotten variable erases nothing. A disk that can discard,
//! and guarantees zeroes afterwards, is erased in seconds; on other disks, zeroes are written. Neither method erases sectors
//! that the disk has replaced. All disks are opened before the first write: if one of them is in use, none is erased.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::disk::block::{Block, SIZE};
use crate::disk::{self, Disk};
use crate::environment::{self, Environment};
use crate::error::{Error, joined};
use crate::progress::{Meter, Phase, Report};

/// Bytes discarded between two progress reports and checks for cancellation.
const STEP_BYTES: u64 = 64 << 20;

/// Erases the disks one after the other.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), Error> {
    let paths = disks(environment, disk::every_disk)?;
    let meter = Meter::new(context.progress.clone(), environment.progress_interval()?);
    let stop = context.stop.clone();
    joined(tokio::task::spawn_blocking(move || {
        let opened: Result<Vec<_>, _> =
            paths.iter().map(|path| Disk::open(path, false)?.require_block_device()).collect();
        Eraser { disks: opened?, meter, stop }.erase()
    }))
    .await?
}

/// Returns the disks to erase. `all` returns all disks of the machine.
fn disks(
    environment: &Environment,
    all: impl Fn() -> Vec<PathBuf>,
) -> Result<Vec<PathBuf>, environment::Error> {
    let (name, expected) = ("WIPE_DISKS", "`all`, instead of DEST_DISK");
    let listed = environment.optional("DEST_DISK");
    match (listed, environment.optional(name)) {
        (Some(listed), None) => {
            let paths = listed.split(',').map(str::trim).filter(|path| !path.is_empty());
            Ok(paths.map(PathBuf::from).collect())
        }
        (None, Some("all")) => Ok(all()),
        (_, Some(value)) => Err(environment::Error::invalid(name, value, expected)),
        (None, None) => Err(environment::Error::Missing("DEST_DISK")),
    }
}

struct Eraser {
    disks: Vec<Disk>,
    meter: Meter,
    stop: CancellationToken,
}

impl Eraser {
    fn erase(mut self) -> Result<(), Error> {
        let total: u64 = self.disks.iter().filter_map(Disk::capacity).sum();
        let (mut wiped, mut verified) = (0, 0);
        for disk in &self.disks {
            let zero = |at, length| disk.zero(at, length);
            self.pass(disk, STEP_BYTES, Phase::Wiping, (&mut wiped, total), zero)?;
            disk.flush()?;
        }
        let mut block = Block::new();
        for disk in &self.disks {
            let verify = |at, length| {
                disk.check_zero(at, &mut block, usize::try_from(length).unwrap_or(SIZE))
            };
            self.pass(disk, SIZE as u64, Phase::Verifying, (&mut verified, total), verify)?;
        }
        self.disks.iter_mut().for_each(Disk::reread_partitions);
        Ok(())
    }

    /// Calls `work` for all of `disk`, `step` bytes at a time.
    fn pass(
        &self,
        disk: &Disk,
        step: u64,
        phase: Phase,
        (done, total): (&mut u64, u64),
        mut work: impl FnMut(u64, u64) -> Result<(), disk::Error>,
    ) -> Result<(), Error> {
        let capacity = disk.capacity().unwrap_or_default();
        let mut at = 0;
        while at < capacity {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let length = step.min(capacity - at);
            work(at, length)?;
            at += length;
            *done += length;
            self.meter.report(|| Report { phase: phase.clone(), done: *done, total: Some(total) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Result<Vec<PathBuf>, String> {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        disks(&variables.collect(), || vec!["/dev/every".into()]).map_err(|error| error.to_string())
    }

    #[test]
    fn disks_are_listed_or_all_of_them() {
        assert_eq!(
            chosen(&[("DEST_DISK", "/dev/sda, /dev/sdb,")]),
            Ok(vec!["/dev/sda".into(), "/dev/sdb".into()])
        );
        assert_eq!(chosen(&[("WIPE_DISKS", "all")]), Ok(vec!["/dev/every".into()]));
    }

    #[test]
    fn without_an_explicit_setting_nothing_is_erased() {
        assert_eq!(chosen(&[]), Err("DEST_DISK is missing".into()));
        let unclear = "WIPE_DISKS is `ALL`, not `all`, instead of DEST_DISK";
        assert_eq!(chosen(&[("WIPE_DISKS", "ALL")]), Err(unclear.into()));
        assert!(chosen(&[("WIPE_DISKS", "all"), ("DEST_DISK", "/dev/sda")]).is_err());
    }
}
