//! Listening in a network namespace, where the peer of an interface is a switch.

use std::fs;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{MsgFlags, sendto};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use super::*;

/// An announcement of the port `port`, with its Ethernet header.
fn frame(port: &str) -> Vec<u8> {
    let length = u8::try_from(port.len() + 1).unwrap();
    let header = b"\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc";
    let port = [&[4, length, 5], port.as_bytes()].concat();
    [&header[..], b"\x02\x05\x07leaf", &port, b"\x06\x02\x00\x78\x0a\x05leaf1\x00\x00"].concat()
}

/// A network namespace; drop removes it.
struct Namespace(String);

impl Namespace {
    /// Creates it, with a link from the machine's interface `m0` to the switch's `s0`, and another one from `m1` to `s1`.
    fn new() -> Self {
        static NAMESPACES: AtomicU32 = AtomicU32::new(0);
        assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
        let number = NAMESPACES.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("lldp{}n{number}", std::process::id()));
        ip(&["netns", "add", &namespace.0]);
        for (ours, peer) in [("m0", "s0"), ("m1", "s1")] {
            let of = ["-n", &namespace.0, "link"];
            ip(&[&of[..], &["add", ours, "type", "veth", "peer", "name", peer]].concat());
            ip(&[&of[..], &["set", ours, "up"]].concat());
            ip(&[&of[..], &["set", peer, "up"]].concat());
        }
        namespace
    }

    /// Runs `work` on a runtime inside.
    fn run<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> T {
        let file = fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(work())
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.0]);
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "{arguments:?}");
}

/// Returns the link address of `name` in the namespace of this thread.
fn link_address(name: &str) -> LinkAddr {
    let mut all = getifaddrs().unwrap().filter(|it| it.interface_name == name);
    all.find_map(|it| it.address?.as_link_addr().copied()).unwrap()
}

/// The file systems of a machine with the interfaces `m0` and `m1` of this thread's namespace, with a link or without.
fn tree(links: [&str; 2]) -> TempDir {
    let tree = TempDir::new().unwrap();
    for (name, carrier) in ["m0", "m1"].into_iter().zip(links) {
        let folder = folder(tree.path(), name);
        fs::create_dir_all(folder.join("device")).unwrap();
        fs::write(folder.join("ifindex"), link_address(name).ifindex().to_string()).unwrap();
        fs::write(folder.join("carrier"), carrier).unwrap();
    }
    tree
}

/// Sends `frame` by the interface `name`.
fn send(name: &str, frame: &[u8]) {
    let kind = SocketType::RAW;
    let socket = socket_with(AddressFamily::PACKET, kind, SocketFlags::CLOEXEC, None).unwrap();
    let to = link_address(name);
    sendto(socket.as_raw_fd(), frame, &to, MsgFlags::empty()).unwrap();
}

/// An inventory with both interfaces.
fn inventory() -> pb::Inventory {
    let interface = |name: &str| pb::InventoryInterface { name: name.into(), ..Default::default() };
    pb::Inventory { interfaces: ["m0", "m1"].map(interface).into(), ..Default::default() }
}

/// Sends frames by `send` until `listener` has ended.
async fn until_ended(listener: &Listener, send: impl Fn()) {
    let repeating = async {
        loop {
            send();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = listener.ended() => {}
        () = repeating => {}
    }
}

#[test]
fn listening_ends_once_each_interface_with_a_link_has_a_neighbour() {
    Namespace::new().run(async || {
        let tree = tree(["1", "1"]);
        let listener = Listener::start(tree.path(), Duration::from_secs(60));
        let start = Instant::now();
        until_ended(&listener, || {
            send("s0", b"\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xccmalformed");
            send("s0", &frame("Ethernet1"));
            send("s1", &frame("Ethernet2"));
        })
        .await;
        assert!(start.elapsed() < Duration::from_secs(30));
        let mut inventory = inventory();
        assert!(listener.add_to(&mut inventory));
        let ports =
            inventory.interfaces.iter().map(|it| it.lldp_neighbour.clone().unwrap().port_id);
        assert_eq!(ports.collect::<Vec<_>>(), ["Ethernet1", "Ethernet2"]);
        assert!(!listener.add_to(&mut inventory), "nothing new");
    });
}

#[test]
fn a_link_without_announcements_and_one_that_is_down_delay_nothing_beyond_the_limit() {
    Namespace::new().run(async || {
        let silent = tree(["1", "0"]);
        let listener = Listener::start(silent.path(), Duration::from_millis(300));
        let start = Instant::now();
        // Frames of another protocol are not received.
        until_ended(&listener, || send("s0", &[&frame("x")[..12], &[8, 0], &[0; 46]].concat()))
            .await;
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert!(!listener.add_to(&mut inventory()));

        let listener = Listener::start(silent.path(), Duration::from_secs(60));
        until_ended(&listener, || send("s0", &frame("Ethernet1"))).await;
        assert!(
            listener.add_to(&mut inventory()),
            "the interface without a link is not waited for"
        );
    });
}

#[tokio::test]
async fn a_machine_without_interfaces_listens_for_nothing() {
    let empty = TempDir::new().unwrap();
    Listener::start(empty.path(), Duration::from_secs(60)).ended().await;
}
