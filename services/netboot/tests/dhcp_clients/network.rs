//! A throw-away network: a namespace with the server's bridge, and others that are plugged in to it.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces that are gone when this is dropped, and all that lived in them.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
}

/// Where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where our server is, at the bridge br0.
    Server,
    /// A machine, with the interface v1.
    Client,
    /// Another host at the bridge, with the interface w1: somebody's DHCP server, or a relay.
    Other,
}

static MADE: AtomicU32 = AtomicU32::new(0);

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Network {
    /// The server at 198.51.100.1 and the machine, joined.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests make network namespaces: run them as root"
        );
        let name = format!("nb-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let network = Self { name };
        let [server, client, other] =
            [Place::Server, Place::Client, Place::Other].map(|place| network.namespace(place));
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
        network.set(Place::Client, "link set v1 address 52:54:00:00:00:02 up");
        network.set(Place::Other, "link set w1 up");
        network
    }

    /// Moves the machine behind the other host: that is 198.51.100.254 here and 192.0.2.254 there, where its r1 is.
    pub(crate) fn move_behind_other(&self) {
        let [client, other] = [Place::Client, Place::Other].map(|place| self.namespace(place));
        ip(&format!("-n {other} link add r1 type veth peer name v2 netns {client}"));
        for line in [
            "addr add 198.51.100.254/24 dev w1",
            "addr add 192.0.2.254/24 dev r1",
            "link set r1 up",
        ] {
            self.set(Place::Other, line);
        }
        self.set(Place::Client, "link del v1");
        self.set(Place::Client, "link set v2 name v1 address 52:54:00:00:00:02");
        self.set(Place::Client, "link set v1 up");
        self.set(Place::Server, "route add 192.0.2.0/24 via 198.51.100.254");
    }

    /// Runs `ip` with these words there.
    pub(crate) fn set(&self, place: Place, line: &str) {
        ip(&format!("-n {} {line}", self.namespace(place)));
    }

    fn namespace(&self, place: Place) -> String {
        let end = match place {
            Place::Server => "s",
            Place::Client => "c",
            Place::Other => "o",
        };
        format!("{}{end}", self.name)
    }

    /// Moves the thread that calls there.
    pub(crate) fn enter(&self, place: Place) {
        let path = Path::new("/run/netns").join(self.namespace(place));
        let namespace = fs::File::open(path).expect("the namespace");
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network).expect("to enter it");
    }

    fn command(&self, place: Place, program: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(place)]).args(program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs a program there, for a minute at most.
    pub(crate) fn run(&self, place: Place, program: &[&str]) -> Output {
        let bounded = [&["timeout", "60"], program].concat();
        self.command(place, &bounded).output().expect("a program")
    }

    /// Starts a program there that ends with the network.
    pub(crate) fn start(&self, place: Place, program: &[&str], to: Stdio, errors: Stdio) -> Child {
        let mut command = self.command(place, program);
        command.stdin(Stdio::null()).stdout(to).stderr(errors).spawn().expect("a program")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in [Place::Client, Place::Other, Place::Server] {
            let namespace = self.namespace(place);
            let pids = Command::new("ip").args(["netns", "pids", &namespace]).output();
            let own = std::process::id().to_string();
            for pid in String::from_utf8_lossy(&pids.expect("ip").stdout).lines() {
                // The server's thread is this very process.
                if pid != own {
                    let _ended_already = Command::new("kill").args(["-9", pid]).output();
                }
            }
            let _may_not_exist = Command::new("ip").args(["netns", "del", &namespace]).output();
        }
    }
}
