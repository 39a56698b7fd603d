//! Leases, as the store keeps them and as every answer is made from them: in memory.
//!
//! ```text
//! netboot/lease/<address>      who has it, or had it last
//!
//! DHCP ─claim─▶ commit, expecting the record as it was seen ─▶ table ─▶ ACK
//! other processes' commits ─mirror─▶ table
//! ```
//!
//! What is in memory only says what to try: an address is somebody's once the commit is through, which expects that nobody
//! changed the record meanwhile. So two processes over one store never give one address to two clients, and a crash
//! between commit and answer leaves an address bound to a client that asks for it again. Commits wait for each other's
//! `fdatasync` in the store, many for one, so there is no batch of our own.
//!
//! With the store away nobody is given anything new, and a client that renews is told what remains of what is committed.

mod api;
mod record;
mod release;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use store::mirror::{Mirror, Watcher};
use store::records::{self, Change, CheckReport, Listing, Records};
use store::{ScopedStore, Store};
use tinwright::netboot::v1 as pb;
use tinwright::watch::WatchEvent;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::api::Api;
use self::record::Kept;
use self::release::ReleaseQueue;
pub use self::release::ReturnedAddress;
use crate::Mac;
use crate::pool::{Event, Lease, Table};

/// How long a commit may take: a client that waits for its ACK asks again after four seconds (RFC 2131, section 4.1).
const COMMIT: Duration = Duration::from_secs(3);
/// How often what is over is removed.
const SWEEP: Duration = Duration::from_secs(60);

/// A client is to be given an address, or to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    /// For how long.
    pub duration: Duration,
    /// Whether it asks from the relay port that its record names; nothing where it renews past the relay.
    pub at_port: Option<bool>,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// It is the client's for so long, and will be after a power cut. Shorter than claimed while the store is away.
    Granted(Duration),
    /// It is not the client's. What is known has been read again: judge the request anew.
    Lost,
    /// Nobody can say while the store is away.
    StoreUnavailable,
}

/// The leases. Cheap to share.
#[derive(Clone, Debug)]
pub struct Leases {
    records: Records<Kept>,
    mirror: Mirror<Kept>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    read_back: watch::Sender<bool>,
    returned: ReleaseQueue,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// Of addresses that the pools lend, so no more than these have.
    seen: HashMap<Ipv4Addr, Seen>,
}

/// What was last seen of a record.
#[derive(Debug)]
struct Seen {
    /// When it was written or, where there is none, removed.
    revision: u64,
    record: Option<pb::Lease>,
}

