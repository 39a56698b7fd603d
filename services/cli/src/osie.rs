//! The environment that machines are provisioned from: a kernel, and an initramfs with the worker in it.
//!
//! ```text
//! apt ─▶ kernel ─▶ modules: which, and after what ┐
//! busybox, worker, certificates, our scripts ─────┴─▶ image ─▶ archive ─zstd─▶ initramfs-x86_64
//! ```
//!
//! - [`kernel`]: Debian's package, fetched and unpacked, not installed.
//! - [`choice`]: the modules wanted, with reasons; [`modules`]: all they need, and in which order.
//! - [`image`]: the files together; [`archive`]: as the kernel reads them; [`program`]: what can run there.
//! - `init.sh`, `udhcpc.sh`: what the machine does until the worker takes over.
//!
//! The same parts give the same bytes, wherever and whenever they are put together: who doubts an image builds it again.

mod archive;
mod choice;
mod image;
mod kernel;
mod modules;
mod program;

use std::path::PathBuf;

use anyhow::Context as _;
use image::{Initramfs, Made, Parts};
use kernel::Kernel;

/// What can be done with the environment.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make its kernel and initramfs, for netboot to serve; needs apt's package lists and busybox-static
    Build(Build),
}

/// How it is made.
#[derive(Debug, clap::Args)]
pub struct Build {
    /// Directory for vmlinuz-ARCHITECTURE and initramfs-ARCHITECTURE
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// The worker, linked statically [default: tinwright-worker beside this program]
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
    /// Debian's package with the kernel [default: the newest linux-image-6.1.0-NN]
    #[arg(long, value_name = "NAME", conflicts_with = "kernel_root")]
    kernel_package: Option<String>,
    /// Unpacked kernel package to take instead, depmod run
    #[arg(long, value_name = "DIR")]
    kernel_root: Option<PathBuf>,
    /// Machines it is for
    #[arg(long, default_value = "x86_64")]
    architecture: Architecture,
    /// Directory that keeps unpacked kernel packages [default: tinwright in the user's cache, or /var/cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Processors we make it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// 64-bit PCs
    #[value(name = "x86_64")]
    X86_64,
}

impl Architecture {
    /// As in the names of the files that netboot serves.
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
        }
    }

    /// As Debian says.
    fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
        }
    }
}

/// Carries out `command`, and prints what came of it.
pub fn run(command: Command) -> anyhow::Result<()> {
    let Command::Build(build) = command;
    let parts = parts(&build)?;
    let initramfs = parts.initramfs()?;
    let files = write(&build, &parts, &initramfs)?;
    println!("kernel {}, {} modules", parts.kernel.version, initramfs.modules);
    for Made { path, size, sha256 } in files {
        println!(
            "{}  {}.{} MB  sha256 {sha256}",
            path.display(),
            size / 1_000_000,
            size / 100_000 % 10
        );
    }
    for (module, reason) in initramfs.lacks() {
        println!("without {module} ({reason}): this kernel has none");
    }
    if !initramfs.authorities {
        println!("without public authorities: {} is not there", parts.authorities.display());
    }
    if !initramfs.ext4 {
        println!("without ext3 and ext4: {} is not there", parts.mke2fs.display());
    }
    Ok(())
}

fn parts(build: &Build) -> anyhow::Result<Parts> {
    let worker = match &build.worker {
        Some(worker) => worker.clone(),
        None => beside_us()?,
    };
    let kernel = match &build.kernel_root {
        Some(root) => Kernel::at(root)?,
        None => {
            let cache = build.cache.clone().map_or_else(cache, Ok)?;
            Kernel::fetch(build.kernel_package.as_deref(), build.architecture, &cache)?
        }
    };
    let authorities = "/etc/ssl/certs/ca-certificates.crt".into();
    let (busybox, mke2fs) = ("/bin/busybox".into(), "/usr/sbin/mke2fs".into());
    Ok(Parts { kernel, worker, busybox, authorities, mke2fs })
}

/// Writes both files, each in one step. A machine that fetches one before and one after finds no modules for its kernel,
/// says so, and boots again when told.
fn write(build: &Build, parts: &Parts, initramfs: &Initramfs) -> anyhow::Result<[Made; 2]> {
    let place = |name: &str| build.output.join(format!("{name}-{}", build.architecture.name()));
    let image = &parts.kernel.image;
    let kernel = std::fs::read(image).with_context(|| format!("reading {}", image.display()))?;
    let initramfs = image::publish(place("initramfs"), &initramfs.packed)?;
    Ok([image::publish(place("vmlinuz"), &kernel)?, initramfs])
}

fn beside_us() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("finding this program")?;
    let worker = us.with_file_name("tinwright-worker");
    anyhow::ensure!(worker.exists(), "there is no {}: give --worker", worker.display());
    Ok(worker)
}

/// Where unpacked packages are kept if nobody says.
fn cache() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/tinwright"));
    }
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let caches =
        own.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set: give --cache")?;
    Ok(caches.join("tinwright"))
}

#[cfg(test)]
mod tests;
