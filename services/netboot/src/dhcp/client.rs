//! What kind of program asks (netboot specification, section 3.2).

use super::architecture::{U_BOOT, U_BOOT_HTTP};
use super::options::{code, sub_option};
use super::packet::Packet;

/// Whether iPXE says so as its raw name, or in RFC 3004's list.
const IPXE: &[u8] = b"iPXE";
/// iPXE's feature flag for HTTP, inside option 175.
const IPXE_HTTP: u8 = 19;

/// The program that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Firmware that boots by PXE.
    Pxe,
    /// Firmware that boots by HTTP.
    Http,
    /// iPXE, or our own build of it.
    Ipxe {
        /// Whether it can fetch a URL.
        http: bool,
    },
    /// An installed system, a BMC, a switch.
    Ordinary,
}

impl Class {
    /// Whether it wants to boot from the network.
    pub fn boots(self) -> bool {
        self != Self::Ordinary
    }
}

/// What a request tells about its sender, beside its hardware address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The program.
    pub class: Class,
    /// Whether it is the site's own build of iPXE.
    pub own: bool,
    /// Option 93, in the client's order of preference. Never read from option 60: iPXE repeats there what it was
    /// answered last.
    pub architectures: Vec<u16>,
    /// Option 97 in its wire order, if it is what RFC 4578 describes; some NICs send garbage.
    pub uuid: Option<[u8; 16]>,
}

impl Client {
    /// Reads it from a request. `own` is the user class of the site's own iPXE build, if it has one.
    pub fn of(request: &Packet, own: Option<&str>) -> Self {
        let options = &request.options;
        let architectures = architectures(request);
        let uuid = options.get(code::CLIENT_UUID).and_then(|value| value.strip_prefix(&[0]));
        Self {
            class: class(request, &architectures, own),
            own: is_own(request, own),
            architectures,
            uuid: uuid.and_then(|uuid| uuid.try_into().ok()),
        }
    }
}

fn is_own(request: &Packet, own: Option<&str>) -> bool {
    let user_class = request.options.get(code::USER_CLASS).unwrap_or_default();
    own.is_some_and(|own| names(user_class, own.as_bytes()))
}

fn architectures(request: &Packet) -> Vec<u16> {
    let listed = request.options.get(code::CLIENT_ARCHITECTURE).unwrap_or_default();
    let (pairs, _) = listed.as_chunks();
    pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
}

fn class(request: &Packet, architectures: &[u16], own: Option<&str>) -> Class {
    let options = &request.options;
    if is_own(request, own) {
        return Class::Ipxe { http: true };
    }
    let user_class = options.get(code::USER_CLASS).unwrap_or_default();
    let features = options.get(code::IPXE);
    if features.is_some() || names(user_class, IPXE) {
        let http = features.and_then(|features| sub_option(features, IPXE_HTTP)).is_some();
        return Class::Ipxe { http };
    }
    match options.get(code::VENDOR_CLASS) {
        Some(vendor) if vendor.starts_with(b"PXEClient") => Class::Pxe,
        Some(vendor) if vendor.starts_with(b"HTTPClient") => Class::Http,
        // U-Boot calls itself what its builder likes.
        _ => match architectures.first() {
            Some(number) if U_BOOT.contains(number) => Class::Pxe,
            Some(number) if U_BOOT_HTTP.contains(number) => Class::Http,
            _ => Class::Ordinary,
        },
    }
}

/// Whether a user class is `name`, raw as iPXE sends it or an element of RFC 3004's list.
fn names(user_class: &[u8], name: &[u8]) -> bool {
    let mut list = user_class;
    let mut listed = false;
    while let Some((length, rest)) = list.split_first() {
        let Some((element, rest)) = rest.split_at_checked((*length).into()) else { break };
        listed |= element == name;
        list = rest;
    }
    listed || user_class == name
}
