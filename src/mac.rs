//! Ethernet addresses, in every usual notation.

use std::fmt;
use std::str::FromStr;

/// An Ethernet (EUI-48) address. Written in lower-case colon form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// Maximum number of characters of a text in its error: a link-layer address of InfiniBand with
/// colons has 59.
const MAX_SHOWN_CHARS: usize = 60;

/// A text that is no MAC address of a single interface.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMacError {
    /// Not six octets in a known notation.
    #[error("{0:?} is not a MAC address: six octets in hex, such as 52:54:00:12:34:56")]
    Form(String),
    /// Eight octets or more: the GUID or the link-layer address of an InfiniBand interface.
    #[error(
        "{0:?} is an InfiniBand address, and InfiniBand is not supported: a MAC address has six octets, such as \
         52:54:00:12:34:56"
    )]
    Infiniband(String),
    /// All zero, or a group address: no interface has it.
    #[error("{0} is not an interface's MAC address")]
    NotUnicast(Mac),
}

impl Mac {
    /// Returns the address with dashes, for URLs: iPXE would percent-encode colons.
    pub fn dashed(&self) -> String {
        str::from_utf8(&self.written(b'-')).unwrap_or_default().to_owned()
    }

    /// Formats the address without allocating: every reply to a machine contains some.
    fn written(&self, separator: u8) -> [u8; 17] {
        let mut text = [separator; 17];
        for (octet, pair) in self.0.iter().zip(text.chunks_mut(3)) {
            for (half, letter) in [octet >> 4, octet & 15].into_iter().zip(pair) {
                *letter = half + if half < 10 { b'0' } else { b'a' - 10 };
            }
        }
        text
    }

    /// Returns the vendor's part.
    pub fn oui(&self) -> [u8; 3] {
        let [a, b, c, ..] = self.0;
        [a, b, c]
    }

    /// True if an interface may have the address: neither zero nor a group address (IEEE 802, bit 0 of the first octet).
    pub fn is_unicast(&self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    /// Reads `52:54:00:12:34:56`, `52-54-…`, `5254.0012.3456` and `525400123456`, in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let no = || {
            let shown = text.chars().take(MAX_SHOWN_CHARS).collect();
            if is_longer(text) {
                ParseMacError::Infiniband(shown)
            } else {
                ParseMacError::Form(shown)
            }
        };
        let width = match text.len() {
            17 => 2,
            14 => 4,
            12 => 12,
            _ => return Err(no()),
        };
        let mut number = 0_u64;
        for (at, byte) in text.bytes().enumerate() {
            let digit = char::from(byte).to_digit(16);
            match (at % (width + 1) == width, digit) {
                (true, _) if matches!(byte, b':' | b'-' | b'.') => {}
                (false, Some(digit)) => number = number << 4 | u64::from(digit),
                (true | false, _) => return Err(no()),
            }
        }
        let [_, _, octets @ ..] = number.to_be_bytes();
        let mac = Self(octets);
        if mac.is_unicast() { Ok(mac) } else { Err(ParseMacError::NotUnicast(mac)) }
    }
}

/// True if `text` is an address of eight to 32 octets in hex: GUIDs have eight, link-layer
/// addresses of InfiniBand twenty (RFC 4391).
fn is_longer(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_written = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'-' | b'.');
    text.bytes().all(is_written) && digits % 2 == 0 && (16..=64).contains(&digits)
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.written(b':')).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_usual_notation_is_read() {
        for text in ["52:54:00:AB:cd:0e", "52-54-00-ab-cd-0e", "5254.00ab.cd0e", "525400ABCD0E"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "52:54:00:ab:cd:0e");
        }
    }

    #[test]
    fn a_longer_address_is_refused_as_one_of_infiniband() {
        for text in [
            "80:00:02:08:fe:80:00:00:00:00:00:00:24:8a:07:03:00:91:6e:12",
            "24:8a:07:03:00:91:6e:12",
            "248a-0703-0091-6e12",
            "248a070300916e12",
            "80:24:8a:07:03:00:91:6e:12",
        ] {
            let error = text.parse::<Mac>().unwrap_err();
            assert_eq!(error, ParseMacError::Infiniband(text.into()));
            assert!(error.to_string().contains("InfiniBand is not supported"), "{error}");
        }
        for text in ["52:54:00:ab:cd:0e:11", "24:8a:07:03:00:91:6e:1", &"a".repeat(66)] {
            assert!(matches!(text.parse::<Mac>(), Err(ParseMacError::Form(_))), "{text}");
        }
    }

    #[test]
    fn wrong_notations_and_addresses_that_no_interface_has_are_refused() {
        for text in
            ["", "52:54:0:ab:cd:0e", "52:54:00:ab:cd", "5254:00ab:cd0", "+2:54:00:ab:cd:0e", "é"]
        {
            assert!(matches!(text.parse::<Mac>(), Err(ParseMacError::Form(_))), "{text}");
        }
        for text in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"] {
            assert!(matches!(text.parse::<Mac>(), Err(ParseMacError::NotUnicast(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_address_parses_back(octets: [u8; 6]) {
            let mac = Mac(octets);
            prop_assume!(mac.is_unicast());
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.dashed().parse(), Ok(mac));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _either = text.parse::<Mac>();
        }
    }
}
