//! The boot part of a reply: the boot file, or the refusal (docs/reference/dhcp.md, "Boot file" and "Refusal").

use std::borrow::Cow;

use crate::architecture::{BIOS, NoLoader, RASPBERRY_PI};
use crate::boot_reply::{BootReply, REFUSED_FILE, RefusalReason};
use crate::config::{BootOffer, Link, ReplyInputs};
use crate::options::code;
use crate::packet::{Packet, dashed};
use crate::request::{ClientClass, Request};

/// PXE discovery control: take the boot file from this offer, without boot server discovery (PXE 2.1, option 43 tag 6, bit 3).
const FILE_IN_OFFER: &[u8] = &[6, 1, 8];
/// The boot menu that a Raspberry Pi's ROM requires in an offer: boot server type 0 with exactly this name.
const RASPBERRY_PI_MENU: &[u8] = b"\x06\x01\x08\x09\x14\0\0\x11Raspberry Pi Boot\x0a\x04\0PXE";

/// Sets the boot options and the boot fields of the header in `packet`. Returns what they tell the
/// client.
pub(crate) fn set(packet: &mut Packet, request: &Request, inputs: &ReplyInputs<'_>) -> BootReply {
    let ReplyInputs { link, reservation, offer, .. } = *inputs;
    let own_file = reservation.and_then(|own| own.boot_file.as_deref());
    let own_server = reservation.and_then(|own| own.tftp_server.as_deref());
    let class = request.class;
    set_class(packet, class);
    match (offer, own_file) {
        // An installed system that renews its lease asks for no boot, so it is refused none.
        (BootOffer::Refused, None) if !class.boots() => BootReply::Absent,
        (BootOffer::Refused, _) => refuse(packet, class, link, RefusalReason::NotAllowed),
        (_, Some(REFUSED_FILE)) => refuse(packet, class, link, RefusalReason::RefusedFile),
        _ if class.boots() => set_network_boot(packet, request, inputs, own_server),
        _ => {
            // Clients that do not boot from the network, such as switches, get a boot file only if
            // their record has one.
            packet.options.set_some(code::TFTP_SERVER_NAME, own_server);
            set_file(packet, own_file.unwrap_or_default());
            if own_file.is_some() { BootReply::Offered } else { BootReply::Absent }
        }
    }
}

/// Sets the boot file, or the boot menu, of a client that boots from the network; `own_server` is
/// the boot server in its record.
fn set_network_boot(
    packet: &mut Packet,
    request: &Request,
    inputs: &ReplyInputs<'_>,
    own_server: Option<&str>,
) -> BootReply {
    let ReplyInputs { link, reservation, .. } = *inputs;
    let server = own_server.map_or_else(|| link.id.to_string().into(), Cow::from);
    let mut reply = BootReply::Offered;
    if let Some(file) = reservation.and_then(|own| own.boot_file.as_deref()) {
        set_file(packet, file);
    } else if is_raspberry_pi(request, link) {
        packet.options.set(code::VENDOR_SPECIFIC, RASPBERRY_PI_MENU);
    } else {
        match boot_file(request, inputs, &server) {
            Ok((file, kind)) => {
                set_file(packet, &file);
                reply = kind;
            }
            Err(reason) => {
                return refuse(packet, request.class, link, RefusalReason::NoLoader(reason));
            }
        }
    }
    packet.siaddr = server.parse().unwrap_or(link.id);
    packet.options.set(code::TFTP_SERVER_NAME, server.as_bytes());
    reply
}

/// Returns the script for iPXE, or a loader for firmware. A chainload loop is impossible: iPXE gets a loader only if
/// [`chainload`](crate::chainload) decided that it is the NIC's firmware.
fn boot_file(
    request: &Request,
    inputs: &ReplyInputs<'_>,
    server: &str,
) -> Result<(String, BootReply), NoLoader> {
    let ReplyInputs { link, reservation, offer, .. } = *inputs;
    // A machine that is identified by its switch port may have an interface that is not in its record yet.
    let mac = dashed(reservation.map_or(request.mac, |own| own.mac));
    let preferred = reservation.and_then(|own| own.loader.as_deref());
    let loader = link.loaders.choose(&request.architectures(), preferred);
    let is_rom = offer == BootOffer::Chainload && !request.is_site_build;
    match (request.class, loader) {
        (ClientClass::Ipxe { .. }, Ok(loader)) if is_rom => {
            Ok((by_tftp(loader, &mac, link), BootReply::Chainload))
        }
        (ClientClass::Ipxe { http }, _) => {
            let url = match http {
                true => format!("{}/{mac}/auto.ipxe", link.base_url),
                false => format!("tftp://{server}/{mac}/auto.ipxe"),
            };
            Ok((url, BootReply::Offered))
        }
        (ClientClass::Http, loader) => {
            Ok((format!("{}/ipxe/{mac}/{}", link.base_url, loader?), BootReply::Offered))
        }
        (ClientClass::Pxe | ClientClass::Ordinary, loader) => {
            Ok((by_tftp(loader?, &mac, link), BootReply::Offered))
        }
    }
}

/// Returns the name by which TFTP serves `loader` to the interface `mac`.
fn by_tftp(loader: &str, mac: &str, link: &Link) -> String {
    if link.mac_in_path { format!("{mac}/{loader}") } else { loader.to_owned() }
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

fn refuse(
    packet: &mut Packet,
    class: ClientClass,
    link: &Link,
    refusal: RefusalReason,
) -> BootReply {
    match class {
        // Without a file iPXE prints "Nothing to boot" and ends.
        ClientClass::Ipxe { .. } | ClientClass::Ordinary => {}
        ClientClass::Pxe => {
            packet.siaddr = link.id;
            set_file(packet, REFUSED_FILE);
        }
        ClientClass::Http => set_file(packet, &format!("{}/{REFUSED_FILE}", link.base_url)),
    }
    BootReply::Refused(refusal)
}

/// True if the client is a Raspberry Pi's ROM: it sends architecture 41, or 0 or none with a vendor prefix of the board's
/// makers in its MAC. iPXE and UEFI on the same board send other architectures.
fn is_raspberry_pi(request: &Request, link: &Link) -> bool {
    let [a, b, c, ..] = request.mac;
    request.class == ClientClass::Pxe
        && match request.architectures().first().copied() {
            Some(RASPBERRY_PI) => true,
            Some(BIOS) | None => link.raspberry_vendors.contains(&[a, b, c]),
            Some(_) => false,
        }
}
