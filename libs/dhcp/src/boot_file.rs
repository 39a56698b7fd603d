//! The boot part of a reply: the boot file, or the refusal (docs/reference/dhcp.md, "Boot file" and "Refusal").

use std::borrow::Cow;
use std::net::Ipv4Addr;

use crate::architecture::{BIOS, RASPBERRY_PI};
use crate::config::{BootOffer, Link, Reservation};
use crate::packet::{MacAddress, dashed};
use crate::reply::ReplyInputs;
use crate::request::{ClientClass, Request};

/// A file name that never exists. Firmware that is sent to it ends its search at once; without any offer it would go on
/// searching for a minute, at every boot of every installed machine.
pub const REFUSED_FILE: &str = "netboot-not-allowed";

/// PXE discovery control: take the boot file from this offer and ask no boot server (PXE 2.1, option 43 tag 6, bit 3).
const FILE_IN_OFFER: &[u8] = &[6, 1, 8];

/// The fields of a reply that are about booting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BootPart<'a> {
    /// Option 60.
    pub(crate) vendor_class: Option<&'static str>,
    /// Option 43.
    pub(crate) vendor_specific: Cow<'static, [u8]>,
    /// `siaddr`.
    pub(crate) next_server: Option<Ipv4Addr>,
    /// Option 66.
    pub(crate) server_name: Option<&'a str>,
    /// `file` and option 67.
    pub(crate) file: Option<Cow<'a, str>>,
    /// True if the client must not wait for a ProxyDHCP server (option 175, tag 176).
    pub(crate) no_proxy: bool,
    /// The client's architectures, if the site has no loader for any of them.
    pub(crate) no_loader: Option<Vec<u16>>,
}

/// Selects the boot part of the reply to `request`.
pub(crate) fn boot_part<'a>(request: &Request, inputs: ReplyInputs<'a>) -> BootPart<'a> {
    let ReplyInputs { link, reservation, offer, .. } = inputs;
    let class = request.class;
    if offer == BootOffer::Refused {
        return refusal(class, link);
    }
    let settings = BootSettings::of(reservation, link);
    if class == ClientClass::Ordinary {
        // Switches and the like take a boot file only if their record has one.
        let server_name = reservation.and_then(|own| own.tftp_server.as_deref());
        let file = settings.boot_file.map(Cow::from);
        return BootPart { server_name, file, ..BootPart::default() };
    }
    if settings.boot_file.is_none() && is_raspberry_pi(request, link) {
        let menu = BootPart { vendor_specific: raspberry_pi_menu().into(), ..for_class(class) };
        return settings.with_server(menu);
    }
    // A machine identified by its port may send from an interface that its record does not have yet.
    let mac = reservation.map_or(request.mac, |own| own.mac);
    let chainload = offer == BootOffer::Chainload && !request.is_site_build;
    let own = settings.boot_file.map(Cow::from);
    match own.or_else(|| boot_file(request, mac, &settings, link, chainload)) {
        Some(file) => settings.with_server(BootPart { file: Some(file), ..for_class(class) }),
        None => {
            let no_loader = Some(request.architectures().collect());
            BootPart { no_loader, ..refusal(class, link) }
        }
    }
}

/// The boot settings of the record, and the boot server.
struct BootSettings<'a> {
    boot_file: Option<&'a str>,
    loader: Option<&'a str>,
    server: Ipv4Addr,
    server_name: &'a str,
}

impl<'a> BootSettings<'a> {
    fn of(reservation: Option<&'a Reservation>, link: &'a Link) -> Self {
        let named = reservation.and_then(|own| own.tftp_server.as_deref());
        Self {
            boot_file: reservation.and_then(|own| own.boot_file.as_deref()),
            loader: reservation.and_then(|own| own.loader.as_deref()),
            server: named.and_then(|name| name.parse().ok()).unwrap_or(link.id),
            server_name: named.unwrap_or(&link.id_text),
        }
    }

    fn with_server(self, boot: BootPart<'a>) -> BootPart<'a> {
        BootPart { next_server: Some(self.server), server_name: Some(self.server_name), ..boot }
    }
}

/// The script for iPXE, a loader for firmware. No chainload loop is possible: a client that declares itself iPXE gets a
/// loader only if [`chainload`](crate::chainload) takes it for firmware.
fn boot_file<'a>(
    request: &Request,
    mac: MacAddress,
    settings: &BootSettings<'a>,
    link: &'a Link,
    chainload: bool,
) -> Option<Cow<'a, str>> {
    let (mac, base) = (|| dashed(mac), &link.base_url);
    let loader = || link.loaders.choose(request.architectures(), settings.loader);
    let by_tftp = || match (loader()?, link.mac_in_path) {
        (name, true) => Some(format!("{}/{name}", mac()).into()),
        (name, false) => Some(name.into()),
    };
    match request.class {
        ClientClass::Ipxe { .. } if chainload && loader().is_some() => by_tftp(),
        ClientClass::Ipxe { http: true } => Some(format!("{base}/{}/auto.ipxe", mac()).into()),
        ClientClass::Ipxe { http: false } => {
            Some(format!("tftp://{}/{}/auto.ipxe", settings.server_name, mac()).into())
        }
        ClientClass::Http => Some(format!("{base}/ipxe/{}/{}", mac(), loader()?).into()),
        ClientClass::Pxe => by_tftp(),
        ClientClass::Ordinary => None,
    }
}

/// The fields of every reply to a client of `class`, refusals included. iPXE takes an offer with these for complete.
fn for_class<'a>(class: ClientClass) -> BootPart<'a> {
    match class {
        ClientClass::Ordinary => BootPart::default(),
        ClientClass::Http => BootPart { vendor_class: Some("HTTPClient"), ..BootPart::default() },
        ClientClass::Pxe | ClientClass::Ipxe { .. } => BootPart {
            vendor_class: Some("PXEClient"),
            vendor_specific: FILE_IN_OFFER.into(),
            no_proxy: matches!(class, ClientClass::Ipxe { .. }),
            ..BootPart::default()
        },
    }
}

fn refusal<'a>(class: ClientClass, link: &Link) -> BootPart<'a> {
    let (next_server, file) = match class {
        // Without a file iPXE prints "Nothing to boot" and goes on.
        ClientClass::Ipxe { .. } | ClientClass::Ordinary => return for_class(class),
        ClientClass::Pxe => (Some(link.id), REFUSED_FILE.into()),
        ClientClass::Http => (None, format!("{}/{REFUSED_FILE}", link.base_url).into()),
    };
    BootPart { next_server, file: Some(file), ..for_class(class) }
}

/// True if the client is a Raspberry Pi's ROM, which sends architecture 41 or, more often, none; iPXE and UEFI on the
/// same board send their own.
fn is_raspberry_pi(request: &Request, link: &Link) -> bool {
    let [a, b, c, ..] = request.mac;
    request.class == ClientClass::Pxe
        && match request.architectures().next() {
            Some(RASPBERRY_PI) => true,
            Some(BIOS) | None => link.raspberry_vendors.contains(&[a, b, c]),
            Some(_) => false,
        }
}

/// The boot menu without which the ROM takes no offer: boot server type 0 with exactly this name.
fn raspberry_pi_menu() -> Vec<u8> {
    const SERVER: &[u8] = b"Raspberry Pi Boot";
    let mut menu = FILE_IN_OFFER.to_vec();
    menu.extend([9, 20, 0, 0, 17]);
    menu.extend(SERVER);
    menu.extend([10, 4, 0]);
    menu.extend(b"PXE");
    menu
}
