//! A message, and the names of its priority.

use std::time::SystemTime;

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
    /// Returns an empty message of `priority`.
    pub(crate) fn empty(priority: Priority) -> Self {
        let none = String::new;
        Self { priority, sent: None, hostname: none(), app: none(), process: none(), text: none() }
    }
}

/// Returns `text` with control characters escaped: a sender must not control a terminal.
pub(crate) fn escaped(text: &str) -> String {
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
