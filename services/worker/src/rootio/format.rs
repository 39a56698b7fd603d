//! Making file systems, with the programs that the environment has for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::metadata::Filesystem;
use super::{Error, open};
use crate::action::{self, Context, joined};
use crate::command::Runner;
use crate::environment::Environment;

/// How often to look for a device that is not there yet, and how long to wait in between: the kernel shows partitions
/// only some time after their table is written.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// What makes a file system.
struct Maker {
    /// What the program is called: its usual name, and what others call theirs. busybox's `mke2fs` makes ext2 and
    /// nothing else, so that name will not do for the others.
    programs: &'static [&'static str],
    /// What has it go on where there was something before.
    force: &'static [&'static str],
}

/// What makes `format`, if it is one of rootio's.
fn maker(format: &str) -> Option<Maker> {
    let (programs, force): (&[_], &[_]) = match format {
        "ext2" => (&["mkfs.ext2", "mke2fs"], &["-F"]),
        "ext3" => (&["mkfs.ext3"], &["-F"]),
        "ext4" => (&["mkfs.ext4"], &["-F"]),
        "swap" => (&["mkswap"], &[]),
        "vfat" => (&["mkfs.vfat", "mkfs.fat", "mkdosfs"], &[]),
        "xfs" => (&["mkfs.xfs"], &["-f"]),
        _ => return None,
    };
    Some(Maker { programs, force })
}

/// Makes them all.
pub(super) async fn run(
    filesystems: &[Filesystem],
    environment: &Environment,
    context: &Context,
) -> Result<(), action::Error> {
    if filesystems.is_empty() {
        return Err(Error::Nothing("filesystems").into());
    }
    let runner = Runner::new(environment, context);
    let commands = filesystems.iter().map(|filesystem| command(filesystem, &runner));
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<_> = filesystems.iter().map(|it| it.device.clone()).collect();
    for device in &devices {
        let there = context.stop.run_until_cancelled(appearing(device)).await;
        there.ok_or(action::Error::Cancelled)??;
    }
    // Held for a moment, to know that nobody else does.
    let free = move || open(devices.iter().map(PathBuf::as_path)).map(drop);
    joined(tokio::task::spawn_blocking(free)).await??;
    for words in commands {
        runner.run(&words).await?;
    }
    // What the programs wrote through the page cache.
    joined(tokio::task::spawn_blocking(rustix::fs::sync)).await
}

/// What makes `filesystem`, as words of a command.
fn command(filesystem: &Filesystem, runner: &Runner) -> Result<Vec<String>, Error> {
    let Filesystem { device, format, options } = filesystem;
    let maker = maker(format);
    let unknown = || Error::Format { device: device.clone(), format: format.clone() };
    let Maker { programs, force } = maker.ok_or_else(unknown)?;
    let program = runner.find(programs).ok_or_else(|| Error::NoProgram {
        device: device.clone(),
        program: programs.first().copied().unwrap_or_default(),
        format: format.clone(),
    })?;
    let force = force.iter().map(|word| (*word).to_owned());
    let device = device.to_string_lossy().into_owned();
    let program = program.to_string_lossy().into_owned();
    Ok([program].into_iter().chain(options.iter().cloned()).chain(force).chain([device]).collect())
}

/// Returns once `device` is there.
async fn appearing(device: &Path) -> Result<(), Error> {
    for _ in 0..LOOKS {
        if device.exists() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::Absent(device.into()))
}
