//! The packages and tools that tests need, and their installation.
//!
//! Debian 12 is taken for granted, and so is the Rust that runs this. Packages are installed only by root, who is told
//! first; anybody else is told the exact command. Python tools go into a folder below `target`, and nowhere else.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Debian packages that tests run as peers of ours, or that machines are made of.
const PACKAGES: &[&str] = &[
    "atftp",
    "binutils",
    "busybox-static",
    "bsdutils",
    "bzip2",
    "ca-certificates",
    "cpio",
    "curl",
    "dhcping",
    "dnsmasq-base",
    "dosfstools",
    "e2fsprogs",
    "etcd-client",
    "etcd-server",
    "extlinux",
    "fdisk",
    "gcc",
    "gzip",
    "iproute2",
    "ipxe",
    "ipxe-qemu",
    "isc-dhcp-client",
    "isc-dhcp-relay",
    "kea-admin",
    "kmod",
    "libvirt-clients",
    "libvirt-daemon-system",
    "libvirt-dev",
    "libwrap0",
    "mmdebstrap",
    "mount",
    "mtools",
    "ndisc6",
    "nftables",
    "openssl",
    "ovmf",
    "pkg-config",
    "python3",
    "python3-dev",
    "python3-venv",
    "qemu-system-x86",
    "syslinux-common",
    "systemd-boot-efi",
    "tcpdump",
    "tftp-hpa",
    "uidmap",
    "util-linux",
    "xorriso",
    "xz-utils",
    "zstd",
];

/// The linter of the contract, as its own project packs it.
const BUF: &str = "buf-bin==1.75.0";

/// Installs the packages that are missing.
pub fn packages() -> anyhow::Result<()> {
    let missing: Vec<_> = PACKAGES.iter().filter(|package| !is_installed(package)).collect();
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
    let _silent = Silent::begin()?;
    run(&mut apt)
}

/// The policy by which Debian decides if a newly installed daemon starts (invoke-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// The policy that starts none, with a mark that it is ours.
const NONE: &str = "#!/bin/sh\n# cargo rack installs packages\nexit 101\n";

/// While it lives, no daemon starts that is installed: tests start their own, in networks of their own.
struct Silent;

impl Silent {
    /// Begins it, unless the machine has a policy of its own.
    fn begin() -> anyhow::Result<Option<Self>> {
        let path = Path::new(POLICY);
        // Ours may be left over from an end without warning.
        if path.exists() && std::fs::read_to_string(path)? != NONE {
            return Ok(None);
        }
        std::fs::write(path, NONE).with_context(|| format!("writing {POLICY}"))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
        Ok(Some(Self))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(POLICY) {
            eprintln!("cargo rack: {POLICY} stays, and keeps daemons from starting: {error}");
        }
    }
}

/// Runs the script at `path` in the work tree, which fetches peers of ours. Answers the folder where they are.
pub fn peers(path: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers");
    run(Command::new("sh").arg(root().join(path)).arg(&folder))?;
    Ok(folder)
}

/// A program of the workspace, as the build that this one belongs to made it.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    // Tests are in a folder below the programs'.
    let folders = own.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| name.into())
}

/// Installs the Python tools that are missing. Answers the folder of their programs.
pub fn tools() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/peers/tools");
    let (programs, mark) = (folder.join("bin"), folder.join("complete"));
    // The mark holds what was installed, and is written last.
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == BUF) {
        return Ok(programs);
    }
    eprintln!("cargo rack: installing {BUF} below target");
    std::fs::create_dir_all(&folder)?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = ["install", "--quiet", "--disable-pip-version-check", BUF];
    run(Command::new(programs.join("pip")).args(pip))?;
    std::fs::write(&mark, BUF)?;
    Ok(programs)
}

fn is_installed(package: &str) -> bool {
    let state = Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output();
    state.is_ok_and(|state| state.stdout == b"install ok installed")
}

/// The top of the work tree.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Runs `command` to its end, which has to be a good one.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|a| a.to_string_lossy().into_owned());
    let line = std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ");
    let status = command.status().with_context(|| format!("starting `{line}`"))?;
    anyhow::ensure!(status.success(), "`{line}` failed: {status}");
    Ok(())
}
