//! DHCP options by number, with fragments joined.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use smallvec::SmallVec;

/// The option numbers that are read or written (RFC 2132 unless another RFC is named).
pub mod code {
    #![allow(missing_docs)] // the names are IANA's
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const NAME_SERVERS: u8 = 6;
    pub const LOG_SERVERS: u8 = 7;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const INTERFACE_MTU: u8 = 26;
    pub const BROADCAST_ADDRESS: u8 = 28;
    pub const NTP_SERVERS: u8 = 42;
    pub const VENDOR_SPECIFIC: u8 = 43;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_IDENTIFIER: u8 = 54;
    pub const PARAMETER_REQUEST_LIST: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const MAXIMUM_MESSAGE_SIZE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_IDENTIFIER: u8 = 61;
    pub const TFTP_SERVER_NAME: u8 = 66;
    pub const BOOT_FILE_NAME: u8 = 67;
    /// RFC 3004.
    pub const USER_CLASS: u8 = 77;
    /// RFC 3046.
    pub const RELAY_AGENT: u8 = 82;
    /// RFC 4578.
    pub const CLIENT_ARCHITECTURE: u8 = 93;
    /// RFC 4578.
    pub const CLIENT_UUID: u8 = 97;
    /// RFC 3397.
    pub const DOMAIN_SEARCH: u8 = 119;
    /// RFC 3442.
    pub const CLASSLESS_ROUTES: u8 = 121;
    /// RFC 5859.
    pub const TFTP_SERVERS: u8 = 150;
    /// The encapsulated options of iPXE.
    pub const IPXE: u8 = 175;
    /// Requested by old Windows instead of option 121.
    pub const MS_CLASSLESS_ROUTES: u8 = 249;
    pub const END: u8 = 255;
}

/// Options in the order of their numbers. Fragments of one option are joined into one value (RFC 3396).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<u8, Value>);

/// The value of an option. Short ones, which are most, are stored inline, without a heap allocation.
type Value = SmallVec<[u8; 32]>;

impl Options {
    /// Returns the value of option `code`.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Value::as_slice)
    }

    /// Returns option `code` as one address, if its length is four octets.
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        <[u8; 4]>::try_from(self.get(code)?).ok().map(Ipv4Addr::from)
    }

    /// Sets or replaces option `code`.
    pub fn set(&mut self, code: u8, value: impl AsRef<[u8]>) {
        self.0.insert(code, value.as_ref().into());
    }

    /// Sets option `code` if there is a value and it is not empty.
    pub fn set_some(&mut self, code: u8, value: Option<impl AsRef<[u8]>>) {
        if let Some(value) = value.filter(|value| !value.as_ref().is_empty()) {
            self.set(code, value);
        }
    }

    /// Sets option `code` to `addresses`, one after another, as in options 3, 6, 42 and 150. Without addresses nothing is set.
    pub fn set_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        self.set_some(code, Some(addresses.iter().flat_map(Ipv4Addr::octets).collect::<Value>()));
    }

    /// Removes option `code`.
    pub fn remove(&mut self, code: u8) {
        self.0.remove(&code);
    }

    /// True if there are no options.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all options in the order of their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(code, value)| (*code, value.as_slice()))
    }

    /// Reads one field of options up to its end mark; a missing end mark is accepted. A further fragment of an option is
    /// appended to it (RFC 3396 section 7: the fields of an overloaded packet are one stream). None if an option is longer
    /// than the rest of its field.
    pub(crate) fn read(&mut self, mut field: &[u8]) -> Option<()> {
        while let [code, rest @ ..] = field {
            field = match *code {
                code::PAD => rest,
                code::END => break,
                code => {
                    let (length, rest) = rest.split_first()?;
                    let (value, rest) = rest.split_at_checked((*length).into())?;
                    self.0.entry(code).or_default().extend_from_slice(value);
                    rest
                }
            };
        }
        Some(())
    }
}

/// Returns the value of a sub-option: options 43, 82 and 175 are encoded like the options field, without its padding rules.
pub fn sub_option(encapsulated: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut field = encapsulated;
    while let [code, length, rest @ ..] = field {
        let (value, rest) = rest.split_at_checked((*length).into())?;
        if *code == wanted {
            return Some(value);
        }
        field = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn read(field: &[u8]) -> Option<Options> {
        let mut options = Options::default();
        options.read(field).map(|()| options)
    }

    #[test]
    fn fragments_of_one_option_are_joined() {
        let options = read(&[67, 2, b'a', b'b', 12, 1, b'h', 67, 1, b'c', 255]);
        assert_eq!(options.as_ref().map(|o| o.get(67)), Some(Some(&b"abc"[..])));
    }

    #[test]
    fn padding_is_skipped_and_nothing_follows_the_end() {
        assert_eq!(read(&[0, 0, 12, 1, b'h', 255, 12, 200]).map(|o| o.iter().count()), Some(1));
    }

    #[test]
    fn an_option_longer_than_the_packet_is_an_overrun() {
        assert_eq!(read(&[12, 3, b'h']), None);
        assert_eq!(read(&[12]), None);
    }

    #[test]
    fn setting_and_removing_leaves_the_others_as_they_are() {
        let mut options = Options::default();
        for (code, value) in [(12, "host"), (67, "file"), (1, "mask"), (12, "longer"), (67, "")] {
            options.set(code, value);
        }
        options.set_some(15, Some(""));
        let all = |options: &Options| {
            options.iter().map(|(code, value)| (code, value.to_vec())).collect::<Vec<_>>()
        };
        let expected = [(1, "mask"), (12, "longer"), (67, "")];
        assert_eq!(all(&options), expected.map(|(code, value)| (code, value.as_bytes().to_vec())));
        options.set_addresses(6, &[[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]);
        options.set_addresses(42, &[]);
        assert_eq!(options.get(6), Some(&[192, 0, 2, 1, 192, 0, 2, 2][..]));
        assert_eq!(options.get(42), None);
        options.remove(12);
        assert_eq!((options.get(1), options.get(12)), (Some(&b"mask"[..]), None));
        assert_eq!(options.get(67), Some(&[][..]));
    }

    proptest! {
        #[test]
        fn options_are_a_map_from_numbers_to_values(
            steps in prop::collection::vec((1..255_u8, prop::collection::vec(any::<u8>(), 0..40), 0..3_u8), 0..60),
        ) {
            let (mut options, mut map) = (Options::default(), BTreeMap::<u8, Vec<u8>>::new());
            for (code, value, step) in steps {
                match step {
                    0 => {
                        options.remove(code);
                        map.remove(&code);
                    }
                    1 => {
                        let length = u8::try_from(value.len()).unwrap_or_default();
                        prop_assert_eq!(options.read(&[&[code, length], &value[..]].concat()), Some(()));
                        map.entry(code).or_default().extend(value);
                    }
                    _ => {
                        options.set(code, &value);
                        map.insert(code, value);
                    }
                }
                prop_assert_eq!(options.get(code), map.get(&code).map(Vec::as_slice));
            }
            let all: Vec<_> = map.iter().map(|(code, value)| (*code, value.as_slice())).collect();
            prop_assert_eq!(options.iter().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn a_cut_sub_option_is_not_found() {
        assert_eq!(sub_option(&[1, 2, 7, 8, 9, 1, 5], 9), Some(&[5][..]));
        assert_eq!(sub_option(&[1, 9, 7], 1), None);
    }
}
