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

use self::disk::DiskImage;
use super::interrupt::Interrupt;
use super::stored::{DirectoryLock, StoredImage, Target};
use super::{BuildOptions, programs};
use crate::output::print_line;

/// The release that is built unless another one is named.
pub(super) const DEBIAN_12: &str = "debian-12";

/// Names of releases, and what Debian's archive calls them.
const RELEASES: [(&str, &str); 2] = [(DEBIAN_12, "bookworm"), ("debian-13", "trixie")];

/// The programs that a build runs on this host.
const PROGRAMS: [programs::Program; 7] = [
    ("unshare", "util-linux"),
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

/// Builds the image in `options`, and prints where it is stored. A signal interrupts it: its programs are ended, and its files are removed.
pub(super) async fn run(options: &BuildOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    anyhow::ensure!(is_root, "building an image needs the permissions of root: use sudo");
    programs::require(&PROGRAMS)?;
    let suite = RELEASES.iter().find(|(name, _)| *name == options.release);
    let (_, suite) = suite.with_context(|| format!("no release {}", options.release))?;
    let name = options.name.as_deref().unwrap_or(&options.release);
    let _lock = DirectoryLock::take(&options.files)?;
    let mut interrupt = Interrupt::listen()?;
    // The user of apt in the new system reads below this directory.
    let readable = std::fs::Permissions::from_mode(0o755);
    let work = tempfile::Builder::new().prefix("tinwright-image-").permissions(readable).tempdir();
    let work = work.context("making a temporary directory")?;
    let built = Build { options, suite, name, work: work.path() }.run(&mut interrupt).await;
    let path = work.path().to_owned();
    if let Err(error) = work.close() {
        eprintln!("{name}: cannot remove {}: {error}", path.display());
    }
    let text = format!("{name}: built {}\n  root file system: partition 1, ext4", built?);
    print_line(out, &text)
}

/// The build of one image.
struct Build<'a> {
    options: &'a BuildOptions,
    /// The release, as Debian's archive calls it.
    suite: &'a str,
    /// The name of the image.
    name: &'a str,
    /// An empty directory for the system and the raw image.
    work: &'a Path,
}

impl Build<'_> {
    /// Builds the image, and stores it.
    async fn run(&self, interrupt: &mut Interrupt) -> anyhow::Result<StoredImage> {
        let Self { options, suite, name, work } = *self;
        let (root, raw, ids) = (work.join("root"), work.join("raw"), Ids::new());
        self.print(&format!(
            "installing packages of {suite} into {}: takes minutes",
            root.display()
        ));
        system::install(options, suite, &root, interrupt).await?;
        self.print("setting up the system");
        system::set_up(options, &root, ids)?;
        self.print("making the disk image");
        let layout = disk::Layout::new(options.size << 20);
        let image = DiskImage { raw: &raw, layout, root: &root, ids, work };
        make_disk(&image, interrupt).await?;
        let origin = format!(
            "tinwright image build {}\nkernel: {}\nmetadata service: {}",
            options.release, options.kernel, options.metadata_url
        );
        self.print("compressing");
        let (target, hidden) = (Target::new(&options.files, name), ProgressBar::hidden());
        interrupt.until(target.store(&raw, &origin, &hidden)).await?
    }

    /// Prints the next step.
    fn print(&self, step: &str) {
        eprintln!("{}: {step}", self.name);
    }
}

/// Makes the raw image of a system that is set up.
async fn make_disk(image: &DiskImage<'_>, interrupt: &mut Interrupt) -> anyhow::Result<()> {
    let core = system::grub_core(image.root, image.ids, interrupt).await?;
    image.write_partition_table()?;
    image.write_esp(interrupt).await?;
    image.write_root(interrupt).await?;
    let boot = image.root.join("usr/lib/grub/i386-pc/boot.img");
    let boot = std::fs::read(&boot).with_context(|| boot.display().to_string())?;
    bios::install(image.raw, &image.layout, &boot, &core)
}
