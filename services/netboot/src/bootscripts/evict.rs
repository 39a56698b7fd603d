//! Eviction of deleted machines, so that what is remembered is bounded by the number of records.

use std::collections::HashSet;

use runtime::feed::FeedEvent;
use tinwright::hardware::v1::Hardware;

use super::BootScripts;
use crate::Mac;

impl BootScripts {
    /// Evicts the machines that `news` says are deleted. To be called before the index takes the news.
    pub fn evict(&self, news: &FeedEvent<Hardware>) {
        match news {
            FeedEvent::Snapshot(all) => {
                let ids: HashSet<_> = all.iter().map(|one| one.id.as_str()).collect();
                let macs: HashSet<_> = all.iter().flat_map(macs).collect();
                self.boot_loops.retain(|id| ids.contains(&*id.to_string()));
                self.one_shot.retain(|id| ids.contains(id));
                self.uuids().retain(|mac, _| macs.contains(mac));
            }
            FeedEvent::Put(new) => {
                let current: HashSet<_> = macs(new).collect();
                self.evict_macs(&new.id, |mac| !current.contains(&mac));
            }
            FeedEvent::Deleted(id) => {
                self.evict_macs(id, |_| true);
                if let Ok(id) = id.parse() {
                    self.boot_loops.evict(id);
                }
                self.one_shot.evict(id);
            }
            FeedEvent::Disconnected => {}
        }
    }

    /// Evicts those interfaces of the stored machine `id` that are `gone`.
    fn evict_macs(&self, id: &str, gone: impl Fn(Mac) -> bool) {
        let Some(old) = self.index.by_id(id) else { return };
        let mut uuids = self.uuids();
        for mac in macs(&old.hardware).filter(|mac| gone(*mac)) {
            uuids.remove(&mac);
        }
    }
}

fn macs(hardware: &Hardware) -> impl Iterator<Item = Mac> {
    hardware.interfaces.iter().filter_map(|interface| interface.mac.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::SystemTime;

    use super::*;
    use crate::bootscripts::tests::{MAC, boots, hardware};
    use crate::decision::ScriptSource;
    use tinwright::HardwareId;

    /// A machine of which everything is remembered that can be.
    fn remembered() -> (BootScripts, String) {
        let id = HardwareId::new();
        let (boots, now) = (boots(id), SystemTime::UNIX_EPOCH);
        let known = boots.index().by_mac(MAC).unwrap();
        boots.record_uuid(&known, [1; 16]);
        boots.boot_loops.record(known.id, now);
        boots.one_shot.record_served(&known, &ScriptSource::Url("http://t/1".into()), now);
        assert!(boots.one_shot.mark_started(&known.hardware.id));
        (boots, id.to_string())
    }

    fn left(boots: &BootScripts) -> [usize; 3] {
        [boots.uuids().len(), boots.boot_loops.len(), boots.one_shot.len()]
    }

    #[test]
    fn nothing_stays_of_a_machine_that_is_deleted() {
        let (boots, id) = remembered();
        boots.evict(&FeedEvent::Deleted("another".into()));
        boots.evict(&FeedEvent::Disconnected);
        assert_eq!(left(&boots), [1, 1, 1]);
        boots.evict(&FeedEvent::Deleted(id));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn nothing_stays_of_a_machine_that_is_not_among_all() {
        let (boots, id) = remembered();
        let known = boots.index().by_id(&id).unwrap();
        boots.evict(&FeedEvent::Snapshot(vec![(*known.hardware).clone()]));
        assert_eq!(left(&boots), [1, 1, 1]);
        boots.evict(&FeedEvent::Snapshot(Vec::new()));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn an_interface_that_was_removed_is_evicted_and_the_machine_is_not() {
        let (boots, id) = remembered();
        let known = boots.index().by_id(&id).unwrap();
        boots.evict(&FeedEvent::Put((*known.hardware).clone()));
        assert_eq!(left(&boots), [1, 1, 1]);
        let other = hardware(id.parse().unwrap(), Mac([2, 0, 0, 0, 0, 99]), "192.0.2.10");
        boots.evict(&FeedEvent::Put(other));
        assert_eq!(left(&boots), [0, 1, 1]);
    }
}
