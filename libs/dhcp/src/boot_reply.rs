//! The boot part of a reply, and its words. The log, the timeline and explanations of boots take
//! their words from here.

use std::fmt::Display;

use crate::architecture::NoLoader;

/// The name of a file that never exists. Firmware that gets this name goes to its next boot device
/// at once. Without any offer it would wait for one for a minute, at each boot of an installed
/// machine.
pub const REFUSED_FILE: &str = "netboot-not-allowed";

/// The boot part of a reply: what the client is told to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootReply {
    /// No boot part: a NAK, a reply without a lease, or a client that does not boot from the
    /// network.
    Absent,
    /// A boot file, or a Raspberry Pi's boot menu.
    Offered,
    /// A loader for iPXE, because it is a network interface's firmware.
    Chainload,
    /// A file that never exists, or no file: the client goes on to its next boot device.
    Refused(RefusalReason),
}

impl BootReply {
    /// True if the client is told to boot from the network.
    pub fn is_offered(&self) -> bool {
        matches!(self, Self::Offered | Self::Chainload)
    }

    /// Returns the label in the log.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Absent => "none",
            Self::Offered => "offered",
            Self::Chainload => "chainload",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns the reason of a refusal; none if the client is not refused. `decision` is the reason
    /// of the boot decision.
    pub fn refusal(&self, decision: impl Display) -> Option<String> {
        let Self::Refused(refusal) = self else { return None };
        Some(match refusal {
            RefusalReason::NotAllowed => decision.to_string(),
            RefusalReason::RefusedFile | RefusalReason::NoLoader(_) => refusal.to_string(),
        })
    }

    /// Returns the architectures for which the site has no loader, if the client is refused for
    /// that.
    pub fn no_loader(&self) -> &[u16] {
        match self {
            Self::Refused(RefusalReason::NoLoader(reason)) => &reason.architectures,
            Self::Refused(RefusalReason::NotAllowed | RefusalReason::RefusedFile)
            | Self::Absent
            | Self::Offered
            | Self::Chainload => &[],
        }
    }
}

/// The reason why a client is refused a boot file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// The boot decision refuses the boot. The decision has the reason.
    #[error("the machine may not boot from the network")]
    NotAllowed,
    /// The machine's record names the file that never exists as its boot file.
    #[error("its record names the boot file netboot-not-allowed, which never exists")]
    RefusedFile,
    /// The site has no loader for the client's architectures.
    #[error("{0}")]
    NoLoader(NoLoader),
}
