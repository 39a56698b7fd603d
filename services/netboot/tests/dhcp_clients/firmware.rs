//! A BIOS machine whose network interface has iPXE in its ROM.

use netboot::site::Dhcp;
use tftp::ClientPacket as Packet;

use crate::capture::{Capture, Seen};
use crate::lab::{Lab, booting, machine};
use crate::network::Host;

/// Switches a machine on, with the interface 52:54:00:00:00:01 on the bridge.
pub(crate) fn power_on(lab: &Lab) {
    lab.start(
        Host::Server,
        "timeout 600 qemu-system-x86_64 -accel tcg -m 256 -display none -nodefaults -no-reboot \
         -machine pc,graphics=off -serial file:{dir}/serial -netdev \
         tap,id=n0,ifname=tap0,script=no,downscript=no -device \
         virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01 -boot n",
        "qemu",
    );
}

/// True if it requests the machine's script.
pub(crate) fn requests_script(seen: &Seen) -> bool {
    seen.to.port() == 7080 && seen.contains("GET /52-54-00-00-00-01/auto.ipxe ")
}

fn requests_file(seen: &Seen, name: &str) -> bool {
    let Some(Packet::Read(request)) = Packet::parse(&seen.payload) else { return false };
    seen.to.port() == 69 && request.name == name.as_bytes()
}

#[test]
fn ipxe_in_a_rom_gets_a_loader_once_and_then_its_script() {
    let dhcp = Dhcp { chain_ipxe: true, ..Dhcp::default() };
    let lab = Lab::new(dhcp, vec![booting(machine(1, "198.51.100.50"))]);
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    let request =
        capture.wait("request for undionly.kpxe", |seen| requests_file(seen, "undionly.kpxe"));
    assert!(capture.seen().iter().all(|seen| !requests_script(seen)), "a script before the loader");
    capture.wait("request for the script", requests_script);
    let loaders = capture.seen().iter().filter(|seen| requests_file(seen, "undionly.kpxe"));
    let ports: std::collections::BTreeSet<_> = loaders.map(|seen| seen.from.port()).collect();
    assert_eq!(ports, [request.from.port()].into(), "one transfer");
}

#[test]
fn ipxe_in_a_rom_gets_its_script_at_once_by_default() {
    let lab = Lab::new(Dhcp::default(), vec![booting(machine(1, "198.51.100.50"))]);
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    capture.wait("request for the script", requests_script);
    assert!(capture.seen().iter().all(|seen| seen.to.port() != 69), "a loader");
}
