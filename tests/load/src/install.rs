//! Compares the installation of an image by its map with `curl | zstd | dd`, in turn, on a blank loop device.
//!
//! nginx serves the image from memory on a core of its own; both ways may use both cores. Ours checks each block, and reads
//! each back from the disk. The action runs in a process of its own, whose memory is measured.

mod action;
mod disk;
mod image;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rack::SERVER;

pub use self::action::{WriteImage, write_image};
use self::disk::BlankDisk;
use self::image::{Pattern, StoredImage};
use crate::peer::Peer;
use crate::process::{KiB, Measured};
use crate::report::{Report, median};
use crate::steal;

/// Size of the images in bytes.
const IMAGE_BYTES: u64 = 4 << 30;
/// Port of nginx.
const PORT: u16 = 7080;
/// The most memory that the action may take.
const MAX_MEMORY: KiB = KiB(200 << 10);
/// The images, and the lowest accepted ratios of the speeds.
const PATTERNS: [(&str, Pattern, f64); 2] =
    [("4 GiB, dense", Pattern::Dense, 0.95), ("4 GiB, half empty", Pattern::HalfEmpty, 1.5)];

/// One installation.
#[derive(Clone, Copy, Debug)]
struct Run {
    elapsed: Duration,
    /// The highest memory of the process, if it is known.
    memory: KiB,
    disturbed: bool,
}

/// Measures both ways in `rounds` rounds, with images in a new folder below `folder`.
pub fn install(folder: &Path, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let peers = setup::peers("tests/load/assets/peers.sh")?.join("servers");
    let scratch = tempfile::tempdir_in(folder)?;
    let disk = BlankDisk::new(&scratch.path().join("disk"), IMAGE_BYTES)?;
    println!("{:24}{:>12}{:>18}{:>8}", "", "ours, s", "curl|zstd|dd, s", "ratio");
    for (name, pattern, goal) in PATTERNS {
        let image = StoredImage::make(scratch.path(), pattern, IMAGE_BYTES)?;
        let nginx = Peer::nginx(&peers, true, |root| {
            symlink(&image.file, root.join("image.raw.zst"))?;
            Ok(symlink(&image.map_file, root.join("image.map"))?)
        })?;
        nginx.ready(|nginx| fetched(nginx, "image.map").ok())?;
        let site = Site { nginx: nginx.measured(), image: &image, disk: &disk };
        site.compare(name, rounds, goal, report)?;
        image.remove()?;
    }
    Ok(())
}

/// A server with an image, and a disk for it.
struct Site<'a> {
    nginx: Measured<'a>,
    image: &'a StoredImage,
    disk: &'a BlankDisk,
}

impl Site<'_> {
    /// Measures both alternately, and prints the row. A first round of both, which is not counted, compares the disk with the image.
    fn compare(
        &self,
        name: &str,
        rounds: usize,
        goal: f64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        for run in [Self::ours, Self::theirs] {
            run(self)?;
            anyhow::ensure!(self.disk.sha256()? == self.image.sha256, "{name}: another content");
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(self.ours()?);
            theirs.push(self.theirs()?);
        }
        let seconds = |run: &Run| run.elapsed.as_secs_f64();
        let ratio =
            median(ours.iter().zip(&theirs).map(|(one, other)| seconds(other) / seconds(one)));
        let [one, other] = [&ours, &theirs].map(|runs| median(runs.iter().map(seconds)));
        let verdict = report.verdict_of(ratio >= goal);
        let count = ours.iter().chain(&theirs).filter(|run| run.disturbed).count();
        let note = if count > 0 { format!("   {count} disturbed") } else { String::new() };
        println!("{name:24}{one:12.2}{other:18.2}{ratio:8.2}   goal {goal} {verdict}{note}");
        let memory = ours.iter().map(|run| run.memory).max().unwrap_or(KiB(0));
        report.memory(&format!("{name}: memory"), memory, Some(MAX_MEMORY));
        Ok(())
    }

    fn ours(&self) -> anyhow::Result<Run> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["write-image", "--url", &url("image.raw.zst")]);
        command.args(["--map-url", &url("image.map")]);
        command.args(["--map-sha256", &self.image.map_sha256, "--disk", self.disk.path()]);
        let (run, output) = self.timed(&mut command)?;
        let memory = output.trim().parse().with_context(|| format!("memory {output:?}"))?;
        Ok(Run { memory: KiB(memory), ..run })
    }

    fn theirs(&self) -> anyhow::Result<Run> {
        let line = "set -o pipefail; curl --silent --fail \"$0\" | zstd --decompress --stdout --quiet \
                    | dd of=\"$1\" bs=4M iflag=fullblock oflag=direct conv=fsync status=none";
        let mut command = Command::new("bash");
        command.args(["-c", line, &url("image.raw.zst"), self.disk.path()]);
        Ok(self.timed(&mut command)?.0)
    }

    /// Runs `command` on a blank disk, in the network of the machines. Returns its output, too.
    fn timed(&self, command: &mut Command) -> anyhow::Result<(Run, String)> {
        self.disk.blank()?;
        self.nginx.network.enter()?;
        let sample = steal::sample(|| {
            let start = Instant::now();
            let output = command.output()?;
            Ok((start.elapsed(), output))
        })?;
        let (elapsed, output) = sample.value;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?}: {errors}");
        let run = Run { elapsed, memory: KiB(0), disturbed: sample.disturbed };
        Ok((run, String::from_utf8(output.stdout)?))
    }
}

fn url(name: &str) -> String {
    format!("http://{SERVER}:{PORT}/{name}")
}

/// Downloads the file `name` from the machines' network.
fn fetched(nginx: Measured<'_>, name: &str) -> anyhow::Result<()> {
    nginx.network.enter()?;
    setup::run(Command::new("curl").args([
        "--silent",
        "--fail",
        "--output",
        "/dev/null",
        &url(name),
    ]))
}
