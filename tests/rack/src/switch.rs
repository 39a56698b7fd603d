//! The switch of the machines' network: announces itself by LLDP (IEEE 802.1AB) on all ports of the lab's bridge.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, sendto};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tinwright::hardware::v1::LldpNeighbour;

use crate::lab::Lab;

/// The bridge.
const BRIDGE: &str = "br0";
/// The pause between two announcements. Switches announce themselves every 30 s.
const INTERVAL: Duration = Duration::from_secs(1);
/// The switch's MAC, which is its chassis id.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x01];
/// The name of its port.
const PORT: &str = "Ethernet7/1";
/// Its name.
const NAME: &str = "leaf1.rack";
/// The VLAN of its port.
const VLAN_ID: u16 = 207;

/// A switch that announces itself, until drop.
#[derive(Debug)]
pub struct Switch {
    stop: Option<Sender<()>>,
    sending: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Switch {
    /// Starts to send announcements in `lab`.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        let namespace = File::open(format!("/run/netns/{}", lab.name()))?;
        let (stop, stopped) = mpsc::channel();
        let sending = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
            let socket = socket_with(AddressFamily::PACKET, kind, flags, None)?;
            let (bridge, frame) = (link_address(BRIDGE)?, announcement());
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                sendto(socket.as_raw_fd(), &frame, &bridge, MsgFlags::empty())?;
            }
            Ok(())
        });
        Ok(Self { stop: Some(stop), sending: Some(sending) })
    }

    /// Returns the neighbour that a machine on its network has.
    pub fn neighbour() -> LldpNeighbour {
        LldpNeighbour {
            chassis_id: tinwright::Mac(MAC).to_string(),
            port_id: PORT.into(),
            system_name: NAME.into(),
            vlan_id: VLAN_ID.into(),
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        match self.sending.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("rack: sending announcements: {error:#}"),
            Some(Err(_)) => eprintln!("rack: the thread that sends announcements panicked"),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}

/// Returns the link address of the interface `name`, in the namespace of this thread.
fn link_address(name: &str) -> anyhow::Result<LinkAddr> {
    let mut all = getifaddrs()?.filter(|it| it.interface_name == name);
    let found = all.find_map(|it| it.address?.as_link_addr().copied());
    found.with_context(|| format!("there is no interface {name}"))
}

/// Returns the announcement with its Ethernet header.
fn announcement() -> Vec<u8> {
    let vlan = [&[0x00, 0x80, 0xc2, 1][..], &VLAN_ID.to_be_bytes()].concat();
    let parts: [(u8, Vec<u8>); 6] = [
        (1, [&[4], &MAC[..]].concat()),
        (2, [&[5], PORT.as_bytes()].concat()),
        (3, 120_u16.to_be_bytes().into()),
        (5, NAME.into()),
        (127, vlan),
        (0, Vec::new()),
    ];
    let mut frame = [&[0x01, 0x80, 0xc2, 0, 0, 0x0e], &MAC[..], &[0x88, 0xcc]].concat();
    for (kind, value) in parts {
        // Seven bits of type, nine bits of length; no value here has more than 255 octets.
        frame.extend([kind << 1, value.len() as u8]);
        frame.extend(value);
    }
    frame
}
