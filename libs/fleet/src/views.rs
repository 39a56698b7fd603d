//! An edge's own view of each machine, with lookups.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use tinwright::{HardwareId, Mac};
use tokio::sync::watch;

use crate::fleet::Observer;
use crate::freshness::{FeedKind, FeedStates, Freshness};
use crate::leases::{LeaseTable, LeaseUpdate};
use crate::machine::{FleetMachine, MachineChange};

/// An edge's view of a machine, or of one of its interfaces.
pub trait MachineProjection: fmt::Debug + Send + Sync + Sized + 'static {
    /// A lookup key of the edge's own, beside id, MAC and address.
    type Key: fmt::Debug + Eq + Hash + Send + Sync;

    /// True if the edge uses leases.
    const USES_LEASES: bool = false;

    /// Returns the views of `machine`. Lookups by the machine's id, or by an address that several views have, find the first.
    /// A machine without views is not found.
    fn project(machine: &Arc<FleetMachine>) -> Vec<Self>;

    /// Returns the MACs by which it is found.
    fn macs(&self) -> impl Iterator<Item = Mac>;

    /// Returns the addresses by which it is found, in canonical form. Addresses that another machine has are ignored.
    fn addresses(&self) -> impl Iterator<Item = IpAddr>;

    /// Returns the key by which it is found.
    fn key(&self) -> Option<Self::Key>;
}

/// The views of all machines at one time.
#[derive(Debug)]
pub struct Snapshot<P: MachineProjection> {
    by_id: HashMap<HardwareId, Box<[Arc<P>]>, RandomState>,
    by_mac: HashMap<Mac, Arc<P>, RandomState>,
    by_address: HashMap<IpAddr, Arc<P>, RandomState>,
    by_key: HashMap<P::Key, Vec<Arc<P>>, RandomState>,
    /// The addresses that each machine claims and another machine has.
    contested: HashMap<HardwareId, Box<[IpAddr]>, RandomState>,
    /// The leases, if the edge uses them.
    pub leases: LeaseTable,
    /// The freshness of the feeds.
    pub feeds: FeedStates,
}

impl<P: MachineProjection> Default for Snapshot<P> {
    fn default() -> Self {
        Self {
            by_id: HashMap::default(),
            by_mac: HashMap::default(),
            by_address: HashMap::default(),
            by_key: HashMap::default(),
            contested: HashMap::default(),
            leases: LeaseTable::default(),
            feeds: FeedStates::default(),
        }
    }
}

impl<P: MachineProjection> Snapshot<P> {
    /// Returns the first view of the machine with this id.
    pub fn by_id(&self, id: HardwareId) -> Option<&Arc<P>> {
        self.by_id.get(&id)?.first()
    }

    /// Returns the view of the interface with this MAC.
    pub fn by_mac(&self, mac: Mac) -> Option<&Arc<P>> {
        self.by_mac.get(&mac)
    }

    /// Returns the view of the machine that has `address`, which is in canonical form.
    pub fn by_address(&self, address: IpAddr) -> Option<&Arc<P>> {
        self.by_address.get(&address)
    }

    /// True if several machines claim `address`, which is in canonical form.
    pub fn is_contested(&self, address: IpAddr) -> bool {
        self.contested.values().any(|addresses| addresses.contains(&address))
    }

    /// Returns the views with this key.
    pub fn by_key<Q>(&self, key: &Q) -> &[Arc<P>]
    where
        P::Key: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the first view of each machine.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &Arc<P>> {
        // A machine without views is not in the table.
        self.by_id.values().map(|views| &views[0])
    }

    /// Replaces the views of the machine `id`. Its `contested` addresses belong to other machines.
    pub fn put(&mut self, id: HardwareId, views: Vec<P>, contested: &[IpAddr]) {
        self.remove(id);
        let views: Box<[_]> = views.into_iter().map(Arc::new).collect();
        // In reverse order, so that the first view wins.
        for view in views.iter().rev() {
            self.by_mac.extend(view.macs().map(|mac| (mac, view.clone())));
            let own = view.addresses().filter(|address| !contested.contains(address));
            self.by_address.extend(own.map(|address| (address, view.clone())));
            if let Some(key) = view.key() {
                self.by_key.entry(key).or_default().push(view.clone());
            }
        }
        if !contested.is_empty() {
            self.contested.insert(id, contested.into());
        }
        if !views.is_empty() {
            self.by_id.insert(id, views);
        }
    }

