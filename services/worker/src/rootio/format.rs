//! Creates file systems with the mkfs programs of the in-memory environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::metadata::Filesystem;
use super::{Error, open};
use crate::command::Runner;
use crate::context::Context;
use crate::disk::{self, leftovers};
use crate::environment::Environment;
use crate::error::{self, joined};

/// Attempts to find a device: the kernel shows partitions some time after their table is written.
const MAX_DEVICE_POLLS: u32 = 100;

/// Time between two attempts.
const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A program that creates file systems.
struct MkfsProgram {
    /// Names of the program, the usual one first. busybox's `mke2fs` creates ext2 only, so that name is not used for ext3
    /// and ext4.
    programs: &'static [&'static str],
    /// Options to overwrite an existing file system.
    force: &'static [&'static str],
}

/// Returns the program for `format`, if it is supported.
fn mkfs(format: &str) -> Option<MkfsProgram> {
    let (programs, force): (&[_], &[_]) = match format {
        "ext2" => (&["mkfs.ext2", "mke2fs"], &["-F"]),
        "ext3" => (&["mkfs.ext3"], &["-F"]),
        "ext4" => (&["mkfs.ext4"], &["-F"]),
        "swap" => (&["mkswap"], &[]),
        "vfat" => (&["mkfs.vfat", "mkfs.fat", "mkdosfs"], &[]),
        "xfs" => (&["mkfs.xfs"], &["-f"]),
        _ => return None,
    };
    Some(MkfsProgram { programs, force })
}

/// Creates all file systems.
pub(super) async fn run(
    filesystems: &[Filesystem],
    environment: &Environment,
    context: &Context,
) -> Result<(), error::Error> {
    if filesystems.is_empty() {
        return Err(Error::Empty("filesystems").into());
    }
    let runner = Runner::new(environment, context);
    let commands = filesystems.iter().map(|filesystem| command(filesystem, &runner));
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<_> = filesystems.iter().map(|it| it.device.clone()).collect();
    for device in &devices {
        let exists = context.stop.run_until_cancelled(wait_for(device)).await;
        exists.ok_or(error::Error::Cancelled)??;
    }
    let progress = context.progress.clone();
    let erase = move || {
        for line in erase_superblocks(&devices)? {
            progress.output(line.as_bytes());
        }
        Ok::<_, disk::Error>(())
    };
    joined(tokio::task::spawn_blocking(erase)).await??;
    for words in commands {
        runner.run(&words).await?;
    }
    // The programs wrote through the page cache.
    joined(tokio::task::spawn_blocking(rustix::fs::sync)).await
}

/// Returns the command that creates `filesystem`.
fn command(filesystem: &Filesystem, runner: &Runner) -> Result<Vec<String>, Error> {
    let Filesystem { device, format, create } = filesystem;
    let mkfs = mkfs(format);
    let unknown = || Error::Format { device: device.clone(), format: format.clone() };
    let MkfsProgram { programs, force } = mkfs.ok_or_else(unknown)?;
    let program = runner.find(programs).ok_or_else(|| Error::NoProgram {
        device: device.clone(),
        program: programs.first().copied().unwrap_or_default(),
        format: format.clone(),
    })?;
    let force = force.iter().map(|word| (*word).to_owned());
    let device = device.to_string_lossy().into_owned();
    let program = program.to_string_lossy().into_owned();
    Ok([program]
        .into_iter()
        .chain(create.options.iter().cloned())
        .chain(force)
        .chain([device])
        .collect())
}

/// Erases the superblocks of former systems at the ends of `devices`: mkfs programs leave them. Before
/// the first write, opens the devices exclusively, to check that nothing uses them. Returns lines for
/// the log.
fn erase_superblocks(devices: &[PathBuf]) -> Result<Vec<String>, disk::Error> {
    let disks = open(devices.iter().map(PathBuf::as_path))?;
    let mut lines = Vec::new();
    for (mut disk, device) in disks.into_iter().zip(devices) {
        let line = leftovers::line(&leftovers::erase_superblocks(&mut disk, &[])?);
        lines.extend(line.map(|line| format!("{}: {line}\n", device.display())));
    }
    Ok(lines)
}

/// Waits until `device` exists.
async fn wait_for(device: &Path) -> Result<(), Error> {
    for _ in 0..MAX_DEVICE_POLLS {
        if device.exists() {
            return Ok(());
        }
        tokio::time::sleep(DEVICE_POLL_INTERVAL).await;
    }
    Err(Error::NoDevice(device.into()))
}
