//! Copies the addresses of attached grants into the instances.
//!
//! ```text
//! grants ──────────changed─┐
//!                          ├─▶ work queue ─▶ step(id): read the record, write the addresses, or detach the grants of a missing one
//! own records ─────deleted─┘
//! ```
//!
//! The grant's record in the address service says which instance has the address. The copy is what DHCP and metadata serve: they
//! follow the instances anyway, also from their caches. While the address service is away, the copies stay as they are; when its watch is
//! opened again, it begins with all grants, and every instance with a copy or a grant is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::feed::{self, FeedEvent};
use runtime::retry::Backoff;
use runtime::work_queue::{Outcome, WorkQueue};
use store::mirror::{Mirror, Watcher};
use tinwright::address::v1::{Grant, WatchGrantsRequest};
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::AttachedAddress;
use tinwright::watch::WatchEvent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Error, STEP_TIMEOUT};
use crate::instances::{self, InstanceKind, Instances};
use crate::peers::Peers;

/// Instances that are compared at the same time.
const MAX_TASKS: usize = 8;
/// The delays after failed steps.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The grants that are attached, as the address service last reported them.
#[derive(Debug, Default)]
struct AttachedGrants {
    by_id: BTreeMap<String, Grant>,
    /// The ids of the grants of each instance.
    of_instance: BTreeMap<String, BTreeSet<String>>,
}

impl AttachedGrants {
    /// Takes the present record of a grant. Returns the instances that gain or lose it.
    fn put(&mut self, grant: Grant) -> Vec<String> {
        let mut changed = self.remove(&grant.id);
        if let Some(attachment) = &grant.attachment {
            let instance = attachment.instance_id.clone();
            self.of_instance.entry(instance.clone()).or_default().insert(grant.id.clone());
            self.by_id.insert(grant.id.clone(), grant);
            changed.push(instance);
        }
        changed
    }

    /// Removes the grant `id`. Returns the instance that loses it.
    fn remove(&mut self, id: &str) -> Vec<String> {
        let attachment = self.by_id.remove(id).and_then(|grant| grant.attachment);
        let Some(instance) = attachment.map(|it| it.instance_id) else { return Vec::new() };
        if let Some(grants) = self.of_instance.get_mut(&instance) {
            grants.remove(id);
            if grants.is_empty() {
                self.of_instance.remove(&instance);
            }
        }
        vec![instance]
    }

    /// Returns the ids of the grants of an instance, in order.
    fn ids(&self, instance: &str) -> Vec<String> {
        self.of_instance.get(instance).into_iter().flatten().cloned().collect()
    }

    /// Returns the addresses of an instance, the primary ones first, then in the order of the grants' ids, which is that of their
    /// creation.
    fn addresses(&self, instance: &str) -> Vec<AttachedAddress> {
        let grants = self.ids(instance).into_iter().filter_map(|id| self.by_id.get(&id));
        let mut addresses: Vec<_> = grants.filter_map(attached_address).collect();
        addresses.sort_by_key(|it| !it.primary);
        addresses
    }
}

/// Returns the address of an attached grant, as an instance's record has it; none if it cannot be read.
pub(super) fn attached_address(grant: &Grant) -> Option<AttachedAddress> {
    let attachment = grant.attachment.as_ref()?;
    let (address, _) = grant.block.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let (_, bits) = grant.network.split_once('/')?;
    Some(AttachedAddress {
        address: address.to_string(),
        prefix_length: bits.parse().ok()?,
        gateway: grant.gateway.clone(),
        mac: attachment.mac.clone(),
        primary: attachment.primary,
        grant_id: grant.id.clone(),
    })
}

/// Copies addresses into instances.
#[derive(Clone, Debug)]
pub(super) struct AddressCopies {
    instances: Instances,
    peers: Peers,
    attached: Arc<Mutex<AttachedGrants>>,
}

impl AddressCopies {
    /// Copies into `instances` what the address service among `peers` reports.
    pub(super) fn new(instances: Instances, peers: Peers) -> Self {
        Self { instances, peers, attached: Arc::default() }
    }

    /// Follows the grants, and the instances in `mirror`, until `stop`.
    pub(super) async fn run(self, mirror: Mirror<InstanceKind>, stop: CancellationToken) {
        let (sender, grants) = mpsc::unbounded_channel();
        let channel = self.peers.services.address.clone();
        let forward = move |event: FeedEvent<Grant>| {
            // Fails only once the loop has stopped.
            let _stopped = sender.send(event);
        };
        tokio::join!(
            feed::follow_at(
                "grants",
                &channel,
                WatchGrantsRequest::default(),
                forward,
                stop.clone()
            ),
            self.reconcile_all(mirror, grants, stop.clone()),
        );
    }

    async fn reconcile_all(
        self,
        mirror: Mirror<InstanceKind>,
        mut grants: mpsc::UnboundedReceiver<FeedEvent<Grant>>,
        stop: CancellationToken,
    ) {
        let mut queue = WorkQueue::new(BACKOFF, MAX_TASKS);
        let mut copied = CopyHolders { watcher: mirror.watch(), ids: BTreeSet::new() };
        let mut is_synced = false;
        let copies = self.clone();
        let reconcile = move |id: String| {
            let copies = copies.clone();
            async move { copies.reconcile(&id).await }
        };
        loop {
            let due = tokio::select! {
                () = stop.cancelled() => break,
                event = copied.watcher.next() => match event {
                    // Grants may have been detached, and instances deleted, while nobody followed.
                    Ok(WatchEvent::Synced) => self.all(&copied.ids),
                    Ok(event) => copied.take(event).into_iter().collect(),
                    Err(_) => {
                        copied.watcher = mirror.watch();
                        Vec::new()
                    }
                },
                Some(event) = grants.recv() => {
                    is_synced |= matches!(event, FeedEvent::Snapshot(_));
                    self.take(event, &copied.ids)
                }
                () = queue.drive(&reconcile) => Vec::new(),
            };
            // Before the first snapshot, a copy whose grant is not known yet must stay.
            if is_synced {
                due.into_iter().for_each(|id| queue.add(id));
            }
        }
        queue.drain().await;
    }