    /// Removes the views of the machine `id`. MACs, addresses and keys that another machine took over stay.
    pub fn remove(&mut self, id: HardwareId) {
        self.contested.remove(&id);
        let views = self.by_id.remove(&id).unwrap_or_default();
        let is_own = |found: Option<&Arc<P>>| {
            found.is_some_and(|found| views.iter().any(|view| Arc::ptr_eq(view, found)))
        };
        for mac in views.iter().flat_map(|view| view.macs()) {
            if is_own(self.by_mac.get(&mac)) {
                self.by_mac.remove(&mac);
            }
        }
        for address in views.iter().flat_map(|view| view.addresses()) {
            if is_own(self.by_address.get(&address)) {
                self.by_address.remove(&address);
            }
        }
        for key in views.iter().filter_map(|view| view.key()) {
            let Some(all) = self.by_key.get_mut(&key) else { continue };
            all.retain(|view| !is_own(Some(view)));
            if all.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// An edge's views of the fleet. Readers see all changes of an event or none.
#[derive(Debug)]
pub struct ViewIndex<P: MachineProjection>(watch::Sender<Snapshot<P>>);

/// Notifications that a [`ViewIndex`] changed.
#[derive(Debug)]
pub struct Changes<P: MachineProjection>(watch::Receiver<Snapshot<P>>);

impl<P: MachineProjection> Default for ViewIndex<P> {
    fn default() -> Self {
        Self(watch::Sender::default())
    }
}

impl<P: MachineProjection> ViewIndex<P> {
    /// Locks the views for reading. The lock must not be held for long.
    pub fn read(&self) -> watch::Ref<'_, Snapshot<P>> {
        self.0.borrow()
    }

    /// Changes the views.
    pub fn update(&self, change: impl FnOnce(&mut Snapshot<P>)) {
        self.0.send_modify(change);
    }

    /// Returns the view of the interface with this MAC.
    pub fn by_mac(&self, mac: Mac) -> Option<Arc<P>> {
        self.read().by_mac(mac).cloned()
    }

    /// Returns the view of the machine that has `address`, which is in canonical form.
    pub fn by_address(&self, address: IpAddr) -> Option<Arc<P>> {
        self.read().by_address(address).cloned()
    }

    /// Returns the first view of the machine with this id.
    pub fn by_id(&self, id: HardwareId) -> Option<Arc<P>> {
        self.read().by_id(id).cloned()
    }

    /// Returns the combined freshness of `feeds`.
    pub fn freshness(&self, feeds: &[FeedKind]) -> Freshness {
        self.read().feeds.combined(feeds)
    }

    /// Resolves once each of `feeds` has synced for the first time.
    pub async fn ready(&self, feeds: &[FeedKind]) {
        let mut receiver = self.0.subscribe();
        let is_synced =
            |snapshot: &Snapshot<P>| snapshot.feeds.combined(feeds) != Freshness::NeverSynced;
        // The sender lives as long as the index does.
        let _ready = receiver.wait_for(is_synced).await;
    }

    /// Subscribes to changes of any machine or feed.
    pub fn changes(&self) -> Changes<P> {
        Changes(self.0.subscribe())
    }
}

impl<P: MachineProjection> Changes<P> {
    /// Resolves once there was a change since the last call. Several changes at once count as one.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The index was dropped: no further changes.
            std::future::pending::<()>().await;
        }
    }
}

impl<P: MachineProjection> Observer for ViewIndex<P> {
    fn machines(&self, changes: &[MachineChange], feeds: &FeedStates) {
        // Projected before the lock is taken.
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (change.id, change.after.as_ref().map(|now| (now, P::project(now)))))
            .collect();
        self.0.send_if_modified(|snapshot| {
            let is_modified = !changes.is_empty() || snapshot.feeds != *feeds;
            snapshot.feeds = *feeds;
            for (id, views) in changes {
                match views {
                    Some((machine, views)) => snapshot.put(id, views, &machine.contested),
                    None => snapshot.remove(id),
                }
            }
            is_modified
        });
    }

    fn leases(&self, update: Option<&LeaseUpdate>, feeds: &FeedStates) {
        if P::USES_LEASES {
            self.update(|snapshot| {
                snapshot.feeds = *feeds;
                update.into_iter().for_each(|update| snapshot.leases.apply(update));
            });
        }
    }
}
