//! A node: a machine that boots the node flavour of the installation environment directly, without firmware and netboot.
//!
//! Its agent serves the ImageAPI over HTTP on the lab's network. A shell on its second serial port reads the tables of its kernel.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::SERVER;
use crate::lab::{Lab, wait};
use setup::run;

/// The node's address.
pub const ADDRESS: &str = "198.51.100.10";
/// The port of its ImageAPI.
const PORT: u16 = 8800;
/// Its memory, in MiB.
const MEMORY_MIB: &str = "1536";
/// Maximum time until its agent answers, on a busy host.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum time of a call; the agent answers within 28 s.
const CALL_TIMEOUT: &str = "40";
/// Maximum time of a command in its shell.
const SHELL_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds the node flavour of the environment. Returns the folder of kernel and initramfs.
pub fn osie() -> anyhow::Result<PathBuf> {
    let folder = setup::root().join("target/peers/osie");
    let mut build = Command::new(setup::program("tinwright"));
    build.args(["osie", "build", "--flavour", "node", "--output"]).arg(&folder);
    build.arg("--node-agent").arg(setup::program("tinwright-node"));
    build.arg("--cache").arg(setup::root().join("target/peers/kernel"));
    run(build.stdout(Stdio::null()))?;
    Ok(folder)
}

/// A running node. The lab ends it.
#[derive(Debug)]
pub struct Node {
    shell: UnixStream,
    /// Number of commands so far.
    commands: u64,
}

/// What attachments, mounts and containers change on the node: tables of its kernel, and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Mounts, without their numbers.
    pub mounts: String,
    /// Files of loop devices.
    pub loop_files: String,
    /// iSCSI sessions.
    pub iscsi_sessions: String,
    /// Mapped images of Ceph.
    pub rbd_devices: String,
    /// Mount points, and the directories of overlays.
    pub directories: String,
    /// Control groups.
    pub control_groups: String,
    /// Names of processes in PID namespaces of containers.
    pub processes: String,
}

impl Node {
    /// Boots the node in `lab`, and waits until its agent answers.
    pub fn boot(lab: &mut Lab) -> anyhow::Result<Self> {
        let osie = osie()?;
        lab.ip("tuntap add tap-node mode tap")?;
        lab.ip("link set tap-node master br0 up")?;
        let socket = lab.path("node.shell");
        let mut qemu = lab.command("qemu-system-x86_64");
        qemu.args("-accel tcg,thread=single -cpu max -nodefaults -no-reboot".split(' '));
        qemu.args(["-display", "none", "-m", MEMORY_MIB]);
        qemu.arg("-serial").arg(format!("file:{}", lab.path("node.serial").display()));
        qemu.arg("-serial").arg(format!("unix:{},server=on,wait=off", socket.display()));
        qemu.arg("-kernel").arg(osie.join("vmlinuz-node-x86_64"));
        qemu.arg("-initrd").arg(osie.join("initramfs-node-x86_64"));
        qemu.arg("-append").arg(command_line());
        qemu.args(["-netdev", "tap,id=net,ifname=tap-node,script=no,downscript=no"]);
        qemu.args(["-device", "virtio-net-pci,netdev=net,mac=52:54:00:00:00:10"]);
        lab.start("node", &mut qemu)?;
        let connected =
            wait("the node's serial port", SHELL_TIMEOUT, || UnixStream::connect(&socket).ok());
        let node = Self { shell: connected?, commands: 0 };
        node.wait_for_agent(lab)?;
        Ok(node)
    }

    /// Waits until the agent answers.
    pub fn wait_for_agent(&self, lab: &mut Lab) -> anyhow::Result<()> {
        let answered = wait("the node's agent", BOOT_TIMEOUT, || {
            if lab.has_ended("node").ok()? {
                return Some(false);
            }
            let answer = self.call(lab, "GET", "/container", None).ok()?;
            (answer.0 == 200).then_some(true)
        });
        anyhow::ensure!(answered?, "the node's QEMU ended: {}", lab.log("node"));
        Ok(())
    }

