//! A BIOS machine whose network interface has iPXE for its firmware (netboot specification, section 16.5).

use netboot::site::Dhcp;
use tftp::Packet;

use crate::capture::{Capture, Seen};
use crate::lab::{Lab, booting, machine};
use crate::network::Place;

/// Switches a machine on, with the interface 52:54:00:00:00:01 on the bridge.
pub(crate) fn power_on(lab: &Lab) {
    lab.start(
        Place::Server,
        "timeout 150 qemu-system-x86_64 -accel tcg -m 256 -display none -nodefaults -no-reboot \
         -machine pc,graphics=off -serial file:{dir}/serial -netdev \
         tap,id=n0,ifname=tap0,script=no,downscript=no -device \
         virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01 -boot n",
        "qemu",
    );
}

/// Whether it asks for the script of the machine.
pub(crate) fn asks_for_script(seen: &Seen) -> bool {
    seen.to.port() == 7080 && seen.says("GET /52-54-00-00-00-01/auto.ipxe ")
}

fn asks_for(seen: &Seen, name: &str) -> bool {
    let Ok(Packet::Read(request)) = Packet::parse(&seen.payload) else { return false };
    seen.to.port() == 69 && request.name == name.as_bytes()
}

#[test]
fn ipxe_in_a_rom_loads_ours_once_and_then_gets_its_script() {
    let dhcp = Dhcp { chain_ipxe: true, ..Dhcp::default() };
    let lab = Lab::new(dhcp, vec![booting(machine(1, "198.51.100.50"))]);
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    let request = capture.wait("request for undionly.kpxe", |seen| asks_for(seen, "undionly.kpxe"));
    assert!(capture.seen().iter().all(|seen| !asks_for_script(seen)), "a script before the loader");
    capture.wait("request for the script", asks_for_script);
    let loaders = capture.seen().iter().filter(|seen| asks_for(seen, "undionly.kpxe"));
    let ports: std::collections::BTreeSet<_> = loaders.map(|seen| seen.from.port()).collect();
    assert_eq!(ports, [request.from.port()].into(), "one transfer");
}

#[test]
fn ipxe_in_a_rom_gets_its_script_at_once_where_nothing_else_is_said() {
    let lab = Lab::new(Dhcp::default(), vec![booting(machine(1, "198.51.100.50"))]);
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    capture.wait("request for the script", asks_for_script);
    assert!(capture.seen().iter().all(|seen| seen.to.port() != 69), "a loader");
}
