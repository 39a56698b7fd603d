//! Ethernet addresses.

use std::{fmt, str::FromStr};

/// An Ethernet address. Shown in lower-case colon form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Dash form, as it stands in our URLs: iPXE percent-encodes colons in HTTP paths but not in TFTP names.
    pub fn dashed(self) -> String {
        self.separated("-")
    }

    /// Whether it can name one station: neither zero, nor multicast, nor broadcast.
    pub fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self.0 != [0; 6]
    }

    /// The vendor's part.
    pub fn oui(self) -> [u8; 3] {
        let [a, b, c, ..] = self.0;
        [a, b, c]
    }

    fn separated(self, separator: &str) -> String {
        self.0.map(|byte| format!("{byte:02x}")).join(separator)
    }
}

/// Not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an Ethernet address")]
pub struct NotMac(String);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.separated(":"))
    }
}

impl FromStr for Mac {
    type Err = NotMac;

    /// Accepts `52:54:00:00:00:01`, the same with dashes, `5254.0000.0001`, and twelve bare digits, in any case.
    fn from_str(text: &str) -> Result<Self, NotMac> {
        let separator = text.chars().find(|c| !c.is_ascii_hexdigit());
        let group = match separator {
            None => 12,
            Some(':' | '-') => 2,
            Some('.') => 4,
            Some(_) => return Err(NotMac(text.into())),
        };
        let groups: Vec<_> = match separator {
            None => vec![text],
            Some(separator) => text.split(separator).collect(),
        };
        let digits = groups.concat();
        let well_formed = groups.iter().all(|digits| digits.len() == group)
            && digits.len() == 12
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u64::from_str_radix(&digits, 16).ok().filter(|_| well_formed);
        let [_, _, mac @ ..] = number.ok_or_else(|| NotMac(text.into()))?.to_be_bytes();
        Ok(Self(mac))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_notation_names_the_same_station() {
        let mac = Mac([0x52, 0x54, 0, 0xab, 0, 1]);
        for text in ["52:54:00:ab:00:01", "52-54-00-AB-00-01", "5254.00ab.0001", "525400AB0001"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
        assert_eq!(
            (mac.to_string(), mac.dashed()),
            ("52:54:00:ab:00:01".into(), "52-54-00-ab-00-01".into())
        );
    }

    #[test]
    fn what_is_not_six_octets_is_refused() {
        for text in [
            "",
            "52:54:00:00:00",
            "52:54:00:00:00:01:02:03",
            "52:54-00:00:00:01",
            "+2:54:00:00:00:01",
            "5:254:00:00:00:01",
            "snponly.efi",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn group_addresses_and_zero_name_no_station() {
        for text in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"] {
            assert!(!text.parse::<Mac>().unwrap().is_unicast(), "{text}");
        }
    }
}
