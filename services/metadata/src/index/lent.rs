//! Which addresses are lent, to whom and until when: what the leases say.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use tinwright::Mac;

use super::Feed;

/// An address is somebody's for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose.
    pub mac: Mac,
    /// Until when: it ends by itself, whether or not anybody says so.
    pub until: Instant,
    /// Whether it was got through the relay port that the machine's record names.
    pub at_port: bool,
}

/// The leases, and how fresh they are.
#[derive(Debug, Default)]
pub(super) struct Lent {
    leases: HashMap<IpAddr, Lease>,
    /// None where nobody lends addresses.
    pub(super) feed: Option<Feed>,
}

impl Lent {
    /// These are all the leases there are, as fresh as `feed`.
    pub(super) fn new(leases: impl IntoIterator<Item = (IpAddr, Lease)>, feed: Feed) -> Self {
        Self { leases: leases.into_iter().collect(), feed: Some(feed) }
    }

    /// Notes to whom `address` is lent; nothing: to nobody.
    pub(super) fn keep(&mut self, address: IpAddr, lease: Option<Lease>) {
        match lease {
            Some(lease) => self.leases.insert(address, lease),
            None => self.leases.remove(&address),
        };
    }

    /// The lease of `address`, while it lasts.
    pub(super) fn of(&self, address: IpAddr, now: Instant) -> Option<Lease> {
        self.leases.get(&address).copied().filter(|lease| now < lease.until)
    }

    /// The addresses lent to any of `macs`, in order. Looks at all leases.
    pub(super) fn to(&self, macs: &[Mac], now: Instant) -> Vec<IpAddr> {
        let own = |(address, lease): (&IpAddr, &Lease)| {
            (now < lease.until && macs.contains(&lease.mac)).then_some(*address)
        };
        let mut all: Vec<_> = self.leases.iter().filter_map(own).collect();
        all.sort();
        all
    }
}
