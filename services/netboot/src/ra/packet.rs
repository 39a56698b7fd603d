//! Router solicitations and advertisements (RFC 4861, sections 4.1 and 4.2). Checksums are the kernel's.

use crate::Mac;

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// The option with the source's link-layer address (section 4.6.1).
const SOURCE_ADDRESS: u8 = 1;
/// Octets of a solicitation before its options.
const HEADER_OCTETS: usize = 8;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A host solicits routers; with its Ethernet address if the message has it.
    Solicitation(Option<Mac>),
    /// The message of a router.
    Advertisement,
}

impl Message {
    /// Parses an ICMPv6 message; none if it is of another type, or malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.split_at_checked(HEADER_OCTETS)? {
            ([SOLICITATION, 0, ..], options) => source(options).map(Self::Solicitation),
            ([ADVERTISEMENT, 0, ..], _) => Some(Self::Advertisement),
            _ => None,
        }
    }
}

/// An empty advertisement: no hop limit, no flags, no lifetime, no times, no options.
pub const EMPTY: [u8; 16] = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns the link-layer address among `options`, if there is one. None if an option is malformed (section 6.1.1).
fn source(mut options: &[u8]) -> Option<Option<Mac>> {
    let mut found = None;
    while let [kind, length, ..] = options {
        let (option, rest) = options.split_at_checked(usize::from(*length) * 8)?;
        match (*kind, option) {
            (_, []) => return None, // a length of 0 would never end
            (SOURCE_ADDRESS, &[_, 1, a, b, c, d, e, f]) => found = Some(Mac([a, b, c, d, e, f])),
            _ => {}
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn solicitation(options: &[u8]) -> Option<Message> {
        Message::parse(&[&[SOLICITATION, 0, 0xab, 0xcd, 0, 0, 0, 0][..], options].concat())
    }

    #[test]
    fn a_solicitation_has_the_address_of_its_host_if_it_names_one() {
        assert_eq!(
            solicitation(&[1, 1, 0x52, 0x54, 0, 0, 0, 1]),
            Some(Message::Solicitation(Some(MAC)))
        );
        let after_another_option =
            [&[14, 1, 0, 0, 0, 0, 0, 0][..], &[1, 1, 0x52, 0x54, 0, 0, 0, 1]];
        assert_eq!(
            solicitation(&after_another_option.concat()),
            Some(Message::Solicitation(Some(MAC)))
        );
        assert_eq!(solicitation(&[]), Some(Message::Solicitation(None)));
    }

    #[test]
    fn malformed_and_other_messages_are_not_parsed() {
        for malformed in [&[1, 0][..], &[1], &[1, 2, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 0, 0]] {
            assert_eq!(solicitation(malformed), None);
        }
        assert_eq!(Message::parse(&[135, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Message::parse(&[SOLICITATION, 0, 0]), None);
        assert_eq!(Message::parse(&EMPTY), Some(Message::Advertisement));
    }

    proptest! {
        #[test]
        fn no_message_makes_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _parsed = Message::parse(&bytes);
        }

        #[test]
        fn an_address_is_found_after_any_option(mac: [u8; 6], kind in 2..=255_u8, words in 1..4_u8) {
            let other = [&[kind, words][..], &vec![7; usize::from(words) * 8 - 2]].concat();
            let own = [&[1, 1][..], &mac].concat();
            let found = solicitation(&[other, own].concat());
            prop_assert_eq!(found, Some(Message::Solicitation(Some(Mac(mac)))));
        }
    }
}
