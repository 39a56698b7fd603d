//! `tinwright image build`: Debian from a mirror, for sites whose servers do not reach the publishers of images.
//!
//! ```text
//! mmdebstrap ─▶ root directory ─▶ settings ─▶ GRUB's files ─▶ raw image: GPT, boot loaders, ext4 ─▶ NAME.raw.zst
//! ```
//!
//! The layout is that of Debian's cloud images, and so are the packages of the boot loader: an upgrade of GRUB in the installed system
//! installs it for both kinds of firmware.
//!
//! - [`system`]: packages and settings of the system.
//! - [`disk`]: the partitions, and what is in them; [`bios`]: the boot loader for BIOS.

mod bios;
mod disk;
mod system;

use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use indicatif::ProgressBar;
use uuid::Uuid;

use super::stored::{DirectoryLock, Target};
use super::{BuildOptions, programs};
use crate::output::print_line;

/// The release that is built unless another one is named.
pub(super) const DEBIAN_12: &str = "debian-12";

/// Names of releases, and what Debian's archive calls them.
const RELEASES: [(&str, &str); 2] = [(DEBIAN_12, "bookworm"), ("debian-13", "trixie")];

/// The programs that a build runs on this host.
const PROGRAMS: [programs::Program; 6] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("mformat", "mtools"),
    ("mmd", "mtools"),
    ("mcopy", "mtools"),
    ("chroot", "coreutils"),
];

/// Returns the names of the releases.
pub(super) fn releases() -> impl Iterator<Item = &'static str> {
    RELEASES.iter().map(|(name, _)| *name)
}

/// The ids of an image, by which its parts refer to each other. They are new in each image.
#[derive(Clone, Copy, Debug)]
struct Ids {
    /// Id of the root file system.
    root: Uuid,
    /// Serial number of the EFI system partition's FAT.
    esp: u32,
}

impl Ids {
    fn new() -> Self {
        let (esp, _, _, _) = Uuid::new_v4().as_fields();
        Self { root: Uuid::new_v4(), esp }
    }

    /// Returns the id of the EFI system partition as fstab has it.
    fn esp_text(self) -> String {
        format!("{:04X}-{:04X}", self.esp >> 16, self.esp & 0xffff)
    }
}

/// Builds the image in `options`, and prints where it is stored.
pub(super) fn run(options: &BuildOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    anyhow::ensure!(is_root, "building an image needs the permissions of root: use sudo");
    programs::require(&PROGRAMS)?;
    let suite = RELEASES.iter().find(|(name, _)| *name == options.release);
    let (_, suite) = suite.with_context(|| format!("no release {}", options.release))?;
    let name = options.name.as_deref().unwrap_or(&options.release);
    let _lock = DirectoryLock::take(&options.files)?;
    // The user of apt in the new system reads below this directory.
    let readable = std::fs::Permissions::from_mode(0o755);
    let work = tempfile::Builder::new().prefix("tinwright-image-").permissions(readable).tempdir();
    let work = work.context("making a temporary directory")?;
    let (root, raw, ids) = (work.path().join("root"), work.path().join("raw"), Ids::new());
    let step = |text: &str| eprintln!("{name}: {text}");
    step(&format!("installing packages of {suite} into {}: takes minutes", root.display()));
    system::install(options, suite, &root)?;
    step("setting up the system");
    system::set_up(options, &root, ids)?;
    step("making the disk image");
    make_disk(options, &root, &raw, ids, work.path())?;
    let origin = format!(
        "tinwright image build {}\nkernel: {}\nmetadata service: {}",
        options.release, options.kernel, options.metadata_url
    );
    step("compressing");
    let stored = Target::new(&options.files, name).store(&raw, &origin, &ProgressBar::hidden())?;
    let text = format!("{name}: built {stored}\n  root file system: partition 1, ext4");
    print_line(out, &text)
}

/// Makes the raw image of the system in `root`.
fn make_disk(
    options: &BuildOptions,
    root: &Path,
    raw: &Path,
    ids: Ids,
    work: &Path,
) -> anyhow::Result<()> {
    let layout = disk::Layout::new(options.size << 20);
    let core = system::grub_core(root, ids)?;
    disk::write_partition_table(raw, &layout)?;
    disk::write_esp(raw, &layout, root, ids, work)?;
    disk::write_root(raw, &layout, root, ids, work)?;
    let boot = root.join("usr/lib/grub/i386-pc/boot.img");
    let boot = std::fs::read(&boot).with_context(|| boot.display().to_string())?;
    bios::install(raw, &layout, &boot, &core)
}
