//! Parses datagrams as messages. None is refused: a datagram in neither of the two forms is all text.

use std::time::SystemTime;

use super::{rfc3164, rfc5424};

/// The priority of a datagram without one, or with a wrong one: user, notice (RFC 3164, section 4.3.3).
const DEFAULT: Priority = Priority(13);
/// The highest priority there is: facility 23, severity 7.
const HIGHEST: u8 = 191;

/// By number (RFC 5424, section 6.2.1, table 1).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// By number (table 2).
const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Facility and severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(u8);

/// A message, as far as it could be parsed. Fields that are not given are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Facility and severity.
    pub priority: Priority,
    /// Time of sending by the sender's clock, if it has year and zone.
    pub sent: Option<SystemTime>,
    /// Host name that the sender gives.
    pub hostname: String,
    /// The program.
    pub app: String,
    /// Its process.
    pub process: String,
    /// The text, control characters escaped.
    pub text: String,
}

impl Priority {
    /// As its number.
    pub fn new(number: u8) -> Option<Self> {
        (number <= HIGHEST).then_some(Self(number))
    }

    /// By name.
    pub fn facility(self) -> &'static str {
        FACILITIES.get(usize::from(self.0 / 8)).copied().unwrap_or_default()
    }

    /// By name.
    pub fn severity(self) -> &'static str {
        SEVERITIES.get(usize::from(self.0 % 8)).copied().unwrap_or_default()
    }

    /// True for severity 7, which is dropped unless the site wants it.
    pub fn is_debug(self) -> bool {
        self.0 % 8 == 7
    }
}

impl Message {
    /// Reads `datagram`.
    pub fn parse(datagram: &[u8]) -> Self {
        let text = String::from_utf8_lossy(datagram);
        let text = text.trim_end_matches(['\n', '\r', '\0']);
        let Some((priority, rest)) = priority(text) else {
            return Self { text: escaped(text), ..Self::empty(DEFAULT) };
        };
        let read = rfc5424::parse(priority, rest);
        read.unwrap_or_else(|| rfc3164::parse(priority, rest))
    }

    /// An empty message.
    pub(super) fn empty(priority: Priority) -> Self {
        let none = String::new;
        Self { priority, sent: None, hostname: none(), app: none(), process: none(), text: none() }
    }
}

/// `<PRI>`: one to three digits, at most 191, no leading zeros but in `<0>`; and what follows.
fn priority(text: &str) -> Option<(Priority, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let plain = digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((Priority::new(digits.parse().ok()?)?, rest))
}

/// `text` with its control characters escaped: a terminal must not obey a sender.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    // It is kept for long, and an escape is six times what it stands for.
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
