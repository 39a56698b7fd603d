//! A node: a machine that boots the node flavour of the installation environment directly, without firmware and netboot.
//!
//! Its agent serves the ImageAPI over HTTP on the lab's network. A shell on its second serial port reads the tables of its kernel.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::SERVER;
use crate::lab::{Lab, wait};
use crate::shell::Shell;
use setup::environment::Environment;

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

/// Builds the node flavour of the environment if the agent has changed. Returns the folder of kernel and initramfs.
pub fn osie() -> anyhow::Result<PathBuf> {
    Environment::Node.build()
}

/// A running node. The lab ends it.
#[derive(Debug)]
pub struct Node {
    /// Its shell.
    pub shell: Shell,
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
        let node = Self { shell: Shell::connect(&socket)? };
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
        let printed = self.shell.run(line)?;
        printed.trim().parse().with_context(|| format!("the agent's process ids: {printed:?}"))
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
