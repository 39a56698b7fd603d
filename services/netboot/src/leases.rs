//! Leases of pool addresses: durable in the store, and in memory for replies.
//!
//! ```text
//! netboot/lease/<address>      the client that has the address, or had it last
//!
//! DHCP ─claim─▶ commit, expecting the record as it was read ─▶ table ─▶ ACK
//! other processes' commits ─mirror─▶ table
//! ```
//!
//! The table in memory only proposes: an address is leased once the commit succeeds, which expects that the record did not
//! change meanwhile. So two processes over one store never lease one address to two clients, and a crash between commit and
//! reply leaves an address bound to a client that requests it again. Concurrent commits share one `fdatasync` in the store,
//! so they are not batched here.
//!
//! While the store is unavailable, no new lease is granted, and a client that renews gets the rest of its committed lease.

mod api;
mod record;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt as _};
use runtime::clock::Clock;
use store::mirror::Mirror;
use store::records::{self, Change, CheckReport, Records};
use store::{ScopedStore, Store};
use tinwright::netboot::v1 as pb;
use tinwright::watch::WatchEvent;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use self::api::Api;
use self::record::LeaseKind;
use crate::Mac;
use crate::pool::{Event, Lease, State, Table};

/// The longest time of a commit: a client that waits for its ACK repeats its request after four seconds (RFC 2131, section 4.1).
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Attempts to withhold an address while other writers come first.
const MAX_ATTEMPTS: usize = 8;
/// The interval at which expired records are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of queued RELEASEs and DECLINEs, and of their concurrent commits. No client waits
/// for these commits; concurrent ones share an `fdatasync`.
const MAX_RETURNED: usize = 128;

/// A lease or a renewal to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    /// The duration of the lease.
    pub duration: Duration,
    /// True if the request came from the relay port in the client's record; none if the client renews past the relay.
    pub at_port: Option<bool>,
}

/// An address that was not withheld.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WithholdError {
    /// A client leases it.
    #[error("{address} is leased to {} until {}", .lease.mac, prost_types::Timestamp::from(.lease.ends))]
    Leased {
        /// The address.
        address: Ipv4Addr,
        /// The lease.
        lease: Lease,
    },
    /// The store failed.
    #[error("the store failed")]
    Store(#[source] store::Error),
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The lease is durable for this duration. It is shorter than claimed while the store is unavailable.
    Granted(Duration),
    /// The address is not the client's. The record has been read again: evaluate the request again.
    Lost,
    /// The store is unavailable, and the client has no committed lease.
    StoreUnavailable,
}

/// All leases. Clones share them.
#[derive(Clone, Debug)]
pub struct Leases {
    records: Records<LeaseKind>,
    mirror: Mirror<LeaseKind>,
    shared: Arc<Shared>,
    clock: Clock,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Leased>,
    ready: watch::Sender<bool>,
    returned: mpsc::Sender<ReturnedAddress>,
    /// Locked by the task that stores returned addresses.
    to_return: tokio::sync::Mutex<mpsc::Receiver<ReturnedAddress>>,
}

#[derive(Debug, Default)]
struct Leased {
    table: Table,
    /// The last known record of each address. Only addresses of pools are in the map, which bounds it.
    known: HashMap<Ipv4Addr, KnownRecord>,
}

#[derive(Debug)]
struct KnownRecord {
    /// The revision that wrote or deleted the record.
    revision: u64,
    record: Option<pb::Lease>,
}

/// What a record has besides the lease.
#[derive(Clone, Copy, Debug, Default)]
struct Terms<'a> {
    /// True if the request came from the relay port in the client's record; none to keep what is stored.
    at_port: Option<bool>,
    /// The address is withheld for this object.
    withheld_for: &'a str,
}

/// A RELEASE or DECLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReturnedAddress {
    /// The address.
    address: Ipv4Addr,
    /// The client.
    mac: Mac,
    /// [`Event::Release`] or [`Event::Decline`].
    event: Event,
    /// The time of the message.
    at: SystemTime,
}

