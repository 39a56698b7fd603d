//! A temporary network: a namespace with the server's bridge, and two that are connected to it.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Network namespaces. Dropping it removes them and ends the programs in them.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
}

/// A host, which is a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Our server, with the bridge br0.
    Server,
    /// The machine, with the interface v1.
    Client,
    /// Another host at the bridge, with the interface w1: another DHCP server, or a relay.
    Other,
}

static MADE: AtomicU32 = AtomicU32::new(0);

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Network {
    /// Creates the namespaces, with the server at 198.51.100.1.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests create network namespaces: run them as root"
        );
        let name = format!("nb-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let network = Self { name };
        let [server, client, other] =
            [Host::Server, Host::Client, Host::Other].map(|host| network.namespace(host));
        for namespace in [&server, &client, &other] {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
        }
        for line in [
            "link add br0 type bridge stp_state 0 forward_delay 0",
            "addr add 198.51.100.1/24 dev br0",
            "link set br0 up",
            "tuntap add tap0 mode tap",
            "link set tap0 master br0 up",
            &format!("link add v0 type veth peer name v1 netns {client}"),
            "link set v0 master br0 up",
            &format!("link add w0 type veth peer name w1 netns {other}"),
            "link set w0 master br0 up",
        ] {
            ip(&format!("-n {server} {line}"));
        }
        network.set(Host::Client, "link set v1 address 52:54:00:00:00:02 up");
        network.set(Host::Other, "link set w1 up");
        network
    }

    /// Moves the machine behind the other host: that is 198.51.100.254 here and 192.0.2.254 there, where its r1 is.
    pub(crate) fn move_behind_other(&self) {
        let [client, other] = [Host::Client, Host::Other].map(|host| self.namespace(host));
        ip(&format!("-n {other} link add r1 type veth peer name v2 netns {client}"));
        for line in [
            "addr add 198.51.100.254/24 dev w1",
            "addr add 192.0.2.254/24 dev r1",
            "link set r1 up",
        ] {
            self.set(Host::Other, line);
        }
        self.set(Host::Client, "link del v1");
        self.set(Host::Client, "link set v2 name v1 address 52:54:00:00:00:02");
        self.set(Host::Client, "link set v1 up");
        self.set(Host::Server, "route add 192.0.2.0/24 via 198.51.100.254");
    }

    /// Runs `ip` with the arguments in `line` on `host`.
    pub(crate) fn set(&self, host: Host, line: &str) {
        ip(&format!("-n {} {line}", self.namespace(host)));
    }

    fn namespace(&self, host: Host) -> String {
        let end = match host {
            Host::Server => "s",
            Host::Client => "c",
            Host::Other => "o",
        };
        format!("{}{end}", self.name)
    }

    /// Moves the calling thread to `host`.
    pub(crate) fn enter(&self, host: Host) {
        let path = Path::new("/run/netns").join(self.namespace(host));
        let namespace = fs::File::open(path).expect("the namespace");
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network).expect("to enter it");
    }

    fn command(&self, host: Host, program: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).args(program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a program on `host`, for a minute at most.
    pub(crate) fn run(&self, host: Host, program: &[&str]) -> Output {
        let bounded = [&["timeout", "60"], program].concat();
        self.command(host, &bounded).output().expect("a program")
    }

    /// Starts a program on `host` that ends with the network.
    pub(crate) fn start(&self, host: Host, program: &[&str], to: Stdio, errors: Stdio) -> Child {
        let mut command = self.command(host, program);
        command.stdin(Stdio::null()).stdout(to).stderr(errors).spawn().expect("a program")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in [Host::Client, Host::Other, Host::Server] {
            let namespace = self.namespace(host);
            let pids = Command::new("ip").args(["netns", "pids", &namespace]).output();
            let own = std::process::id().to_string();
            for pid in String::from_utf8_lossy(&pids.expect("ip").stdout).lines() {
                // The server's thread belongs to this process.
                if pid != own {
                    let _ended_already = Command::new("kill").args(["-9", pid]).output();
                }
            }
            let _may_not_exist = Command::new("ip").args(["netns", "del", &namespace]).output();
        }
    }
}