    /// Takes an event of the grants. Returns the instances to compare; `copied` have addresses.
    fn take(&self, event: FeedEvent<Grant>, copied: &BTreeSet<String>) -> Vec<String> {
        match event {
            FeedEvent::Snapshot(all) => {
                let mut attached = AttachedGrants::default();
                all.into_iter().for_each(|grant| drop(attached.put(grant)));
                *self.attached() = attached;
                self.all(copied)
            }
            FeedEvent::Put(grant) => self.attached().put(grant),
            FeedEvent::Deleted(id) => self.attached().remove(&id),
            FeedEvent::Disconnected => Vec::new(),
        }
    }

    /// Returns the instances with grants, and those in `copied`.
    fn all(&self, copied: &BTreeSet<String>) -> Vec<String> {
        self.attached().of_instance.keys().chain(copied).cloned().collect()
    }

    /// Compares one instance, and logs a failure.
    #[tracing::instrument(skip_all, fields(instance.id = id))]
    async fn reconcile(&self, id: &str) -> Outcome {
        let step = tokio::time::timeout(STEP_TIMEOUT, Box::pin(self.step(id)));
        match step.await.unwrap_or(Err(Error::Timeout(STEP_TIMEOUT))) {
            Ok(()) => Outcome::Done,
            Err(Error::Records(error)) if error.is_stale() => Outcome::Again,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "granted addresses not copied; trying again");
                Outcome::Failed
            }
        }
    }

    /// Writes the addresses of the instance `id` into its record. Without a record, detaches its grants.
    async fn step(&self, id: &str) -> Result<(), Error> {
        let found = self.instances.records.get(id).await.map_err(instances::Error::from)?;
        let Some(old) = found else {
            let grants = self.attached().ids(id);
            for grant in grants {
                self.peers.detach_grant(&grant, id).await?;
                tracing::info!(grant.id = grant, "grant detached: its instance is gone");
            }
            return Ok(());
        };
        let addresses = self.attached().addresses(id);
        if old.addresses == addresses {
            return Ok(());
        }
        let count = addresses.len();
        self.instances.put(&old, Instance { addresses, ..old.clone() }).await?;
        tracing::info!(addresses = count, "granted addresses changed");
        Ok(())
    }

    fn attached(&self) -> MutexGuard<'_, AttachedGrants> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The instances whose records have addresses of grants.
struct CopyHolders {
    watcher: Watcher<InstanceKind>,
    ids: BTreeSet<String>,
}

impl CopyHolders {
    /// Takes an event of the instances. Returns the instance if it is gone.
    fn take(&mut self, event: WatchEvent<Instance>) -> Option<String> {
        match event {
            WatchEvent::Put(instance) => {
                match instance.addresses.is_empty() {
                    true => self.ids.remove(&instance.id),
                    false => self.ids.insert(instance.id),
                };
                None
            }
            WatchEvent::Deleted(id) => {
                self.ids.remove(&id);
                Some(id)
            }
            WatchEvent::Synced => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tinwright::address::v1::Attachment;

    use super::*;

    fn grant(id: &str, block: &str, instance: &str, primary: bool) -> Grant {
        let network = if block.contains(':') { "2001:db8::/64" } else { "192.0.2.0/24" };
        let attachment = (!instance.is_empty()).then(|| Attachment {
            instance_id: instance.into(),
            mac: "52:54:00:00:00:01".into(),
            primary,
        });
        let (id, block, network) = (id.into(), block.into(), network.into());
        Grant { id, block, network, attachment, ..Grant::default() }
    }

    fn addresses(attached: &AttachedGrants, instance: &str) -> Vec<(String, u32)> {
        let all = attached.addresses(instance).into_iter();
        all.map(|it| (it.address, it.prefix_length)).collect()
    }

    #[test]
    fn an_instance_has_the_addresses_of_its_grants_the_primary_one_first() {
        let mut attached = AttachedGrants::default();
        assert_eq!(attached.put(grant("a", "192.0.2.7/32", "i", false)), ["i"]);
        attached.put(grant("b", "2001:db8::7/128", "i", false));
        attached.put(grant("c", "192.0.2.8/32", "i", true));
        attached.put(grant("d", "192.0.2.9/32", "j", false));
        let expected =
            [("192.0.2.8", 24), ("192.0.2.7", 24), ("2001:db8::7", 64)].map(|(a, n)| (a.into(), n));
        assert_eq!(addresses(&attached, "i"), expected);
    }

    #[test]
    fn a_grant_that_moves_changes_both_instances_and_one_that_is_detached_or_gone_the_last() {
        let mut attached = AttachedGrants::default();
        attached.put(grant("a", "192.0.2.7/32", "i", false));
        assert_eq!(attached.put(grant("a", "192.0.2.7/32", "j", false)), ["i", "j"]);
        assert!(addresses(&attached, "i").is_empty());
        assert_eq!(attached.put(grant("a", "192.0.2.7/32", "", false)), ["j"]);
        assert!(attached.put(grant("a", "192.0.2.7/32", "", false)).is_empty());
        attached.put(grant("b", "192.0.2.8/32", "j", false));
        assert_eq!(attached.remove("b"), ["j"]);
        assert!(attached.by_id.is_empty() && attached.of_instance.is_empty());
    }
}
