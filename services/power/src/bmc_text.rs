//! Texts of a machine's identity, as BMCs give them.

use tinwright::machine_uuid;

/// The longest text that is stored.
const MAX_TEXT_BYTES: usize = 255;
/// Texts that vendors leave in place of an identity, in lower case.
const PLACEHOLDERS: [&str; 9] = [
    "0",
    "0123456789",
    "default string",
    "n/a",
    "none",
    "not specified",
    "system serial number",
    "to be filled by o.e.m.",
    "unknown",
];

/// Returns `text` in one line without spaces around it, at most 255 bytes.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let text = text.trim();
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].trim_end().to_owned()
}

/// Returns the same, or nothing if it is a vendor's placeholder.
pub(crate) fn identity(text: &str) -> String {
    let text = one_line(text);
    if PLACEHOLDERS.contains(&text.to_lowercase().as_str()) { String::new() } else { text }
}

/// Returns the UUID in lower case, or nothing if it is none, stands for "not set" (SMBIOS DSP0134,
/// System UUID), or is a vendor's placeholder.
pub(crate) fn uuid(text: &str) -> String {
    machine_uuid::parse(text.trim()).map_or_else(|_| String::new(), |uuid| uuid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_no_identity() {
        assert_eq!(identity(" To Be Filled By O.E.M. "), "");
        assert_eq!(identity("A\n1 "), "A 1");
        assert_eq!(one_line(&"ä".repeat(200)).len(), 254);
    }

    #[test]
    fn a_uuid_of_one_digit_only_and_a_placeholder_are_not_set() {
        for unset in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "11111111-1111-1111-1111-111111111111",
            machine_uuid::PLACEHOLDERS[0],
            "x",
        ] {
            assert_eq!(uuid(unset), "");
        }
        let set = "F0000000-0000-0000-0000-000000000000";
        assert_eq!(uuid(set), set.to_lowercase());
    }
}
