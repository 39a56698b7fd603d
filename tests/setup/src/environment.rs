//! The in-memory environments of workers and of nodes, for machines of tests.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::{program, root, run};

/// Debian's package that depends on its newest kernel for virtual machines. An emulated processor unpacks and starts it in a
/// third of the time that the kernel for all hardware takes. The tests of documents build the
/// environment with the latter.
const KERNEL: &str = "linux-image-cloud-amd64";

/// A flavour of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Runs the worker, which installs systems.
    Worker,
    /// Runs the agent of a node.
    Node,
}

impl Environment {
    /// Builds kernel and initramfs, unless those of the last build have the same programs. Returns
    /// their folder.
    pub fn build(self) -> anyhow::Result<PathBuf> {
        let folder = root().join("target/peers/osie");
        fs::create_dir_all(&folder)?;
        let (name, flavour, option, infix) = match self {
            Self::Worker => ("tinwright-worker", "install", "--worker", ""),
            Self::Node => ("tinwright-node", "node", "--node-agent", "node-"),
        };
        // Tests of several processes use it.
        let lock = File::create(folder.join(format!("{flavour}.lock")))?;
        lock.lock()?;
        // Of the programs, of Debian's parts of the environment, and of its kernels.
        let parts = ["/bin/busybox", "/etc/ssl/certs/ca-certificates.crt", "/var/lib/apt/lists"];
        let programs = [program("tinwright"), program(name)].into_iter();
        let versions: Vec<_> =
            programs.chain(parts.map(PathBuf::from)).map(|path| version(&path)).collect();
        let versions = format!("{KERNEL} {}", versions.join(" "));
        let stamp = folder.join(format!("{flavour}.programs"));
        let is_complete = ["vmlinuz", "initramfs"]
            .iter()
            .all(|name| folder.join(format!("{name}-{infix}x86_64")).exists());
        if is_complete && fs::read_to_string(&stamp).is_ok_and(|built| built == versions) {
            return Ok(folder);
        }
        // A build that is interrupted may leave files of two builds.
        if stamp.exists() {
            fs::remove_file(&stamp)?;
        }
        // Emulated machines fetch and unpack it.
        let stripped = folder.join(name);
        run(Command::new("strip").arg("-o").arg(&stripped).arg(program(name)))?;
        let mut build = command(&folder)?;
        run(build.args(["--flavour", flavour, option]).arg(&stripped))?;
        fs::write(stamp, versions)?;
        Ok(folder)
    }
}

/// Builds the environment of workers into `folder`. They install only images that the public key of
/// minisign in the file `key` signed.
pub fn build_for_key(folder: &Path, key: &Path) -> anyhow::Result<()> {
    let stripped = Environment::Worker.build()?.join("tinwright-worker");
    run(command(folder)?.arg("--worker").arg(stripped).arg("--image-key").arg(key))
}

/// Returns the command that builds an environment into `folder`.
fn command(folder: &Path) -> anyhow::Result<Command> {
    let mut build = Command::new(program("tinwright"));
    build.args(["osie", "build", "--kernel-package", &kernel_package()?]);
    build.arg("--cache").arg(root().join("target/peers/kernel"));
    build.arg("--output").arg(folder).stdout(Stdio::null());
    Ok(build)
}

/// Returns the newest package of the kernel that apt knows.
fn kernel_package() -> anyhow::Result<String> {
    let output = Command::new("apt-cache").args(["depends", "--important", KERNEL]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    package.map(str::to_owned).with_context(|| format!("{KERNEL}: no dependency: {text}"))
}

/// Returns what differs between two versions of the file at `path`; empty if there is none.
fn version(path: &Path) -> String {
    let describe = |it: Metadata| format!("{} {}.{}", it.len(), it.mtime(), it.mtime_nsec());
    fs::metadata(path).map_or_else(|_| String::new(), describe)
}
