//! DHCP requests of booting machines, as their relay forwards them.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use dhcp::options::{Options, code};
use dhcp::{MessageType, Packet};
use rack::SERVER;

use crate::fleet;

/// UDP port of DHCP servers and relays.
pub const PORT: u16 = 67;
/// Maximum size of a DHCP packet, in bytes: the MTU of Ethernet.
pub const MAX_PACKET_BYTES: usize = 1500;
/// Position of the transaction id in a packet (RFC 2131 §2).
pub const XID: std::ops::Range<usize> = 4..8;

/// The program that sends the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// UEFI firmware (PXE 2.1 §2.2).
    Firmware,
    /// iPXE with HTTP support.
    Ipxe,
}

/// Encodes the request that `program` on machine `n` sends through `relay`: a DISCOVER, or a REQUEST for the machine's own
/// address, with the transaction id `xid`.
pub fn request(
    n: usize,
    program: Program,
    kind: MessageType,
    relay: Ipv4Addr,
    xid: u32,
) -> anyhow::Result<Vec<u8>> {
    let mut chaddr = [0; 16];
    chaddr[..6].copy_from_slice(&fleet::mac(n).0);
    let none = Ipv4Addr::UNSPECIFIED;
    let packet = Packet {
        op: 1,
        htype: 1,
        hlen: 6,
        hops: 1,
        xid,
        secs: 0,
        flags: 0,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: relay,
        chaddr,
        sname: [0; 64],
        file: [0; 128],
        options: options(n, program, kind),
    };
    packet.encode(MAX_PACKET_BYTES).context("the request does not fit into a packet")
}

fn options(n: usize, program: Program, kind: MessageType) -> Options {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind as u8]);
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    options.set(code::CLIENT_ARCHITECTURE, [0, 7]);
    options.set(code::MAXIMUM_MESSAGE_SIZE, [0x05, 0xc0]);
    options.set(code::PARAMETER_REQUEST_LIST, [1, 3, 6, 12, 15, 43, 51, 54, 60, 66, 67]);
    if kind == MessageType::Request {
        options.set(code::REQUESTED_ADDRESS, fleet::address(n).octets());
        options.set(code::SERVER_IDENTIFIER, SERVER.octets());
    }
    if program == Program::Ipxe {
        options.set(code::USER_CLASS, "iPXE");
        // iPXE's encapsulated option 175: feature 19 (HTTP) with the value 1.
        options.set(code::IPXE, [19, 1, 1]);
    }
    options
}