impl Leases {
    /// Returns the leases in `store`; [`run`](Self::run) reads them.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let records = Records::new(ScopedStore::new(store, "netboot"));
        let (returned, receiver) = mpsc::channel(MAX_RETURNED);
        let (state, ready) = Default::default();
        let shared = Shared { state, ready, returned, to_return: receiver.into() };
        Self { mirror: Mirror::new(records.clone()), records, shared: Arc::new(shared), clock }
    }

    /// True once all leases have been read. No address is leased before.
    pub fn is_ready(&self) -> bool {
        *self.shared.ready.borrow()
    }

    /// Resolves once all leases have been read.
    pub async fn ready(&self) {
        let mut ready = self.shared.ready.subscribe();
        // The sender lives as long as the leases do.
        let _ready = ready.wait_for(|ready| *ready).await;
    }

    /// Calls `with` with the table of leases, which is locked meanwhile.
    pub fn table<T>(&self, with: impl FnOnce(&mut Table) -> T) -> T {
        with(&mut self.state().table)
    }

    /// Returns the state of `address`; none if it is free.
    pub fn at(&self, address: Ipv4Addr, now: SystemTime) -> Option<Lease> {
        self.state().table.state(address, now)
    }

    /// Returns the client that leases `address`.
    pub fn holder(&self, address: IpAddr, now: SystemTime) -> Option<Mac> {
        let IpAddr::V4(address) = address else { return None };
        let lease = self.at(address, now).filter(|lease| lease.state == State::Bound);
        lease.map(|lease| lease.mac)
    }

    /// Commits a lease. One that is already committed for long enough is not written again.
    pub async fn claim(&self, claim: Claim, now: SystemTime) -> ClaimResult {
        let Claim { address, mac, duration, at_port } = claim;
        let before = self.at(address, now);
        let moved = at_port.is_some_and(|at_port| at_port != self.was_at_port(address, mac));
        let own = before.filter(|lease| lease.state == State::Bound && lease.mac == mac);
        let committed = own.and_then(|lease| lease.ends.duration_since(now).ok());
        if !moved && committed.is_some_and(|left| left >= duration) {
            return ClaimResult::Granted(duration);
        }
        let Some(bound) = Lease::after(before, mac, Event::Bind(now + duration), now) else {
            return ClaimResult::Lost;
        };
        match self.write(address, bound, Terms { at_port, withheld_for: "" }, now).await {
            Ok(()) => ClaimResult::Granted(duration),
            Err(records::Error::Store(error)) => {
                tracing::warn!(error = runtime::cause(&error), lease.addr = %address, "lease not stored");
                // A lease of no seconds would be none.
                let left = committed.map(|left| left.as_secs()).filter(|left| *left > 0);
                left.map_or(ClaimResult::StoreUnavailable, |left| {
                    ClaimResult::Granted(Duration::from_secs(left))
                })
            }
            Err(_changed) => ClaimResult::Lost,
        }
    }

    /// Withholds `address` for `holder`, unless one of `clients` leases it. Fails with the lease of another client.
    pub(crate) async fn withhold(
        &self,
        address: Ipv4Addr,
        clients: &[Mac],
        holder: &str,
    ) -> Result<(), WithholdError> {
        for _ in 0..MAX_ATTEMPTS {
            let now = self.clock.wall();
            let withheld = match Lease::withheld(self.at(address, now), now) {
                Err(lease) if clients.contains(&lease.mac) => return Ok(()),
                Err(lease) => return Err(WithholdError::Leased { address, lease }),
                Ok(withheld) => withheld,
            };
            let terms = Terms { at_port: Some(false), withheld_for: holder };
            match self.write(address, withheld, terms, now).await {
                Err(records::Error::Store(error)) => return Err(WithholdError::Store(error)),
                Ok(()) => return Ok(()),
                // The record has been read again.
                Err(_changed) => {}
            }
        }
        Err(WithholdError::Store(store::Error::Unavailable("other requests came first".into())))
    }

    /// Queues a RELEASE or DECLINE. If the queue is full, the lease ends by time.
    pub fn take_back(&self, address: Ipv4Addr, mac: Mac, event: Event, at: SystemTime) {
        let returned = ReturnedAddress { address, mac, event, at };
        if self.shared.returned.try_send(returned).is_err() {
            tracing::debug!(lease.addr = %address, "release or decline dropped: queue full");
        }
    }

    /// Stores queued releases and declines; never resolves.
    async fn store_returned(&self) {
        let mut receiver = self.shared.to_return.lock().await;
        let returned = stream::poll_fn(|cx| receiver.poll_recv(cx));
        let store = async |one: ReturnedAddress| {
            if let Err(error) = self.give_back(one).await {
                let error = runtime::cause(&error);
                tracing::debug!(error, lease.addr = %one.address, "release or decline not stored");
            }
        };
        returned.for_each_concurrent(MAX_RETURNED, store).await;
    }

    /// Stores a RELEASE or DECLINE.
    async fn give_back(&self, returned: ReturnedAddress) -> Result<(), records::Error> {
        let ReturnedAddress { address, mac, event, at } = returned;
        let Some(after) = Lease::after(self.at(address, at), mac, event, at) else { return Ok(()) };
        if after.state == State::Declined {
            tracing::warn!(%address, %mac, "address declined: another host uses it");
            // Effective at once, even if the commit fails.
            self.state().table.record(address, Some(after));
        }
        self.write(address, after, Terms::default(), at).await
    }

    /// Returns the addresses that the client `mac` has or had, the one that ends last first.
    fn addresses(&self, mac: Mac) -> Vec<Ipv4Addr> {
        let state = self.state();
        let own = state.leases().filter(|(_, lease, _)| lease.mac == mac);
        let mut own: Vec<_> = own.map(|(address, lease, _)| (lease.ends, address)).collect();
        own.sort();
        own.into_iter().rev().map(|(_, address)| address).collect()
    }

    async fn remove(&self, address: Ipv4Addr, old: &pb::Lease) -> Result<(), records::Error> {
        let revision = self.commit(self.records.to_delete(old)).await?;
        self.state().record(address, revision, None);
        Ok(())
    }

    /// Checks that all records can be read; there are no indexes.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, records::Error> {
        self.records.check(mend).await
    }

    /// Reads all leases, follows other processes' changes, and deletes expired records, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            () = self.mirror.run(stop.clone()) => {}
            () = self.follow() => {}
            () = self.sweep() => {}
            () = self.store_returned() => {}
        }
        Ok(())
    }

    async fn follow(&self) {
        loop {
            let mut watcher = self.mirror.watch();
            loop {
                match watcher.next().await {
                    Ok(WatchEvent::Put(record)) => self.state().put(record),
                    Ok(WatchEvent::Deleted(id)) => self.state().deleted(&id),
                    Ok(WatchEvent::Synced) => drop(self.shared.ready.send_replace(true)),
                    // A deletion that was missed is found when a client claims the address.
                    Err(store::mirror::TooSlow) => break,
                }
            }
        }
    }

    async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tick.tick().await;
            self.sweep_at(self.clock.wall()).await;
        }
    }

    /// Deletes the records that no client is preferred by any longer at `now`.
    async fn sweep_at(&self, now: SystemTime) {
        self.state().table.remove_expired(now);
        let expired = self.state().expired(now);
        for (address, old) in expired {
            match self.remove(address, &old).await {
                // Changed: another process has deleted or replaced it.
                Ok(()) | Err(records::Error::Changed { .. }) => {}
                Err(error) => {
                    tracing::debug!(error = runtime::cause(&error), "expired leases not deleted");
                    return;
                }
            }
        }
    }

    /// Commits the `lease` of `address`. If the record has changed meanwhile, reads it again.
    async fn write(
        &self,
        address: Ipv4Addr,
        lease: Lease,
        terms: Terms<'_>,
        now: SystemTime,
    ) -> Result<(), records::Error> {
        let at_port = terms.at_port.unwrap_or_else(|| self.was_at_port(address, lease.mac));
        let old = self.state().known.get(&address).and_then(|known| known.record.clone());
        let Some(new) = record::write(address, lease, old.as_ref(), now) else { return Ok(()) };
        let new = pb::Lease { at_port, withheld_for: terms.withheld_for.to_owned(), ..new };
        let change = match &old {
            Some(old) => self.records.to_replace(old, &new),
            None => self.records.to_create(&new),
        };
        match self.commit(change).await {
            Ok(revision) => {
                let new = pb::Lease { revision: revision.cast_signed(), ..new };
                self.state().record(address, revision, Some(new));
                Ok(())
            }
            Err(error @ records::Error::Store(_)) => Err(error),
            Err(changed) => {
                match self.records.get(&address.to_string()).await? {
                    Some(record) => self.state().put(record),
                    None => self.state().deleted(&address.to_string()),
                }
                Err(changed)
            }
        }
    }

    async fn commit(&self, change: Change) -> Result<u64, records::Error> {
        match tokio::time::timeout(COMMIT_TIMEOUT, self.records.commit(change)).await {
            Ok(committed) => Ok(committed?.0),
            Err(elapsed) => Err(store::Error::Unavailable(elapsed.into()).into()),
        }
    }

    /// True if the client `mac` leased `address` through its relay port.
    fn was_at_port(&self, address: Ipv4Addr, mac: Mac) -> bool {
        let state = self.state();
        let old = state.known.get(&address).and_then(|known| known.record.as_ref());
        old.is_some_and(|old| old.at_port && old.mac == mac.to_string())
    }

    // The state is whole between any two statements that change it, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, Leased> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leased {
    /// Records the stored lease of an address as of `revision`, unless a later one is known.
    fn record(&mut self, address: Ipv4Addr, revision: u64, record: Option<pb::Lease>) {
        if self.known.get(&address).is_some_and(|known| known.revision > revision) {
            return;
        }
        let lease = record.as_ref().and_then(record::read).map(|(_, lease)| lease);
        self.table.record(address, lease);
        self.known.insert(address, KnownRecord { revision, record });
    }

    fn put(&mut self, record: pb::Lease) {
        if let Ok(address) = record.address.parse() {
            self.record(address, record.revision.cast_unsigned(), Some(record));
        }
    }

    /// Records that a record was deleted; the revision of the deletion is not known.
    fn deleted(&mut self, id: &str) {
        let Ok(address) = id.parse() else { return };
        let revision = self.known.get(&address).map_or(0, |known| known.revision);
        self.record(address, revision, None);
    }

    fn expired(&self, now: SystemTime) -> Vec<(Ipv4Addr, pb::Lease)> {
        let expired = self.leases().filter(|(_, lease, _)| lease.at(now).is_none());
        expired.map(|(address, _, record)| (address, record.clone())).collect()
    }

    fn leases(&self) -> impl Iterator<Item = (Ipv4Addr, Lease, &pb::Lease)> {
        let records = self.known.values().filter_map(|known| known.record.as_ref());
        records.filter_map(|record| {
            let (address, lease) = record::read(record)?;
            Some((address, lease, record))
        })
    }
}

#[cfg(test)]
mod tests;