    /// Calls the node's ImageAPI with the path and query `target`. Returns HTTP status and body.
    pub fn call(
        &self,
        lab: &Lab,
        method: &str,
        target: &str,
        body: Option<&str>,
    ) -> anyhow::Result<(u16, String)> {
        let mut curl = lab.command("curl");
        curl.args(["-s", "--noproxy", "*", "-m", CALL_TIMEOUT, "-w", "\n%{http_code}"]);
        curl.args(["-X", method, &format!("http://{ADDRESS}:{PORT}/imageapi/v1{target}")]);
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/json", "--data-binary", body]);
        }
        let output = curl.output()?;
        anyhow::ensure!(output.status.success(), "{method} {target}: curl: {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// Returns the process id of the agent itself, not of its containers' supervisors.
    pub fn agent(&mut self) -> anyhow::Result<u32> {
        let line = "for it in $(pidof tinwright-node); do grep -q allow-insecure-http /proc/$it/cmdline && echo $it; done; true";
        let printed = self.shell(line)?;
        printed.trim().parse().with_context(|| format!("the agent's process ids: {printed:?}"))
    }

    /// Runs `line` in the node's shell. Returns what it prints; a status other than 0 is an error.
    pub fn shell(&mut self, line: &str) -> anyhow::Result<String> {
        self.commands += 1;
        let number = self.commands;
        // The terminal echoes the command: its marks differ from the printed ones.
        let framed =
            format!("echo \"=begin $(({number}))=\"; {line}; echo \"=end $(({number}))= $?=\"\n");
        self.shell.write_all(framed.as_bytes())?;
        let (begin, end) = (format!("=begin {number}=\r\n"), format!("=end {number}= "));
        let text = self.read_until(|text| text.split_once(&end)?.1.contains("=\r\n").then_some(()));
        let text = text.with_context(|| format!("in the node's shell: {line}"))?;
        let (_, printed) = text.split_once(&begin).context("no begin of the output")?;
        let (printed, status) = printed.split_once(&end).context("no end of the output")?;
        let printed = printed.replace('\r', "");
        anyhow::ensure!(status.starts_with("0="), "in the node's shell: {line}: {printed}{status}");
        Ok(printed)
    }

    /// Reads from the shell until `complete` finds all in the text.
    fn read_until(&mut self, complete: impl Fn(&str) -> Option<()>) -> anyhow::Result<String> {
        let until = Instant::now() + SHELL_TIMEOUT;
        self.shell.set_read_timeout(Some(Duration::from_secs(1)))?;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match self.shell.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the serial port was closed"),
                Ok(length) => bytes.extend(buffer.iter().take(length)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if complete(&text).is_some() {
                return Ok(text);
            }
            anyhow::ensure!(Instant::now() < until, "no complete output: {text}");
        }
    }

    /// Reads the kernel's tables.
    pub fn tables(&mut self) -> anyhow::Result<Tables> {
        Ok(Tables {
            mounts: self.shell("cut -d' ' -f3- /proc/1/mountinfo | sort")?,
            loop_files: self.shell("cat /sys/block/loop*/loop/backing_file 2>/dev/null; true")?,
            iscsi_sessions: self.shell("ls /sys/class/iscsi_session")?,
            rbd_devices: self.shell("ls /sys/bus/rbd/devices")?,
            directories: self.shell("ls /run/imageapi/mounts")?,
            control_groups: self.shell("find /sys/fs/cgroup -type d | sort")?,
            processes: self.shell(
                "for it in /proc/[0-9]*; do p=$(readlink $it/ns/pid) && [ \"$p\" != \"$(readlink /proc/1/ns/pid)\" ] && cat $it/comm; done; true",
            )?,
        })
    }
}

/// Returns the kernel's command line. The server's address is the router, as on a network with DHCP.
fn command_line() -> String {
    // On a busy host an emulated timer is late; a kernel that checks it stops.
    let quick = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check";
    let network = format!("ip={ADDRESS}::{SERVER}:255.255.255.0:node1::off");
    let flags = [
        "scheme=http",
        &format!("host={ADDRESS}"),
        &format!("port={PORT}"),
        // Only the lab reaches it.
        "allow-insecure-http",
    ];
    let flags: String = flags.iter().map(|flag| format!(" tinwright.node.{flag}")).collect();
    format!("{quick} {network} debug_shell=ttyS1{flags}")
}
