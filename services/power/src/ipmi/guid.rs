//! The UUID of a machine, by Get System GUID (IPMI 2.0 §22.14).
//!
//! The specification sends the octets of a UUID in reverse (table 20-10). Most BMCs send them as the SMBIOS table has them, with the first
//! three groups in reverse, some in the order of RFC 4122. Those two are not distinguished: who compares UUIDs takes them as equal.

use tinwright::HardwareId;

use crate::bmc_text;

/// Returns the UUID in the output `text`, sixteen octets in hex; nothing if it has others, or a UUID that stands for "not set".
pub(super) fn read(text: &str) -> String {
    let octets: Result<Vec<_>, _> =
        text.split_whitespace().map(|octet| u8::from_str_radix(octet, 16)).collect();
    let octets = octets.ok().and_then(|octets| <[u8; 16]>::try_from(octets).ok());
    octets.map_or_else(String::new, |octets| bmc_text::uuid(&decode(octets).to_string()))
}

/// Returns the UUID that the octets mean. The order of the specification counts only if the octets are no UUID in that of SMBIOS.
fn decode(sent: [u8; 16]) -> HardwareId {
    let [a, b, c, d, e, f, g, h, rest @ ..] = sent;
    let mut smbios = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    smbios[8..].copy_from_slice(&rest);
    let mut reversed = sent;
    reversed.reverse();
    // Not all machines have a UUID that says which one it is: SMBIOS is the rule.
    let found = [smbios, sent, reversed].into_iter().find(is_valid).unwrap_or(smbios);
    HardwareId::from_bytes(found)
}

/// True if version and variant are ones that exist (RFC 9562 §4).
fn is_valid(octets: &[u8; 16]) -> bool {
    (1..=8).contains(&(octets[6] >> 4)) && octets[8] >> 6 == 0b10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_smbios_is_the_rule() {
        let uuid = "4c4c4544-0042-3010-8052-b4c04f4d3232";
        assert_eq!(read(" 44 45 4c 4c 42 00 10 30 80 52 b4 c0 4f 4d 32 32\n"), uuid);
        // No version, as of machines whose UUID ends in a MAC.
        let plain = "00 00 00 00 00 00 00 00 00 00 ac 1f 6b 00 00 01";
        assert_eq!(read(plain), "00000000-0000-0000-0000-ac1f6b000001");
    }

    #[test]
    fn other_orders_are_recognized_by_version_and_variant() {
        let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert_eq!(read("6b a7 b8 10 9d ad 11 d1 80 b4 00 c0 4f d4 30 c8"), uuid);
        assert_eq!(read("c8 30 d4 4f c0 00 b4 80 d1 11 ad 9d 10 b8 a7 6b"), uuid);
    }

    #[test]
    fn an_unset_guid_and_other_output_are_no_uuid() {
        for text in ["00 ".repeat(16), "ff ".repeat(16), "44 45".into(), "Up/On".into()] {
            assert_eq!(read(&text), "");
        }
    }
}
