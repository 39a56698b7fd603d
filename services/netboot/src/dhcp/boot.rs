//! The boot part of an answer: which file (netboot specification, section 3.7), or how to say no (section 3.8).

use std::net::Ipv4Addr;

use super::architecture::{BIOS, RASPBERRY_PI};
use super::client::{Class, Client};
use super::site::{BootOffer, Link, Reservation};
use crate::Mac;

/// The file that never is. Firmware that is sent for it ends its search at once; without any offer it would go on
/// searching for a minute, at every boot of every installed machine.
pub const REFUSED_FILE: &str = "netboot-not-allowed";

/// PXE discovery control: take the boot file from this offer and ask no boot server (PXE 2.1, option 43 tag 6, bit 3).
const FILE_IS_HERE: [u8; 3] = [6, 1, 8];

/// What an answer says about booting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Boot {
    /// Option 60.
    pub(super) vendor_class: Option<&'static str>,
    /// Option 43.
    pub(super) vendor_specific: Vec<u8>,
    /// `siaddr`.
    pub(super) next_server: Option<Ipv4Addr>,
    /// Option 66.
    pub(super) server_name: Option<String>,
    /// `file` and option 67.
    pub(super) file: Option<String>,
    /// Whether the client shall not wait for a ProxyDHCP server (option 175, tag 176).
    pub(super) no_proxy: bool,
    /// Architectures the site has no loader for, where that is why there is none.
    pub(super) no_loader: Option<Vec<u16>>,
}

/// What to tell `client` about booting.
pub(super) fn boot(
    client: &Client,
    mac: Mac,
    machine: Option<&Reservation>,
    link: &Link,
    offer: BootOffer,
) -> Boot {
    if offer == BootOffer::Refused {
        return refusal(client.class, link);
    }
    let record = Record::of(machine, link.id);
    if client.class == Class::Ordinary {
        // Switches and the like take a boot file only where their record has one.
        let server_name = machine.and_then(|machine| machine.tftp_server.clone());
        return Boot { server_name, file: record.boot_file.map(str::to_owned), ..Boot::default() };
    }
    if record.boot_file.is_none() && is_raspberry(client, mac, link) {
        return record.fill(Boot { vendor_specific: raspberry_menu(), ..kind(client.class) });
    }
    // A machine known by its port may ask from an interface that its record does not have yet.
    let named = machine.map_or(mac, |machine| machine.mac);
    let chained = offer == BootOffer::Chained && !client.own;
    let own = record.boot_file.map(str::to_owned);
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
    server_name: String,
}

impl<'a> Record<'a> {
    fn of(machine: Option<&'a Reservation>, ours: Ipv4Addr) -> Self {
        let named = machine.and_then(|machine| machine.tftp_server.as_deref());
        Self {
            boot_file: machine.and_then(|machine| machine.boot_file.as_deref()),
            loader: machine.and_then(|machine| machine.loader.as_deref()),
            server: named.and_then(|name| name.parse().ok()).unwrap_or(ours),
            server_name: named.map_or_else(|| ours.to_string(), str::to_owned),
        }
    }

    fn fill(self, boot: Boot) -> Boot {
        Boot { next_server: Some(self.server), server_name: Some(self.server_name), ..boot }
    }
}

/// The script for iPXE, a loader for firmware. No chain can loop: who calls itself iPXE is never given a loader, but
/// where [`Chain`](super::chain::Chain) says that it is firmware.
fn file(
    client: &Client,
    mac: Mac,
    record: &Record<'_>,
    link: &Link,
    chained: bool,
) -> Option<String> {
    let (mac, base) = (|| mac.dashed(), &link.base_url);
    let loader = || link.loaders.choose(&client.architectures, record.loader);
    let by_tftp =
        || loader().map(|name| if link.mac_in_path { format!("{}/{name}", mac()) } else { name });
    match client.class {
        Class::Ipxe { .. } if chained && loader().is_some() => by_tftp(),
        Class::Ipxe { http: true } => Some(format!("{base}/{}/auto.ipxe", mac())),
        Class::Ipxe { http: false } => {
            Some(format!("tftp://{}/{}/auto.ipxe", record.server_name, mac()))
        }
        Class::Http => Some(format!("{base}/ipxe/{}/{}", mac(), loader()?)),
        Class::Pxe => by_tftp(),
        Class::Ordinary => None,
    }
}

/// What every answer to a client of `class` has, yes or no. iPXE takes an offer with these for complete.
fn kind(class: Class) -> Boot {
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

fn refusal(class: Class, link: &Link) -> Boot {
    match class {
        // Without a file it says "Nothing to boot" and goes on.
        Class::Ipxe { .. } | Class::Ordinary => kind(class),
        Class::Pxe => {
            Boot { next_server: Some(link.id), file: Some(REFUSED_FILE.into()), ..kind(class) }
        }
        Class::Http => {
            Boot { file: Some(format!("{}/{REFUSED_FILE}", link.base_url)), ..kind(class) }
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
