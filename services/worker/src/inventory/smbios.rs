//! The tables of the firmware (DMTF DSP0134, SMBIOS): installed memory, and the address of the BMC.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Type of a memory device (DSP0134, 7.18).
const MEMORY_DEVICE: u8 = 17;
/// Type of a management controller host interface (DSP0134, 7.43).
const HOST_INTERFACE: u8 = 42;
/// Protocol of a host interface: Redfish over IP.
const REDFISH_OVER_IP: u8 = 4;
const MIB: u64 = 1 << 20;

/// Returns the memory in all sockets; nothing if the tables name none.
pub(super) fn memory_bytes(tables: &[u8]) -> Option<u64> {
    let sizes = structures(tables).filter(|(kind, _)| *kind == MEMORY_DEVICE);
    let total: u64 = sizes.filter_map(|(_, fields)| memory_device_bytes(fields)).sum();
    (total > 0).then_some(total)
}

/// Returns the size in a memory device; nothing for an empty socket.
fn memory_device_bytes(fields: &[u8]) -> Option<u64> {
    match u64::from(u16::from_le_bytes(array(fields, 0x0c)?)) {
        0 | 0xffff => None,
        0x7fff => Some(u64::from(u32::from_le_bytes(array(fields, 0x1c)?) & 0x7fff_ffff) * MIB),
        size if size & 0x8000 != 0 => Some((size & 0x7fff) * 1024),
        size => Some(size * MIB),
    }
}

/// Returns the URL of the BMC's Redfish service (DMTF DSP0270, Redfish over IP).
pub(super) fn redfish_url(tables: &[u8]) -> Option<String> {
    let interfaces = structures(tables).filter(|(kind, _)| *kind == HOST_INTERFACE);
    interfaces.filter_map(|(_, fields)| redfish_protocol(fields)).find_map(|data| {
        let port = u16::from_le_bytes(array(data, 84)?);
        let host = match data.get(51)? {
            1 => Ipv4Addr::from(array::<4>(data, 52)?).to_string(),
            2 => format!("[{}]", Ipv6Addr::from(array::<16>(data, 52)?)),
            _ => return None,
        };
        let is_unspecified = matches!(host.as_str(), "0.0.0.0" | "[::]");
        (!is_unspecified).then(|| format!("https://{host}:{port}"))
    })
}

/// Returns the data of the Redfish protocol record in a host interface.
fn redfish_protocol(fields: &[u8]) -> Option<&[u8]> {
    let mut rest = fields.get(6 + usize::from(*fields.get(5)?)..)?;
    let count = *rest.first()?;
    rest = rest.get(1..)?;
    for _ in 0..count {
        let [kind, length, data @ ..] = rest else { return None };
        let (data, next) = data.split_at_checked(usize::from(*length))?;
        if *kind == REDFISH_OVER_IP {
            return Some(data);
        }
        rest = next;
    }
    None
}

/// Iterates over type and formatted area of the structures in `tables`, until a malformed one.
fn structures(mut tables: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = (*tables.first()?, usize::from(*tables.get(1)?));
        let (fields, strings) = tables.split_at_checked(length).filter(|_| length >= 4)?;
        // The strings end with two zero bytes, also if there are none.
        let end = strings.windows(2).position(|pair| pair == [0, 0]);
        tables = end.and_then(|end| strings.get(end + 2..)).unwrap_or_default();
        Some((kind, fields))
    })
}

/// Returns the `N` bytes at the offset `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
