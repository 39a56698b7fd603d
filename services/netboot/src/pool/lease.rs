//! What an address of a pool can be, and what leads from one state to another.

use std::time::{Duration, SystemTime};

use crate::Mac;

/// How long an offer stands.
pub const OFFERED: Duration = Duration::from_secs(60);
/// How long nobody gets an address that was found in use.
pub const DECLINED: Duration = Duration::from_secs(10 * 60);
/// How long its last client is the first to get an address again.
pub const PREFERRED: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of an address. One that nothing became of is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// A client was told of it.
    Offered {
        /// Who.
        mac: Mac,
        /// How long the offer stands.
        until: SystemTime,
    },
    /// A client has it.
    Bound {
        /// Who.
        mac: Mac,
        /// Until when.
        until: SystemTime,
    },
    /// Its client gave it back.
    Released {
        /// Who.
        mac: Mac,
        /// When.
        at: SystemTime,
    },
    /// Its client did not ask for it any longer.
    Expired {
        /// Who.
        mac: Mac,
        /// When it ended.
        at: SystemTime,
    },
    /// Somebody uses it who was not given it.
    Declined {
        /// Who found that out.
        mac: Mac,
        /// Until when nobody gets it.
        until: SystemTime,
    },
}

/// What happens to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client is told of it.
    Offer,
    /// A client is given it, or keeps it, until then.
    Bind(SystemTime),
    /// A client gives it back.
    Release,
    /// A client finds it in use.
    Decline,
}

/// The address is another client's, or nobody's to speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address is not this client's")]
pub struct Illegal;

impl Lease {
    /// The client it is about.
    pub fn mac(self) -> Mac {
        match self {
            Self::Offered { mac, .. }
            | Self::Bound { mac, .. }
            | Self::Released { mac, .. }
            | Self::Expired { mac, .. }
            | Self::Declined { mac, .. } => mac,
        }
    }

    /// When it ends, or ended.
    pub fn ends(self) -> SystemTime {
        match self {
            Self::Offered { until, .. }
            | Self::Bound { until, .. }
            | Self::Declined { until, .. } => until,
            Self::Released { at, .. } | Self::Expired { at, .. } => at,
        }
    }

    /// What time has made of it by `now`; nothing once it is as if it had never been.
    pub fn at(self, now: SystemTime) -> Option<Self> {
        let stands = |since: SystemTime, most| now < since + most;
        match self {
            Self::Offered { until, .. } | Self::Declined { until, .. } => {
                (now < until).then_some(self)
            }
            Self::Bound { until, .. } if now < until => Some(self),
            Self::Bound { mac, until } => Self::Expired { mac, at: until }.at(now),
            Self::Released { at, .. } | Self::Expired { at, .. } => {
                stands(at, PREFERRED).then_some(self)
            }
        }
    }

    /// Whether, as it is, another client may be given the address.
    pub fn leaves_free(self) -> bool {
        match self {
            Self::Released { .. } | Self::Expired { .. } => true,
            Self::Offered { .. } | Self::Bound { .. } | Self::Declined { .. } => false,
        }
    }

    /// What `before`, as it is at `now`, becomes when `event` comes from the client `mac`.
    pub fn after(
        before: Option<Self>,
        mac: Mac,
        event: Event,
        now: SystemTime,
    ) -> Result<Self, Illegal> {
        let before = before.and_then(|lease| lease.at(now));
        let own = before.is_some_and(|lease| lease.mac() == mac);
        let free = before.is_none_or(Self::leaves_free);
        match (event, before) {
            (_, Some(Self::Declined { .. })) => Err(Illegal),
            // Who has it already has more than an offer.
            (Event::Offer, Some(bound @ Self::Bound { .. })) if own => Ok(bound),
            (Event::Offer, _) if own || free => Ok(Self::Offered { mac, until: now + OFFERED }),
            (Event::Bind(until), _) if own || free => Ok(Self::Bound { mac, until }),
            (Event::Release, Some(Self::Bound { .. })) if own => {
                Ok(Self::Released { mac, at: now })
            }
            (Event::Decline, Some(Self::Offered { .. } | Self::Bound { .. })) if own => {
                Ok(Self::Declined { mac, until: now + DECLINED })
            }
            (Event::Offer | Event::Bind(_) | Event::Release | Event::Decline, _) => Err(Illegal),
        }
    }
}
