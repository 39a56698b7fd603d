//! Parses datagrams as messages. No datagram is refused: one in neither of the two formats becomes the text of a message.

use std::time::SystemTime;

use super::{rfc3164, rfc5424};

/// The priority of a datagram without a valid one: user, notice (RFC 3164, section 4.3.3).
const DEFAULT_PRIORITY: Priority = Priority(13);
/// The highest priority: facility 23, severity 7.
const MAX_PRIORITY: u8 = 191;

/// The names of the facilities by number (RFC 5424, section 6.2.1, table 1).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// The names of the severities by number (RFC 5424, section 6.2.1, table 2).
const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Facility and severity: the facility's number times 8, plus the severity's (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(pub u8);

/// A parsed message. Fields that the datagram does not contain are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Facility and severity.
    pub priority: Priority,
    /// The time of sending by the sender's clock, if it has a year and a time zone.
    pub sent: Option<SystemTime>,
    /// The sender's host name.
    pub hostname: String,
    /// The name of the program.
    pub app: String,
    /// The process id of the program.
    pub process: String,
    /// The text, with control characters escaped.
    pub text: String,
}

impl Priority {
    /// Returns the name of the facility.
    pub fn facility(self) -> &'static str {
        FACILITIES.get(usize::from(self.0 / 8)).copied().unwrap_or_default()
    }

    /// Returns the name of the severity.
    pub fn severity(self) -> &'static str {
        SEVERITIES.get(usize::from(self.0 % 8)).copied().unwrap_or_default()
    }

    /// True for severity 7, which is stored only if the site's settings say so.
    pub fn is_debug(self) -> bool {
        self.0 % 8 == 7
    }
}

impl Message {
    /// Parses `datagram`.
    pub fn parse(datagram: &[u8]) -> Self {
        let text = String::from_utf8_lossy(datagram);
        let text = text.trim_end_matches(['\n', '\r', '\0']);
        let Some((priority, rest)) = priority(text) else {
            return Self { text: escaped(text), ..Self::empty(DEFAULT_PRIORITY) };
        };
        let read = rfc5424::parse(priority, rest);
        read.unwrap_or_else(|| rfc3164::parse(priority, rest))
    }

    /// Returns an empty message of `priority`.
    pub(super) fn empty(priority: Priority) -> Self {
        let none = String::new;
        Self { priority, sent: None, hostname: none(), app: none(), process: none(), text: none() }
    }
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

/// Returns `text` with control characters escaped: a sender must not control a terminal.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    // The text is stored for long, and reserving for escapes (six bytes a character) may have left much unused room.
    out.shrink_to_fit();
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_datagram_with_an_invalid_priority_is_all_text() {
        for wrong in ["<192>a", "<>a", "<0000014>a", "<014>a", "<-1>a", "<1", "<1a>b", "", "a"] {
            let message = Message::parse(wrong.as_bytes());
            let priority = (message.priority.facility(), message.priority.severity());
            assert_eq!(priority, ("user", "notice"), "{wrong}");
            assert_eq!(message.text, wrong);
        }
    }

    #[test]
    fn a_priority_is_facility_and_severity() {
        let of = |text: &str| {
            let Message { priority, text, .. } = Message::parse(text.as_bytes());
            (priority.facility(), priority.severity(), text)
        };
        assert_eq!(of("<0>x"), ("kern", "emerg", "x".into()));
        assert_eq!(of("<14>hello"), ("user", "info", "hello".into()));
        assert_eq!(of("<191>x"), ("local7", "debug", "x".into()));
    }

    #[test]
    fn control_characters_are_escaped_and_the_line_ending_is_removed() {
        let message = Message::parse(b"<14>a\x1b[2Jb\tc\x00d\xff\r\n");
        assert_eq!(message.text, "a\\u{1b}[2Jb c\\u{0}d\u{fffd}");
    }

    proptest! {
        #[test]
        fn no_datagram_is_lost_or_breaks_anything(datagram in prop::collection::vec(any::<u8>(), 0..600)) {
            let message = Message::parse(&datagram);
            prop_assert!(!message.text.chars().any(char::is_control));
        }

        #[test]
        fn nothing_near_a_message_breaks_anything(
            text in "<[0-9]{1,3}>(1 |)([-0-9TZ:.+ ]{0,40}|Oct 11 22:14:15 )[-a-z .\\[\\]\"=\\\\:]{0,80}"
        ) {
            let message = Message::parse(text.as_bytes());
            prop_assert!(message.text.len() <= text.len());
        }
    }
}
