//! Exchanges of firmware that leaves out options, packet by packet over the network.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use dhcp::options::code;
use dhcp::{MessageType, Mode, Packet, REFUSED_FILE};
use netboot::site::Dhcp;
use socket2::{Domain, Protocol, Socket, Type};

use crate::capture::Capture;
use crate::lab::{Lab, US, booting, machine};
use crate::network::Host;

/// Options with their values.
type RawOptions<'a> = &'a [(u8, &'a [u8])];

/// The address of the machine's record.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 51);
/// The wait for a reply, before the packet is sent again.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum number of times that a packet is sent. The server may be slow on a busy host.
const MAX_TRIES: u32 = 30;
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 67);
const BOOT_SERVICE: SocketAddrV4 = SocketAddrV4::new(US, 4011);

/// A machine that may boot, with the interface v1 of the lab.
fn lab(mode: Mode) -> Lab {
    let mut dhcp = Dhcp::default();
    dhcp.link.mode = mode;
    let lab = Lab::new(dhcp, vec![booting(machine(2, &OWN.to_string()))]);
    lab.network.set(Host::Client, "addr add 198.51.100.51/24 dev v1");
    lab
}

/// A packet of the machine with these options.
fn packet(kind: MessageType, xid: u32, options: RawOptions<'_>) -> Packet {
    let mut packet = Packet { xid, ..Packet::request(kind, [0x52, 0x54, 0, 0, 0, 2]) };
    options.iter().for_each(|(code, value)| packet.options.set(*code, *value));
    packet
}

/// The REQUEST in answer to our offer, which says nothing of its program.
fn select(xid: u32) -> Packet {
    let own = [(code::REQUESTED_ADDRESS, &OWN.octets()[..]), (54, &US.octets())];
    packet(MessageType::Request, xid, &own)
}

impl Lab {
    /// Sends `packet` from the machine to `to`, until there is a reply. Returns the reply and its
    /// octets.
    fn exchange(&self, packet: &Packet, to: SocketAddrV4) -> (Packet, Vec<u8>) {
        let (network, datagram) = (self.network.clone(), packet.encode(1472).unwrap());
        let xid = packet.xid;
        let sent = std::thread::spawn(move || {
            network.enter(Host::Client);
            let socket = client_socket();
            let mut buffer = [0; 1500];
            for _ in 0..MAX_TRIES {
                socket.send_to(&datagram, to).unwrap();
                let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
                let reply = Packet::parse(&buffer[..length]).unwrap();
                if reply.xid == xid {
                    return (reply, buffer[..length].to_vec());
                }
            }
            panic!("no reply");
        });
        sent.join().unwrap()
    }

    /// Returns the boot file in the reply to `packet`.
    fn boot_file(&self, packet: &Packet, to: SocketAddrV4) -> String {
        let (reply, _) = self.exchange(packet, to);
        let file = reply.options.get(code::BOOT_FILE_NAME).unwrap_or_default().to_vec();
        String::from_utf8(file).unwrap()
    }
}

/// The socket of a DHCP client at v1.
fn client_socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.bind_device(Some(b"v1")).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(RETRY)).unwrap();
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68).into()).unwrap();
    socket.into()
}

const UEFI: [(u8, &[u8]); 2] = [(60, b"PXEClient:Arch:00007:UNDI:003016"), (93, &[0, 7])];

#[test]
fn a_request_without_options_gets_the_boot_file_of_its_discover() {
    let lab = lab(Mode::Reservation);
    let rows: [(RawOptions<'_>, &str); 4] = [
        (&UEFI, "snponly.efi"),
        (&[(60, b"PXEClient:Arch:00000:UNDI:002001")], "undionly.kpxe"),
        (&[(60, b"PXEClient:Arch:00000:UNDI:002001"), (93, &[0])], "undionly.kpxe"),
        (
            &[(77, b"iPXE"), (175, &[19, 1, 1])],
            "http://198.51.100.1:7080/52-54-00-00-00-02/auto.ipxe",
        ),
    ];
    for (xid, (options, file)) in (1..).zip(rows) {
        let discover = packet(MessageType::Discover, xid, options);
        assert_eq!(lab.boot_file(&discover, SERVER), file, "{options:?}");
        assert_eq!(lab.boot_file(&select(xid), SERVER), file, "{options:?}");
    }
    assert_eq!(lab.boot_file(&select(99), SERVER), "", "another exchange");
}

#[test]
fn the_boot_service_answers_a_request_without_options_as_its_discover() {
    let lab = lab(Mode::Proxy);
    assert_eq!(lab.boot_file(&packet(MessageType::Discover, 1, &UEFI), SERVER), "snponly.efi");
    let request = Packet { ciaddr: OWN, ..packet(MessageType::Request, 2, &[]) };
    assert_eq!(lab.boot_file(&request, BOOT_SERVICE), "snponly.efi");
}

#[test]
fn a_pad_octet_follows_the_boot_file_in_every_reply() {
    let lab = lab(Mode::Reservation);
    let (uuid, relay) = ((97, &[0; 17][..]), (82, &b"\x01\x04gi/1"[..]));
    for (xid, after) in (1..).zip([vec![], vec![uuid], vec![relay], vec![uuid, relay]]) {
        for kind in [MessageType::Discover, MessageType::Request] {
            let own = (code::REQUESTED_ADDRESS, &OWN.octets()[..]);
            let options = [&UEFI[..], &[own], &after].concat();
            let (_, octets) = lab.exchange(&packet(kind, xid, &options), SERVER);
            let file = b"\x43\x0bsnponly.efi\0";
            assert!(octets.windows(file.len()).any(|part| part == file), "{kind:?}: {octets:?}");
        }
    }
}

#[test]
fn an_architecture_without_a_loader_is_refused() {
    let lab = lab(Mode::Reservation);
    let discover = packet(MessageType::Discover, 1, &[(60, b"PXEClient"), (93, &[0, 12])]);
    assert_eq!(lab.boot_file(&discover, SERVER), REFUSED_FILE);
    assert_eq!(lab.boot_file(&select(1), SERVER), REFUSED_FILE);
}

#[test]
fn infiniband_is_not_answered() {
    let lab = lab(Mode::Reservation);
    let mut capture = Capture::start(&lab.network);
    // The identifier has the address of the machine's record.
    let id = [1, 0x52, 0x54, 0, 0, 0, 2];
    let client = packet(MessageType::Discover, 1, &[(60, b"PXEClient"), (61, &id)]);
    let client = Packet { htype: 32, hlen: 0, chaddr: [0; 16], ..client };
    let (network, datagram) = (lab.network.clone(), client.encode(1472).unwrap());
    let sent = std::thread::spawn(move || {
        network.enter(Host::Client);
        client_socket().send_to(&datagram, SERVER).unwrap();
    });
    sent.join().unwrap();
    // Replies are captured in order: one to this client would come before this one.
    lab.exchange(&packet(MessageType::Discover, 2, &UEFI), SERVER);
    let ours = capture.wait("OFFER", |seen| seen.is(MessageType::Offer, 67));
    assert_eq!(ours.dhcp().unwrap().xid, 2);
}
