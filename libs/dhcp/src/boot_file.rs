//! The boot part of a reply: the boot file, or the refusal (docs/reference/dhcp.md, "Boot file" and "Refusal").

use std::borrow::Cow;

use crate::architecture::{BIOS, RASPBERRY_PI};
use crate::config::{BootOffer, Link, ReplyInputs, Reservation};
use crate::options::code;
use crate::packet::{Packet, dashed};
use crate::request::{ClientClass, Request};

/// The name of a file that never exists. Firmware that gets this name goes to its next boot device at once. Without any
/// offer it would wait for one for a minute, at each boot of an installed machine.
pub const REFUSED_FILE: &str = "netboot-not-allowed";

/// PXE discovery control: take the boot file from this offer, without boot server discovery (PXE 2.1, option 43 tag 6, bit 3).
const FILE_IN_OFFER: &[u8] = &[6, 1, 8];
/// The boot menu that a Raspberry Pi's ROM requires in an offer: boot server type 0 with exactly this name.
const RASPBERRY_PI_MENU: &[u8] = b"\x06\x01\x08\x09\x14\0\0\x11Raspberry Pi Boot\x0a\x04\0PXE";

/// Sets the boot options and the boot fields of the header in `packet`. Returns the client's architectures if the site has
/// no loader for any of them.
pub(crate) fn set(
    packet: &mut Packet,
    request: &Request,
    inputs: &ReplyInputs<'_>,
) -> Option<Vec<u16>> {
    let ReplyInputs { link, reservation, offer, .. } = *inputs;
    let own_file = reservation.and_then(|own| own.boot_file.as_deref());
    let own_server = reservation.and_then(|own| own.tftp_server.as_deref());
    set_class(packet, request.class);
    if offer == BootOffer::Refused {
        refuse(packet, request.class, link);
        return None;
    }
    if request.class == ClientClass::Ordinary {
        // Clients that do not boot from the network, such as switches, get a boot file only if their record has one.
        packet.options.set_some(code::TFTP_SERVER_NAME, own_server);
        set_file(packet, own_file.unwrap_or_default());
        return None;
    }
    let server = own_server.map_or_else(|| link.id.to_string().into(), Cow::from);
    if own_file.is_none() && is_raspberry_pi(request, link) {
        packet.options.set(code::VENDOR_SPECIFIC, RASPBERRY_PI_MENU);
    } else {
        let own_file = own_file.map(str::to_owned);
        let Some(file) = own_file.or_else(|| boot_file(request, inputs, &server)) else {
            refuse(packet, request.class, link);
            return Some(request.packet.architectures().collect());
        };
        set_file(packet, &file);
    }
    packet.siaddr = server.parse().unwrap_or(link.id);
    packet.options.set(code::TFTP_SERVER_NAME, server.as_bytes());
    None
}

/// Returns the script for iPXE, or a loader for firmware. A chainload loop is impossible: iPXE gets a loader only if
/// [`chainload`](crate::chainload) decided that it is the NIC's firmware.
fn boot_file(request: &Request, inputs: &ReplyInputs<'_>, server: &str) -> Option<String> {
    let ReplyInputs { link, reservation, offer, .. } = *inputs;
    // A machine that is identified by its switch port may have an interface that is not in its record yet.
    let mac = dashed(reservation.map_or(request.mac, |own| own.mac));
    let preferred = reservation.and_then(|own: &Reservation| own.loader.as_deref());
    let loader = link.loaders.choose(request.packet.architectures(), preferred);
    let is_rom = offer == BootOffer::Chainload && !request.is_site_build;
    match request.class {
        ClientClass::Ipxe { http } if !is_rom || loader.is_none() => Some(match http {
            true => format!("{}/{mac}/auto.ipxe", link.base_url),
            false => format!("tftp://{server}/{mac}/auto.ipxe"),
        }),
        ClientClass::Http => Some(format!("{}/ipxe/{mac}/{}", link.base_url, loader?)),
        ClientClass::Pxe | ClientClass::Ipxe { .. } if link.mac_in_path => {
            Some(format!("{mac}/{}", loader?))
        }
        ClientClass::Pxe | ClientClass::Ipxe { .. } => loader.map(str::to_owned),
        ClientClass::Ordinary => None,
    }
}

/// Sets the options of every reply to a client of `class`, refusals included. With these options iPXE does not wait for an
/// offer of a ProxyDHCP server.
fn set_class(packet: &mut Packet, class: ClientClass) {
    match class {
        ClientClass::Ordinary => {}
        ClientClass::Http => packet.options.set(code::VENDOR_CLASS, "HTTPClient"),
        ClientClass::Pxe | ClientClass::Ipxe { .. } => {
            packet.options.set(code::VENDOR_CLASS, "PXEClient");
            packet.options.set(code::VENDOR_SPECIFIC, FILE_IN_OFFER);
        }
    }
}

fn set_file(packet: &mut Packet, file: &str) {
    packet.options.set_some(code::BOOT_FILE_NAME, Some(file));
    // A name that does not fit into the field with its NUL is sent in option 67 only. It is never truncated.
    if let Some((head, [_, ..])) = packet.file.split_at_mut_checked(file.len()) {
        head.copy_from_slice(file.as_bytes());
    }
}

fn refuse(packet: &mut Packet, class: ClientClass, link: &Link) {
    match class {
        // Without a file iPXE prints "Nothing to boot" and ends.
        ClientClass::Ipxe { .. } | ClientClass::Ordinary => {}
        ClientClass::Pxe => {
            packet.siaddr = link.id;
            set_file(packet, REFUSED_FILE);
        }
        ClientClass::Http => set_file(packet, &format!("{}/{REFUSED_FILE}", link.base_url)),
    }
}

/// True if the client is a Raspberry Pi's ROM: it sends architecture 41, or 0 or none with a vendor prefix of the board's
/// makers in its MAC. iPXE and UEFI on the same board send other architectures.
fn is_raspberry_pi(request: &Request, link: &Link) -> bool {
    let [a, b, c, ..] = request.mac;
    request.class == ClientClass::Pxe
        && match request.packet.architectures().next() {
            Some(RASPBERRY_PI) => true,
            Some(BIOS) | None => link.raspberry_vendors.contains(&[a, b, c]),
            Some(_) => false,
        }
}
