//! The boot part of an answer: which file (netboot specification, section 3.7), or how to say no (section 3.8).

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::architecture::{BIOS, RASPBERRY_PI};
use super::client::{Class, Client};
use super::site::{BootOffer, Link, Reservation};
use crate::Mac;

/// The file that never is. Firmware that is sent for it ends its search at once; without any offer it would go on
/// searching for a minute, at every boot of every installed machine.
pub const REFUSED_FILE: &str = "netboot-not-allowed";

/// PXE discovery control: take the boot file from this offer and ask no boot server (PXE 2.1, option 43 tag 6, bit 3).
const FILE_IS_HERE: &[u8] = &[6, 1, 8];

/// What an answer says about booting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Boot<'a> {
    /// Option 60.
    pub(super) vendor_class: Option<&'static str>,
    /// Option 43.
    pub(super) vendor_specific: Cow<'static, [u8]>,
    /// `siaddr`.
    pub(super) next_server: Option<Ipv4Addr>,
    /// Option 66.
    pub(super) server_name: Option<&'a str>,
    /// `file` and option 67.
    pub(super) file: Option<Cow<'a, str>>,
    /// Whether the client shall not wait for a ProxyDHCP server (option 175, tag 176).
    pub(super) no_proxy: bool,
    /// Architectures the site has no loader for, where that is why there is none.
    pub(super) no_loader: Option<Vec<u16>>,
}

/// What to tell `client` about booting.
pub(super) fn boot<'a>(
    client: &Client,
    mac: Mac,
    machine: Option<&'a Reservation>,
    link: &'a Link,
    offer: BootOffer,
) -> Boot<'a> {
    if offer == BootOffer::Refused {
        return refusal(client.class, link);
    }
    let record = Record::of(machine, link);
    if client.class == Class::Ordinary {
        // Switches and the like take a boot file only where their record has one.
        let server_name = machine.and_then(|machine| machine.tftp_server.as_deref());
        return Boot { server_name, file: record.boot_file.map(Cow::from), ..Boot::default() };
    }
    if record.boot_file.is_none() && is_raspberry(client, mac, link) {
        return record
            .fill(Boot { vendor_specific: raspberry_menu().into(), ..kind(client.class) });
    }
    // A machine known by its port may ask from an interface that its record does not have yet.
    let named = machine.map_or(mac, |machine| machine.mac);
    let chained = offer == BootOffer::Chained && !client.own;
    let own = record.boot_file.map(Cow::from);
    let file = own.or_else(|| file(client, named, &record, link, chained));
    match file {
        Some(file) => record.fill(Boot { file: Some(file), ..kind(client.class) }),
        None => {
            let no_loader = Some(client.architectures.clone());
            Boot { no_loader, ..refusal(client.class, link) }
        }
    }
}

/// What the record has to say, and the server it is said with.
struct Record<'a> {
    boot_file: Option<&'a str>,
    loader: Option<&'a str>,
    server: Ipv4Addr,
    server_name: &'a str,
}

impl<'a> Record<'a> {
    fn of(machine: Option<&'a Reservation>, link: &'a Link) -> Self {
        let named = machine.and_then(|machine| machine.tftp_server.as_deref());
        Self {
            boot_file: machine.and_then(|machine| machine.boot_file.as_deref()),
            loader: machine.and_then(|machine| machine.loader.as_deref()),
            server: named.and_then(|name| name.parse().ok()).unwrap_or(link.id),
            server_name: named.unwrap_or(&link.id_text),
        }
    }

    fn fill(self, boot: Boot<'a>) -> Boot<'a> {
        Boot { next_server: Some(self.server), server_name: Some(self.server_name), ..boot }
    }
}

/// The script for iPXE, a loader for firmware. No chain can loop: who calls itself iPXE is never given a loader, but
/// where [`Chain`](super::chain::Chain) says that it is firmware.
fn file<'a>(
    client: &Client,
    mac: Mac,
    record: &Record<'a>,
    link: &'a Link,
    chained: bool,
) -> Option<Cow<'a, str>> {
    let (mac, base) = (|| mac.dashed(), &link.base_url);
    let loader = || link.loaders.choose(&client.architectures, record.loader);
    let by_tftp = || match (loader()?, link.mac_in_path) {
        (name, true) => Some(format!("{}/{name}", mac()).into()),
        (name, false) => Some(name.into()),
    };
    match client.class {
        Class::Ipxe { .. } if chained && loader().is_some() => by_tftp(),
        Class::Ipxe { http: true } => Some(format!("{base}/{}/auto.ipxe", mac()).into()),
        Class::Ipxe { http: false } => {
            Some(format!("tftp://{}/{}/auto.ipxe", record.server_name, mac()).into())
        }
        Class::Http => Some(format!("{base}/ipxe/{}/{}", mac(), loader()?).into()),
        Class::Pxe => by_tftp(),
        Class::Ordinary => None,
    }
}

/// What every answer to a client of `class` has, yes or no. iPXE takes an offer with these for complete.
fn kind<'a>(class: Class) -> Boot<'a> {
    match class {
        Class::Ordinary => Boot::default(),
        Class::Http => Boot { vendor_class: Some("HTTPClient"), ..Boot::default() },
        Class::Pxe | Class::Ipxe { .. } => Boot {
            vendor_class: Some("PXEClient"),
            vendor_specific: FILE_IS_HERE.into(),
            no_proxy: matches!(class, Class::Ipxe { .. }),
            ..Boot::default()
        },
    }
}

fn refusal<'a>(class: Class, link: &Link) -> Boot<'a> {
    match class {
        // Without a file it says "Nothing to boot" and goes on.
        Class::Ipxe { .. } | Class::Ordinary => kind(class),
        Class::Pxe => {
            Boot { next_server: Some(link.id), file: Some(REFUSED_FILE.into()), ..kind(class) }
        }
        Class::Http => {
            Boot { file: Some(format!("{}/{REFUSED_FILE}", link.base_url).into()), ..kind(class) }
        }
    }
}

/// Its ROM names itself by number 41 or, more often, not at all; iPXE or UEFI on the same board is neither.
fn is_raspberry(client: &Client, mac: Mac, link: &Link) -> bool {
    let of_vendor = link.raspberry_vendors.contains(&mac.oui());
    client.class == Class::Pxe
        && match client.architectures.first() {
            Some(&RASPBERRY_PI) => true,
            Some(&BIOS) | None => of_vendor,
            Some(_) => false,
        }
}

/// The boot menu without which the ROM takes no offer: boot server type 0 under this very name.
fn raspberry_menu() -> Vec<u8> {
    const SERVER: &[u8] = b"Raspberry Pi Boot";
    let mut menu = FILE_IS_HERE.to_vec();
    menu.extend([9, 20, 0, 0, 17]);
    menu.extend(SERVER);
    menu.extend([10, 4, 0]);
    menu.extend(b"PXE");
    menu
}
