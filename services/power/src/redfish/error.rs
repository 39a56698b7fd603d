//! What went wrong between us and a BMC, and whether asking again may help.

use std::time::Duration;

use reqwest::StatusCode;

/// Why a BMC did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not reached, cut off, or not the BMC that its certificate should prove.
    #[error("the BMC cannot be reached")]
    Wire(#[from] reqwest::Error),
    /// Busy, or failing: the same may succeed later.
    #[error("the BMC answered {status}: {text}")]
    Busy {
        /// What it answered.
        status: StatusCode,
        /// What it said besides.
        text: String,
        /// How long it wants to be left alone.
        after: Duration,
    },
    /// It does not do this.
    #[error("the BMC refused with {status}: {text}")]
    Refused {
        /// What it answered.
        status: StatusCode,
        /// What it said besides.
        text: String,
    },
    /// It does not let us in.
    #[error("the BMC does not let us in ({status}): {text}")]
    Denied {
        /// What it answered.
        status: StatusCode,
        /// What it said besides.
        text: String,
    },
    /// A task it began failed.
    #[error("the BMC's task ended {0}")]
    Task(String),
    /// It has several systems, or none, and its record names none.
    #[error("the BMC has {0} systems: the one meant has to be named")]
    Which(usize),
    /// It has none of this id or name.
    #[error("the BMC has no system {0:?}")]
    NoSystem(String),
    /// It does not keep to Redfish.
    #[error("the BMC is odd: {0}")]
    Odd(String),
    /// The TLS library refused its configuration.
    #[error("no TLS")]
    Tls(#[from] rustls::Error),
}

impl Error {
    /// Whether the BMC failed by itself (500): it may do better in a moment, or never do this at all.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Busy { status, .. } if *status == StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Whether the same request may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Wire(_) | Self::Busy { .. } => true,
            Self::Refused { .. }
            | Self::Denied { .. }
            | Self::Task(_)
            | Self::Which(_)
            | Self::NoSystem(_)
            | Self::Odd(_)
            | Self::Tls(_) => false,
        }
    }

    /// Whether only this way of asking is refused, and another may do.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Task(_) => true,
            Self::Wire(_)
            | Self::Busy { .. }
            | Self::Denied { .. }
            | Self::Which(_)
            | Self::NoSystem(_)
            | Self::Odd(_)
            | Self::Tls(_) => false,
        }
    }

    /// How long the BMC wants to be left alone.
    pub fn after(&self) -> Duration {
        match self {
            Self::Busy { after, .. } => *after,
            Self::Wire(_)
            | Self::Refused { .. }
            | Self::Denied { .. }
            | Self::Task(_)
            | Self::Which(_)
            | Self::NoSystem(_)
            | Self::Odd(_)
            | Self::Tls(_) => Duration::ZERO,
        }
    }

    pub(super) fn is_not_there(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if super::is_not_there(*status))
    }

    /// This error and its sources in one line, for a record that people read: it has no place for a chain.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}
