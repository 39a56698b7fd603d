//! What clients on a link were heard to say, as far as it bears on what they are answered next: whose firmware has its
//! loader, and which address of a record is in use by somebody else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chain::{Chain, Message};
use super::client::{Class, Client};
use super::packet::Packet;
use super::site::{BootOffer, Reservation, WITHHELD};
use crate::Mac;
use crate::index::Known;

/// A request that is to be answered with a boot, or with none.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// The request.
    pub request: &'a Packet,
    /// Who sends it.
    pub client: &'a Client,
    /// What the boot decision came to.
    pub offer: BootOffer,
    /// When it was read.
    pub now: Instant,
}

/// What was heard on one link.
#[derive(Debug, Default)]
pub struct Heard {
    /// Where iPXE that is firmware gets a loader first, who has one. Links share it: a machine on several is one.
    chain: Option<Arc<Mutex<Chain>>>,
    /// When an address of a record was last found in use by somebody else. Whoever asks at a machine's port has its record,
    /// and may come with any number of Ethernet addresses.
    declined: Mutex<HashMap<Ipv4Addr, Instant>>,
}

impl Heard {
    /// With `chain`, iPXE that is firmware gets a loader first.
    pub fn new(chain: Option<Arc<Mutex<Chain>>>) -> Self {
        Self { chain, declined: Mutex::default() }
    }

    /// Whether iPXE that is firmware gets a loader first.
    pub fn chains(&self) -> bool {
        self.chain.is_some()
    }

    /// What the offer to who `asks` comes to, whose iPXE may be firmware; what it is sent for is noted.
    pub fn chained(&self, asks: Asks<'_>) -> BootOffer {
        self.chain().map_or(asks.offer, |mut chain| chained(&mut chain, asks))
    }

    /// The same as a question: nothing is noted.
    pub fn would_chain(&self, asks: Asks<'_>) -> BootOffer {
        let chain = self.chain().map(|chain| chain.clone());
        chain.map_or(asks.offer, |mut chain| chained(&mut chain, asks))
    }

    /// Notes that the interface `mac` has a loader whole.
    pub fn fetched(&self, mac: Mac, now: Instant) {
        if let Some(mut chain) = self.chain() {
            chain.fetched(mac, now);
        }
    }

    /// How long ago the interface `mac` was sent for a loader, where it gets none again for that.
    pub fn loader(&self, mac: Mac, now: Instant) -> Option<Duration> {
        self.chain()?.since(mac, now)
    }

    /// Notes that `address`, which a record has, is in use by somebody else.
    pub fn declined(&self, address: Ipv4Addr, now: Instant) {
        let mut declined = self.all_declined();
        declined.retain(|_, at| now.saturating_duration_since(*at) < WITHHELD);
        declined.insert(address, now);
    }

    /// What the record of `known` says, and when its address was last found in use by somebody else.
    pub fn record<'a>(&self, known: &'a Known) -> Cow<'a, Reservation> {
        let record = known.reservation();
        let declined =
            record.address.and_then(|own| self.all_declined().get(&own.address).copied());
        match declined {
            None => Cow::Borrowed(record),
            declined => Cow::Owned(Reservation { declined, ..record.clone() }),
        }
    }

    /// How many addresses are remembered that were found in use.
    #[cfg(test)]
    pub(super) fn withheld(&self) -> usize {
        self.all_declined().len()
    }

    fn chain(&self) -> Option<MutexGuard<'_, Chain>> {
        let chain = self.chain.as_deref()?;
        Some(chain.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn all_declined(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Instant>> {
        self.declined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chained(chain: &mut Chain, asks: Asks<'_>) -> BootOffer {
    let Asks { request, client, offer, now } = asks;
    let Some(message) = Message::of(request) else { return offer };
    match client.class {
        _ if offer != BootOffer::Offered || client.own => {}
        Class::Pxe | Class::Http => chain.firmware(message, now),
        Class::Ipxe { .. } if chain.admits(message, now) => return BootOffer::Chained,
        Class::Ipxe { .. } | Class::Ordinary => {}
    }
    offer
}
