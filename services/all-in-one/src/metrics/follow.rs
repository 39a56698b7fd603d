//! Follows the records of this process's services whose objects are counted.

use hardware::records::HardwareKind;
use runtime::Clock;
use runtime::feed::FeedEvent;
use runtime::supervise::Tier;
use runtime::telemetry::MachineNames;
use store::mirror::Mirror;
use store::records::Kind;
use tinwright::Stored as _;
use tinwright::watch::WatchEvent;

use super::ObjectMetrics;
use crate::until_stopped;

impl ObjectMetrics {
    /// Starts to follow the records of `mirror`, if they are counted. Keeps the `names` of machines.
    pub(crate) fn follow<K: Kind>(
        &self,
        mirror: &Mirror<K>,
        names: &MachineNames,
        tier: &mut Tier,
    ) {
        if !self.counts::<K>() {
            return;
        }
        let metrics = self.clone();
        let names = (K::NOUN == HardwareKind::NOUN).then(|| names.clone());
        let take = move |event| {
            if let Some(names) = &names {
                take_names::<K>(names, &event);
            }
            metrics.take::<K>(event, Clock::system().wall());
        };
        let mirror = mirror.clone();
        let followed = async move { follow(&mirror, take).await };
        tier.spawn(until_stopped(tier.stop.clone(), followed));
    }
}

/// Passes all records of `mirror`, then their changes, to `take`. It begins again if it was too
/// slow for them.
async fn follow<K: Kind>(mirror: &Mirror<K>, take: impl Fn(FeedEvent<K::Record>)) {
    loop {
        let mut watcher = mirror.watch();
        let mut snapshot = Some(Vec::new());
        while let Ok(event) = watcher.next().await {
            match (event, &mut snapshot) {
                (WatchEvent::Put(record), Some(all)) => all.push(record),
                (WatchEvent::Put(record), None) => take(FeedEvent::Put(record)),
                (WatchEvent::Deleted(id), _) => take(FeedEvent::Deleted(id)),
                (WatchEvent::Synced, all) => {
                    take(FeedEvent::Snapshot(all.take().unwrap_or_default()));
                }
            }
        }
    }
}

/// Takes the names of machines from `event`.
fn take_names<K: Kind>(names: &MachineNames, event: &FeedEvent<K::Record>) {
    match event {
        FeedEvent::Snapshot(all) => names.replace(all.iter().map(|it| (it.id(), K::name(it)))),
        FeedEvent::Put(machine) => names.set(machine.id(), K::name(machine)),
        FeedEvent::Deleted(id) => names.set(id, ""),
        FeedEvent::Disconnected => {}
    }
}
