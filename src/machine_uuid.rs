//! SMBIOS UUIDs of machines: placeholders of vendors, and the two byte orders.

use crate::HardwareId;

/// UUIDs that vendors left in many machines.
pub const PLACEHOLDERS: [&str; 2] =
    ["03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009"];

/// Returns the UUID of a machine, unless it is a vendor's placeholder: other machines have the same.
pub fn parse(text: &str) -> Result<HardwareId, String> {
    let uuid: HardwareId = text.parse().map_err(|error| format!("{error}"))?;
    let octets = uuid.to_bytes();
    let is_placeholder = octets.iter().all(|octet| *octet == octets[0])
        || PLACEHOLDERS.contains(&uuid.to_string().as_str());
    match is_placeholder {
        true => Err(format!("{uuid} is a vendor's placeholder: it names no machine")),
        false => Ok(uuid),
    }
}

/// True if both are one UUID, in the same or in the other byte order.
pub fn is_same(a: HardwareId, b: HardwareId) -> bool {
    a == b || swapped(a) == b
}

/// Returns `uuid` in the other byte order: firmware before SMBIOS 2.6 leaves that of the first three groups open, and some BMCs read
/// them in the other one (DSP0134, System UUID).
fn swapped(uuid: HardwareId) -> HardwareId {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid.to_bytes();
    let mut octets = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    octets[8..].copy_from_slice(&rest);
    HardwareId::from_bytes(octets)
}