impl Leases {
    /// Those kept in `store`; [`run`](Self::run) reads them.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let records = Records::new(ScopedStore::new(store, "netboot"));
        Self { mirror: Mirror::new(records.clone()), records, shared: Arc::default() }
    }

    /// Whether all that was kept has been read: nothing may be lent before.
    pub fn is_ready(&self) -> bool {
        *self.shared.read_back.borrow()
    }

    /// Resolves once it has.
    pub async fn ready(&self) {
        let mut ready = self.shared.read_back.subscribe();
        // The sender lives as long as the leases do.
        let _ready = ready.wait_for(|ready| *ready).await;
    }

    /// Reads the table of leases, which is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        read(&self.state().table)
    }

    /// How `address` is; nothing is free.
    pub fn at(&self, address: Ipv4Addr, now: SystemTime) -> Option<Lease> {
        self.state().table.state(address, now)
    }

    /// Whose `address` is.
    pub fn holder(&self, address: Ipv4Addr, now: SystemTime) -> Option<Mac> {
        match self.at(address, now)? {
            Lease::Bound { mac, .. } => Some(mac),
            Lease::Offered { .. }
            | Lease::Released { .. }
            | Lease::Expired { .. }
            | Lease::Declined { .. } => None,
        }
    }

    /// Holds `address` for the client `mac` for a minute. Returns false if another client has it.
    pub fn offer(&self, address: Ipv4Addr, mac: Mac, now: SystemTime) -> bool {
        self.state().table.offer(address, mac, now).is_ok()
    }

    /// Takes back what was offered to the client `mac`.
    pub fn withdraw(&self, mac: Mac) {
        self.state().table.withdraw(mac);
    }

    /// Gives an address to a client, durably. One that has it for long enough already is not written again.
    pub async fn claim(&self, claim: Claim, now: SystemTime) -> ClaimResult {
        let Claim { address, mac, duration, at_port } = claim;
        let state = self.at(address, now);
        let moved = at_port.is_some_and(|at_port| at_port != self.was_at_port(address, mac));
        let committed = match state {
            Some(Lease::Bound { mac: own, until }) if own == mac => until.duration_since(now).ok(),
            _ => None,
        };
        if !moved && committed.is_some_and(|left| left >= duration) {
            return ClaimResult::Granted(duration);
        }
        let Ok(bound) = Lease::after(state, mac, Event::Bind(now + duration), now) else {
            return ClaimResult::Lost;
        };
        match (self.write(address, bound, at_port, now).await, committed) {
            (Ok(()), _) => ClaimResult::Granted(duration),
            (Err(records::Error::Store(error)), left) => {
                tracing::warn!(error = &error as &dyn std::error::Error, lease.addr = %address, "lease not stored");
                // A lease of no seconds would be none.
                let left = left.map(|left| left.as_secs()).filter(|left| *left > 0);
                left.map_or(ClaimResult::StoreUnavailable, |left| {
                    ClaimResult::Granted(Duration::from_secs(left))
                })
            }
            (Err(_changed), _) => ClaimResult::Lost,
        }
    }

    /// Follows all of them, or the one of an address.
    fn watch(&self, address: Option<Ipv4Addr>) -> Watcher<Kept> {
        match address {
            Some(address) => self.mirror.watch_one(&address.to_string()),
            None => self.mirror.watch(),
        }
    }

    /// A page of records.
    async fn list(&self, after: &str, limit: usize) -> Result<Listing<pb::Lease>, records::Error> {
        self.records.list(after, limit, |_| true).await
    }

    /// The record of `address`.
    async fn get(&self, address: Ipv4Addr) -> Result<pb::Lease, records::Error> {
        self.records.require(&address.to_string()).await
    }

    /// The addresses that the client `mac` has or had, the one that ends last first.
    fn addresses(&self, mac: Mac) -> Vec<Ipv4Addr> {
        let state = self.state();
        let records = state.seen.values().filter_map(|seen| record::read(seen.record.as_ref()?));
        let mut own: Vec<_> = records
            .filter(|(_, lease)| lease.mac() == mac)
            .map(|(address, lease)| (lease.ends(), address))
            .collect();
        own.sort();
        own.into_iter().rev().map(|(_, address)| address).collect()
    }

    /// Frees `address`, whoever has it.
    async fn delete(&self, address: Ipv4Addr, revision: i64) -> Result<(), records::Error> {
        let old = self.records.at(&address.to_string(), revision).await?;
        self.remove(address, &old).await
    }

    async fn remove(&self, address: Ipv4Addr, old: &pb::Lease) -> Result<(), records::Error> {
        let revision = self.commit(self.records.to_delete(old)).await?;
        self.state().learn(address, revision, None);
        Ok(())
    }

    /// Whether records can be read; there are no indexes.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, records::Error> {
        self.records.check(mend).await
    }

    /// Reads what is kept, follows other processes' changes, and removes what is over, until `stop`.
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
                    Ok(WatchEvent::Deleted(id)) => self.state().gone(&id),
                    Ok(WatchEvent::Synced) => drop(self.shared.read_back.send_replace(true)),
                    // What was removed unheard of is found out when somebody claims it.
                    Err(store::mirror::TooSlow) => break,
                }
            }
        }
    }

    async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP);
        loop {
            tick.tick().await;
            self.sweep_at(SystemTime::now()).await;
        }
    }

    /// Removes the records that are of no use any more at `now`.
    async fn sweep_at(&self, now: SystemTime) {
        self.state().table.tidy(now);
        let over: Vec<_> = self.state().over(now).collect();
        for (address, old) in over {
            match self.remove(address, &old).await {
                // Another process was quicker.
                Ok(()) | Err(records::Error::Changed { .. }) => {}
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "old leases stay");
                    return;
                }
            }
        }
    }

    /// Commits what became of `address`; if somebody else changed it meanwhile, learns to what.
    async fn write(
        &self,
        address: Ipv4Addr,
        lease: Lease,
        at_port: Option<bool>,
        now: SystemTime,
    ) -> Result<(), records::Error> {
        let at_port = at_port.unwrap_or_else(|| self.was_at_port(address, lease.mac()));
        let old = self.state().seen.get(&address).and_then(|seen| seen.record.clone());
        let Some(new) = record::stored(address, lease, old.as_ref(), now) else { return Ok(()) };
        let new = pb::Lease { at_port, ..new };
        let change = match &old {
            Some(old) => self.records.to_replace(old, &new),
            None => self.records.to_create(&new),
        };
        match self.commit(change).await {
            Ok(revision) => {
                let new = pb::Lease { revision: revision.cast_signed(), ..new };
                self.state().learn(address, revision, Some(new));
                Ok(())
            }
            Err(error @ records::Error::Store(_)) => Err(error),
            Err(changed) => {
                match self.records.get(&address.to_string()).await? {
                    Some(record) => self.state().put(record),
                    None => self.state().gone(&address.to_string()),
                }
                Err(changed)
            }
        }
    }

    async fn commit(&self, change: Change) -> Result<u64, records::Error> {
        match tokio::time::timeout(COMMIT, self.records.commit(change)).await {
            Ok(done) => Ok(done?.0),
            Err(late) => Err(store::Error::Unavailable(late.into()).into()),
        }
    }

    /// Whether the client `mac` got `address` through its relay port.
    fn was_at_port(&self, address: Ipv4Addr, mac: Mac) -> bool {
        let state = self.state();
        let old = state.seen.get(&address).and_then(|seen| seen.record.as_ref());
        old.is_some_and(|old| old.at_port && old.mac == mac.to_string())
    }

    // What is in memory is whole between any two statements that touch it, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes what is stored of an address since `revision`, unless something later is known.
    fn learn(&mut self, address: Ipv4Addr, revision: u64, record: Option<pb::Lease>) {
        if self.seen.get(&address).is_some_and(|seen| seen.revision > revision) {
            return;
        }
        let lease = record.as_ref().and_then(record::read).map(|(_, lease)| lease);
        self.table.keep(address, lease);
        self.seen.insert(address, Seen { revision, record });
    }

    fn put(&mut self, record: pb::Lease) {
        if let Ok(address) = record.address.parse() {
            self.learn(address, record.revision.cast_unsigned(), Some(record));
        }
    }

    /// Takes that a record is not there; when it was removed nobody said.
    fn gone(&mut self, id: &str) {
        let Ok(address) = id.parse() else { return };
        let seen = self.seen.get(&address).map_or(0, |seen| seen.revision);
        self.learn(address, seen, None);
    }

    fn over(&self, now: SystemTime) -> impl Iterator<Item = (Ipv4Addr, pb::Lease)> {
        self.seen.values().filter_map(move |seen| {
            let record = seen.record.as_ref()?;
            let (address, lease) = record::read(record)?;
            lease.at(now).is_none().then(|| (address, record.clone()))
        })
    }
}

#[cfg(test)]
mod tests;
