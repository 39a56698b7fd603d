//! Failures of builds, as the owners of the images read them.

use std::fmt::Display;

use disk_images::Refusal;

/// Maximum size of a reason in bytes, as in the contract.
const MAX_REASON_BYTES: usize = 1024;

/// Failure of a build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Failure {
    /// Reason for people: one line that names the field, the value and the problem.
    pub(crate) reason: String,
    /// True if another attempt may succeed.
    pub(crate) may_retry: bool,
}

impl Failure {
    /// A failure that another attempt would repeat.
    pub(crate) fn permanent(reason: impl Display) -> Self {
        Self { reason: line(&reason.to_string()), may_retry: false }
    }

    /// A failure that another attempt may not have.
    pub(crate) fn temporary(reason: impl Display) -> Self {
        Self { reason: line(&reason.to_string()), may_retry: true }
    }

    /// The failure of an operation of this host.
    pub(crate) fn host(operation: &str, error: impl Display) -> Self {
        Self::temporary(format_args!("builder: {operation}: {error}"))
    }
}

/// A file at fault stays at fault. A full disk, or a missing program, is a fault of this host.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal.is_fault_of_file() {
            true => Self::permanent(refusal),
            false => Self::temporary(refusal),
        }
    }
}

/// Returns `text` as one line without control characters, at most [`MAX_REASON_BYTES`] long.
fn line(text: &str) -> String {
    let printable = |it: char| if it.is_control() { ' ' } else { it };
    let mut line: String = text.trim().chars().map(printable).collect();
    let end = (0..=MAX_REASON_BYTES).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or(0));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(Failure::permanent("a\nb\u{1b}[0m\n").reason, "a b [0m");
        let long = Failure::temporary("ä".repeat(1000)).reason;
        assert_eq!(long, "ä".repeat(512));
        assert_eq!(Failure::temporary("x".repeat(1025)).reason.len(), 1024);
    }

    #[test]
    fn only_a_fault_of_the_file_is_permanent() {
        assert!(!Failure::from(Refusal::Empty { wrapping: None }).may_retry);
        let full = Refusal::Io { operation: "writing".into(), error: "no space".into() };
        assert!(Failure::from(full).may_retry);
    }
}
