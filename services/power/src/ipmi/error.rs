//! Failed commands of `ipmitool`, read from its messages.

use std::path::PathBuf;
use std::time::Duration;

/// The longest text of `ipmitool` in an error.
const MAX_TEXT_CHARS: usize = 300;

/// Texts of a session that the privilege level of the account does not allow.
const PRIVILEGE: [&str; 3] = ["unauthorized role", "invalid role", "Set Session Privilege Level"];
/// Texts of a BMC that has no session left.
const NO_RESOURCES: [&str; 2] =
    ["insufficient resources for session", "insufficient resources for role"];
/// Texts of a user name or password that the BMC judged.
const PASSWORD: [&str; 4] =
    ["HMAC is invalid", "invalid integrity check", "unauthorized name", "invalid name length"];

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there.
    #[error("the program {} is not installed on this server: IPMI needs it", .0.display())]
    NotInstalled(PathBuf),
    /// The program cannot be started.
    #[error("ipmitool cannot be started")]
    NotStarted(#[source] std::io::Error),
    /// The program did not end in time, and was killed.
    #[error("the BMC did not answer in {} seconds: ipmitool was stopped", .0.as_secs())]
    Timeout(Duration),
    /// The BMC does not answer.
    #[error("the BMC does not answer over IPMI: {0}")]
    NoAnswer(String),
    /// The user name or the password is not accepted.
    #[error("the BMC refuses the user name or the password: {0}")]
    Denied(String),
    /// The account may not open a session with a sufficient privilege level.
    #[error("the BMC gives this account less than the privilege OPERATOR, which power needs: {0}")]
    Privilege(String),
    /// The BMC opens no session with these parameters, such as the cipher suite.
    #[error("the BMC opens no session: {0}")]
    NoSession(String),
    /// The BMC is busy.
    #[error("the BMC is busy: {0}")]
    Busy(String),
    /// The BMC refused a command.
    #[error("the BMC refused {command:?}: {text}")]
    Refused {
        /// The command of `ipmitool`.
        command: String,
        /// The message of `ipmitool`.
        text: String,
    },
    /// IPMI has no command for this.
    #[error("IPMI has no command for {0}")]
    Unsupported(String),
    /// The output is not as expected.
    #[error("ipmitool printed {0:?}")]
    Output(String),
}

impl Error {
    /// Returns the error that `messages` of `ipmitool -v` report, after `command` failed.
    pub(super) fn read(command: &str, messages: &str) -> Self {
        let has = |parts: &[&str]| parts.iter().any(|part| messages.contains(part));
        let line = |part: &str| shorten(messages.lines().find(|line| line.contains(part)));
        if has(&PRIVILEGE) {
            let at = PRIVILEGE.iter().find(|part| messages.contains(**part));
            return Self::Privilege(line(at.copied().unwrap_or_default()));
        }
        if has(&NO_RESOURCES) {
            return Self::Busy(line("insufficient resources"));
        }
        if has(&PASSWORD) && has(&["RAKP"]) {
            return Self::Denied(line("RAKP"));
        }
        if has(&["RAKP"]) {
            return Self::NoSession(line("RAKP"));
        }
        for part in ["open session response message", "does not support IPMI v2"] {
            if has(&[part]) {
                return Self::NoSession(line(part));
            }
        }
        if has(&["Address lookup"]) {
            return Self::NoAnswer(line("Address lookup"));
        }
        let last = shorten(messages.lines().rfind(|line| !line.trim().is_empty()));
        if has(&["Unable to establish", "no response", "timeout"]) {
            return Self::NoAnswer(last);
        }
        if has(&["Node busy", "Timeout"]) {
            return Self::Busy(last);
        }
        Self::Refused { command: command.to_owned(), text: last }
    }

    /// True if the same command may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::NoAnswer(_) | Self::Busy(_) | Self::NotStarted(_))
    }

    /// True if the BMC refused the command to the privilege level of the session (completion code D4h, IPMI 2.0 §5.2).
    pub(super) fn is_for_privilege(&self) -> bool {
        matches!(self, Self::Refused { text, .. } if text.contains("nsufficient privilege"))
    }

    /// True if the BMC refused this command, and another one may have the same effect.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unsupported(_))
    }
}

fn shorten(line: Option<&str>) -> String {
    let text = line.unwrap_or("ipmitool gave no reason").trim_matches(['>', ' ']);
    text.strip_prefix("Error: ").unwrap_or(text).chars().take(MAX_TEXT_CHARS).collect()
}
