//! Neighbours on the network, in a namespace where the peer of the machine's interface is a switch.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{MsgFlags, sendto};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tinwright::hardware::v1::InventoryInterface;
use tinwright::workflow::v1::ReportInventoryRequest;

use crate::files::Files;
use crate::machine::Machine;
use crate::plane::ControlPlane;

/// The index of the machine's interface.
const INDEX: u32 = 10;
/// An announcement of the port 1/3, captured on a switch.
const FRAME: &[u8] = b"\x01\x80\xc2\x00\x00\x0e\x00\x04\x96\x1f\xa7\x26\x88\xcc\x02\x07\x04\x00\x04\x96\x1f\xa7\x26\x04\x04\x051/3\x06\x02\x00\x78\x00\x00";

/// A network namespace with the machine's interface `m0` and the switch's port `s0`. Drop removes it.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
        let namespace = Self(format!("neigh{}", std::process::id()));
        let name = &namespace.0;
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} link add m0 index {INDEX} type veth peer name s0"));
        ip(&format!("-n {name} link set m0 up"));
        ip(&format!("-n {name} link set s0 up"));
        namespace
    }

    /// Runs `work` on a runtime inside.
    fn run(&self, work: impl AsyncFnOnce() + Send) {
        let file = File::open(format!("/run/netns/{}", self.0)).unwrap();
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.unwrap().block_on(work());
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {line}");
}

/// Sends an announcement by the switch's port.
fn announce() {
    let mut all = getifaddrs().unwrap().filter(|it| it.interface_name == "s0");
    let port = all.find_map(|it| it.address?.as_link_addr().copied()).unwrap();
    let kind = SocketType::RAW;
    let socket = socket_with(AddressFamily::PACKET, kind, SocketFlags::CLOEXEC, None).unwrap();
    sendto(socket.as_raw_fd(), FRAME, &port, MsgFlags::empty()).unwrap();
}

fn interface(request: &ReportInventoryRequest) -> &InventoryInterface {
    &request.inventory.as_ref().unwrap().interfaces[0]
}

#[test]
fn a_neighbour_that_is_found_late_is_reported_beside_the_work() {
    Namespace::new().run(async || {
        let plane = ControlPlane::serve([]).await;
        let files = Files::serve(plane.ca(), Vec::new()).await;
        let mut machine = Machine::new(&Machine::cmdline(&plane, &files));
        machine.add_interface("m0", INDEX);
        machine.start();
        plane.until(|state| !state.polls.is_empty()).await;
        announce();
        plane.until(|state| state.inventories.len() == 2).await;
        let reported = plane.state().inventories;
        let [(first, 0), (second, polls)] = &reported[..] else { panic!("{reported:?}") };
        assert!(*polls > 0, "work did not wait for it");
        assert_eq!(interface(first).lldp_neighbour, None);
        assert_eq!(interface(second).lldp_neighbour.as_ref().unwrap().port_id, "1/3");
        plane.update(|state| state.reboot = true);
        assert!(machine.ended().await);
    });
}
