//! Builds the installation environment: a kernel, and an initramfs with the worker in it, or with the node agent.
//!
//! ```text
//! apt ─▶ kernel ─▶ modules and their load order ──────┐
//! busybox, worker or node agent, certificates, ───────┴─▶ image ─▶ archive ─zstd─▶ initramfs-x86_64, or initramfs-node-x86_64
//! our scripts; for nodes open-iscsi
//! ```
//!
//! - [`flavour`]: what runs on the machine: the worker, which installs systems, or the node agent.
//! - [`kernel`]: Debian's package, downloaded and unpacked, not installed.
//! - [`module_groups`]: the modules to include, with reasons; [`modules`]: their dependencies and load order.
//! - [`image`]: the files of the initramfs; [`archive`]: their cpio archive; [`mod@program`]: loaders and libraries of programs.
//! - `setup.sh`, `udhcpc.sh`: set up hardware and network on the machine; `init.sh`: then runs the worker.
//! - `move.sh`, `node.sh`: the same for a node: move the system to a tmpfs, and run the node agent.
//!
//! Builds are reproducible: equal inputs give equal bytes, at any time and on any host.

mod archive;
mod flavour;
mod image;
mod kernel;
mod module_groups;
mod modules;
mod program;

use std::path::PathBuf;

use anyhow::Context as _;
use flavour::Flavour;
use image::{Initramfs, Inputs, Published};
use image_signature::PublicKeys;
use kernel::Kernel;

use crate::input;

/// Commands on the installation environment.
#[derive(Debug, clap::Subcommand)]
pub enum OsieCommand {
    /// Build kernel and initramfs for netboot to serve; needs apt's package lists and busybox-static, and open-iscsi for nodes
    Build(BuildOptions),
}

/// Options of a build.
#[derive(Debug, clap::Args)]
pub struct BuildOptions {
    /// Write vmlinuz-ARCHITECTURE and initramfs-ARCHITECTURE to this directory; for nodes vmlinuz-node-ARCHITECTURE and
    /// initramfs-node-ARCHITECTURE
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Build this flavour of the environment
    #[arg(long, value_enum, default_value_t)]
    flavour: Flavour,
    /// Include this worker, which must be linked statically [default: tinwright-worker beside this program]
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
    /// Include this node agent, which must be linked statically [default: tinwright-node beside this program]
    #[arg(long, value_name = "FILE", conflicts_with = "worker")]
    node_agent: Option<PathBuf>,
    /// Use the kernel in this package of Debian [default: the newest linux-image-6.1.0-NN]
    #[arg(long, value_name = "NAME", conflicts_with = "kernel_root")]
    kernel_package: Option<String>,
    /// Use this unpacked kernel package instead; depmod must have been run
    #[arg(long, value_name = "DIR")]
    kernel_root: Option<PathBuf>,
    /// Install only images that the key in this file of minisign signed; may be repeated
    #[arg(long = "image-key", value_name = "FILE")]
    image_keys: Vec<PathBuf>,
    /// Build for machines with this architecture
    #[arg(long, default_value = "x86_64", value_parser = ["x86_64"])]
    architecture: String,
    /// Cache unpacked kernel packages in this directory [default: tinwright in the user's cache, or /var/cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Runs `command`, and prints the files that it built.
pub fn run(command: OsieCommand) -> anyhow::Result<()> {
    let OsieCommand::Build(options) = command;
    let inputs = inputs(&options)?;
    let initramfs = inputs.initramfs()?;
    let files = publish(&options, &inputs, &initramfs)?;
    println!("kernel {}, {} modules", inputs.kernel.version, initramfs.modules);
    for Published { path, size, sha256 } in files {
        let megabytes = size as f64 / 1e6;
        println!("{}  {megabytes:.1} MB  sha256 {sha256}", path.display());
    }
    for (module, reason) in initramfs.missing_modules() {
        println!("without {module} ({reason}): not in this kernel");
    }
    if let Ok(keys) = PublicKeys::parse(&inputs.image_keys) {
        let ids: Vec<_> = keys.ids().map(|id| id.to_string()).collect();
        println!("images need a signature of {}", ids.join(" or "));
    }
    if !initramfs.authorities {
        println!("without public authorities: {} is missing", inputs.authorities.display());
    }
    if !initramfs.ext4 {
        println!("without ext3 and ext4: {} is missing", inputs.mke2fs.display());
    }
    Ok(())
}

fn inputs(options: &BuildOptions) -> anyhow::Result<Inputs> {
    let program = program(options)?;
    let kernel = match &options.kernel_root {
        Some(root) => Kernel::at(root)?,
        None => {
            let default =
                || crate::base_directory("/var/cache", "XDG_CACHE_HOME", ".cache", "--cache");
            let cache = options.cache.clone().map_or_else(default, Ok)?;
            Kernel::fetch(options.kernel_package.as_deref(), &cache)?
        }
    };
    let authorities = "/etc/ssl/certs/ca-certificates.crt".into();
    let (busybox, mke2fs) = ("/bin/busybox".into(), "/usr/sbin/mke2fs".into());
    let (flavour, open_iscsi) = (options.flavour, "/usr/sbin".into());
    let image_keys = image_keys(options)?;
    Ok(Inputs { flavour, kernel, program, busybox, authorities, mke2fs, open_iscsi, image_keys })
}

/// Returns the files of the public keys, one after another.
fn image_keys(options: &BuildOptions) -> anyhow::Result<String> {
    let is_worker = options.flavour == Flavour::Install;
    anyhow::ensure!(
        is_worker || options.image_keys.is_empty(),
        "--image-key: nodes install no images"
    );
    let mut keys = String::new();
    for path in &options.image_keys {
        let text = input::text(path)?;
        PublicKeys::parse(&text).with_context(|| path.display().to_string())?;
        keys.push_str(text.trim_end());
        keys.push('\n');
    }
    Ok(keys)
}

/// Publishes both files, each atomically. A machine that fetches one before and one after finds no modules for its kernel,
/// prints that, and has to boot again.
fn publish(
    options: &BuildOptions,
    inputs: &Inputs,
    initramfs: &Initramfs,
) -> anyhow::Result<[Published; 2]> {
    let suffix = format!("{}{}", options.flavour.infix(), options.architecture);
    let path = |name: &str| options.output.join(format!("{name}-{suffix}"));
    let image = &inputs.kernel.image;
    let kernel = std::fs::read(image).with_context(|| format!("reading {}", image.display()))?;
    let initramfs = image::publish(path("initramfs"), &initramfs.packed)?;
    Ok([image::publish(path("vmlinuz"), &kernel)?, initramfs])
}

/// Returns the program for the flavour.
fn program(options: &BuildOptions) -> anyhow::Result<PathBuf> {
    let BuildOptions { flavour, worker, node_agent, .. } = options;
    let (own, other) = match flavour {
        Flavour::Install => (worker, node_agent),
        Flavour::Node => (node_agent, worker),
    };
    let option = flavour.option();
    anyhow::ensure!(other.is_none(), "an image of this flavour has another program: give {option}");
    if let Some(program) = own {
        anyhow::ensure!(program.exists(), "{option} {}: there is no such file", program.display());
        return Ok(program.clone());
    }
    let current = std::env::current_exe().context("finding this program")?;
    let program = current.with_file_name(flavour.program());
    anyhow::ensure!(program.exists(), "there is no {}: give {option}", program.display());
    Ok(program)
}

#[cfg(test)]
mod tests;
