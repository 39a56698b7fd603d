//! Installs the packages and tools that tests need.
//!
//! Requires Debian 12 and Rust. Root's run prints and installs missing packages; other users get the command to run. Python tools
//! are installed below `target` only. [`package`] packs the programs for other machines, and [`former`] builds those of former commits. [`mod@pages`] reads the documents, and [`mod@reference`]
//! compares pages with what the program makes.

pub mod environment;
pub mod former;
pub mod package;
pub mod pages;
pub mod reference;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Debian packages for the virtual rack without its tests: parts of the machines, and what builds them.
const RACK_PACKAGES: &[&str] = &[
    "binutils",
    "busybox-static",
    "ca-certificates",
    "cpio",
    "curl",
    "dosfstools",
    "e2fsprogs",
    "extlinux",
    "fdisk",
    "iproute2",
    "ipxe",
    "ipxe-qemu",
    "kmod",
    "libvirt-clients",
    "libvirt-daemon-system",
    "mmdebstrap",
    "mount",
    "mtools",
    "openssh-client",
    "openssl",
    "ovmf",
    "python3",
    "python3-libvirt",
    "python3-venv",
    "qemu-system-x86",
    "syslinux-common",
    "systemd-boot-efi",
    "util-linux",
    "zstd",
];

/// Further Debian packages for tests: their peers.
const PACKAGES: &[&str] = &[
    "apache2-utils",
    "atftp",
    "bmap-tools",
    "bsdutils",
    "bzip2",
    "dhcping",
    "dnsmasq-base",
    "docker-registry",
    "docker.io",
    "etcd-client",
    "etcd-server",
    "gzip",
    "ifupdown",
    "ipmitool",
    "isc-dhcp-client",
    "isc-dhcp-relay",
    "kea-admin",
    "libwrap0",
    "minisign",
    "ndisc6",
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "nftables",
    "open-iscsi",
    "openipmi",
    "prometheus",
    "python3-tuspy",
    "qemu-utils",
    "skopeo",
    "squashfs-tools",
    "swtpm",
    "swtpm-tools",
    "systemd",
    "tcpdump",
    "tftp-hpa",
    "tgt",
    "uidmap",
    "xorriso",
    "xz-utils",
    "zip",
];

/// Debian packages of the long tests only: a Ceph cluster, and its S3 server.
const LONG_PACKAGES: &[&str] = &["ceph-base", "ceph-common", "ceph-mon", "ceph-osd", "radosgw"];

/// The tools from PyPI: the linter of the contract, as its project publishes it, a client of gRPC that uses reflection, and two that
/// read OpenAPI documents, one to check them and one to check a server against them.
const PYTHON_TOOLS: [&str; 5] = [
    "buf-bin==1.75.0",
    "grpcio==1.85.1",
    "grpcio-reflection==1.85.1",
    "openapi-spec-validator==0.9.0",
    "schemathesis==4.32.5",
];

/// Installs the packages of the virtual rack that are missing.
pub fn rack_packages() -> anyhow::Result<()> {
    install(RACK_PACKAGES)
}

/// Installs the packages of the virtual rack and of all tests that are missing.
pub fn packages() -> anyhow::Result<()> {
    install(&[RACK_PACKAGES, PACKAGES].concat())
}

/// Installs the packages of the long tests that are missing.
pub fn long_packages() -> anyhow::Result<()> {
    install(LONG_PACKAGES)
}

/// Installs what packing the programs needs besides Debian's essential packages.
pub fn packing_packages() -> anyhow::Result<()> {
    install(&["binutils"])
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.iter().map(|package| **package).collect::<Vec<_>>().join(" ");
    let install = format!("apt-get install -y --no-install-recommends {list}");
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "packages are missing: run `sudo apt-get update && sudo {install}`"
    );
    eprintln!("cargo rack: installing Debian packages: {list}");
    run(Command::new("apt-get").args(["-qq", "update"]))?;
    let mut apt = Command::new("sh");
    apt.args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    let _policy = NoDaemonStart::install()?;
    run(&mut apt)
}

/// The program by which Debian decides if a newly installed daemon starts (invoke-rc.d(8)).
const POLICY_PATH: &str = "/usr/sbin/policy-rc.d";
/// A policy that starts no daemon, with a mark that this program wrote it.
const POLICY_TEXT: &str = "#!/bin/sh\n# cargo rack installs packages\nexit 101\n";

/// Keeps newly installed daemons from starting until drop. Tests start their own daemons in network namespaces.
struct NoDaemonStart;

impl NoDaemonStart {
    /// Writes the policy. Returns `None` if the machine has its own policy.
    fn install() -> anyhow::Result<Option<Self>> {
        let path = Path::new(POLICY_PATH);
        // A killed run may have left our policy behind.
        if path.exists() && std::fs::read_to_string(path)? != POLICY_TEXT {
            return Ok(None);
        }
        std::fs::write(path, POLICY_TEXT).with_context(|| format!("writing {POLICY_PATH}"))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
        Ok(Some(Self))
    }
}

impl Drop for NoDaemonStart {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(POLICY_PATH) {
            eprintln!(
                "cargo rack: removing {POLICY_PATH}, which keeps daemons from starting: {error}"
            );
        }
    }
}

/// Runs the script at `path` in the work tree, which downloads peers. Returns their folder.
pub fn peers(path: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers");
    run(Command::new("sh").arg(root().join(path)).arg(&folder))?;
    Ok(folder)
}

/// Returns the folder of the images that the virtual rack installs; builds missing images.
pub fn images() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers/rack");
    let script = root().join("tests/rack/assets/image.sh");
    // In a mount namespace of its own: a test that copies the host's mounts meanwhile would keep the image mounted, and its
    // content would change after it was packed.
    let mut build = Command::new("unshare");
    build.args(["--mount", "--propagation", "private", "sh"]).arg(script).arg(&folder);
    run(&mut build)?;
    Ok(folder)
}

/// Returns the path of a program of the workspace, built in the same profile as this one.
pub fn program(name: &str) -> PathBuf {
    let current = std::env::current_exe().unwrap_or_default();
    // Tests are built into `deps`, a folder below the programs.
    let folders = current.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| name.into())
}

/// Installs missing Python tools. Returns the folder of their programs.
pub fn tools() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers/tools");
    let (programs, mark) = (folder.join("bin"), folder.join("complete"));
    std::fs::create_dir_all(&folder)?;
    // Tests and checks may ask for them at the same time.
    let lock = std::fs::File::create(folder.with_extension("lock"))?;
    lock.lock()?;
    // The mark names the installed packages, and is written last.
    let wanted = PYTHON_TOOLS.join(" ");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(programs);
    }
    eprintln!("cargo rack: installing {wanted} below target");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(programs.join("pip"));
    // Python compiles what it loads, at its first start.
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
    run(pip.args(PYTHON_TOOLS))?;
    std::fs::write(&mark, wanted)?;
    Ok(programs)
}

fn is_installed(package: &str) -> bool {
    let state = Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output();
    state.is_ok_and(|state| state.stdout == b"install ok installed")
}

/// Returns the root of the work tree.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Runs `command`. Fails unless it succeeds.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|a| a.to_string_lossy().into_owned());
    let line = std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ");
    let status = command.status().with_context(|| format!("starting `{line}`"))?;
    anyhow::ensure!(status.success(), "`{line}` failed: {status}");
    Ok(())
}
