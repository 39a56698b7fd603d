//! Reads syslog messages of machines: datagrams in either form in use, without a socket or a clock.
//!
//! - [`parse`]: no datagram is refused. One in neither form becomes the text of a message.
//! - `rfc5424`, `rfc3164`: the two forms.

mod message;
mod rfc3164;
mod rfc5424;

use self::message::escaped;
pub use self::message::{Message, Priority};

/// The priority of a datagram without a valid one: user, notice (RFC 3164, section 4.3.3).
const DEFAULT_PRIORITY: Priority = Priority(13);
/// The highest priority: facility 23, severity 7.
const MAX_PRIORITY: u8 = 191;

/// Returns the message that `datagram` contains.
pub fn parse(datagram: &[u8]) -> Message {
    let text = String::from_utf8_lossy(datagram);
    let text = text.trim_end_matches(['\n', '\r', '\0']);
    let Some((priority, rest)) = priority(text) else {
        return Message { text: escaped(text), ..Message::empty(DEFAULT_PRIORITY) };
    };
    let message = rfc5424::parse(priority, rest);
    message.unwrap_or_else(|| rfc3164::parse(priority, rest))
}

/// Parses `<PRI>`: one to three digits, at most 191, without leading zeros. Returns the priority and the rest.
fn priority(text: &str) -> Option<(Priority, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let plain = digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    let number = digits.parse().ok().filter(|number| *number <= MAX_PRIORITY)?;
    Some((Priority(number), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_datagram_with_an_invalid_priority_is_all_text() {
        for wrong in ["<192>a", "<>a", "<0000014>a", "<014>a", "<-1>a", "<1", "<1a>b", "", "a"] {
            let message = parse(wrong.as_bytes());
            let priority = (message.priority.facility(), message.priority.severity());
            assert_eq!(priority, ("user", "notice"), "{wrong}");
            assert_eq!(message.text, wrong);
        }
    }

    #[test]
    fn a_priority_is_facility_and_severity() {
        let of = |text: &str| {
            let Message { priority, text, .. } = parse(text.as_bytes());
            (priority.facility(), priority.severity(), text)
        };
        assert_eq!(of("<0>x"), ("kern", "emerg", "x".into()));
        assert_eq!(of("<14>hello"), ("user", "info", "hello".into()));
        assert_eq!(of("<191>x"), ("local7", "debug", "x".into()));
    }

    #[test]
    fn control_characters_are_escaped_and_the_line_ending_is_removed() {
        let message = parse(b"<14>a\x1b[2Jb\tc\x00d\xff\r\n");
        assert_eq!(message.text, "a\\u{1b}[2Jb c\\u{0}d\u{fffd}");
    }

    proptest! {
        #[test]
        fn no_datagram_is_lost_or_breaks_anything(datagram in prop::collection::vec(any::<u8>(), 0..600)) {
            let message = parse(&datagram);
            prop_assert!(!message.text.chars().any(char::is_control));
        }

        #[test]
        fn nothing_near_a_message_breaks_anything(
            text in "<[0-9]{1,3}>(1 |)([-0-9TZ:.+ ]{0,40}|Oct 11 22:14:15 )[-a-z .\\[\\]\"=\\\\:]{0,80}"
        ) {
            let message = parse(text.as_bytes());
            prop_assert!(message.text.len() <= text.len());
        }
    }
}
