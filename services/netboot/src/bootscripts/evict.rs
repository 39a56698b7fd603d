//! Forgetting what was noted of machines that are no more, so that what is noted is no more than the site has.

use std::collections::HashSet;

use runtime::feed::FeedEvent;
use tinwright::hardware::v1::Hardware;

use super::BootScripts;
use crate::Mac;

impl BootScripts {
    /// Forgets what `news` says is gone. To be told before the index takes it.
    pub fn forget(&self, news: &FeedEvent<Hardware>) {
        match news {
            FeedEvent::Snapshot(all) => {
                let ids: HashSet<_> = all.iter().map(|one| one.id.as_str()).collect();
                let macs: HashSet<_> = all.iter().flat_map(macs).collect();
                self.loops.retain(|id| ids.contains(&*id.to_string()));
                self.once.retain(|id| ids.contains(id));
                self.uuids().retain(|mac, _| macs.contains(mac));
            }
            FeedEvent::Put(new) => {
                let kept: HashSet<_> = macs(new).collect();
                self.forget_macs(&new.id, |mac| !kept.contains(&mac));
            }
            FeedEvent::Deleted(id) => {
                self.forget_macs(id, |_| true);
                if let Ok(id) = id.parse() {
                    self.loops.forget(id);
                }
                self.once.forget(id);
            }
            FeedEvent::Disconnected => {}
        }
    }

    /// Forgets those interfaces of the machine `id`, as it was, that are `gone`.
    fn forget_macs(&self, id: &str, gone: impl Fn(Mac) -> bool) {
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

    /// A machine of which everything has been noted that can be.
    fn noted() -> (BootScripts, String) {
        let id = HardwareId::new();
        let (boots, now) = (boots(id), SystemTime::UNIX_EPOCH);
        let known = boots.index().by_mac(MAC).unwrap();
        boots.record_uuid(&known, [1; 16]);
        boots.loops.note(known.id, now);
        boots.once.hand_out(&known, &ScriptSource::Url("http://t/1".into()), now);
        boots.once.started(&known.hardware.id).unwrap();
        (boots, id.to_string())
    }

    fn left(boots: &BootScripts) -> [usize; 3] {
        [boots.uuids().len(), boots.loops.len(), boots.once.len()]
    }

    #[test]
    fn nothing_stays_of_a_machine_that_is_deleted() {
        let (boots, id) = noted();
        boots.forget(&FeedEvent::Deleted("another".into()));
        boots.forget(&FeedEvent::Disconnected);
        assert_eq!(left(&boots), [1, 1, 1]);
        boots.forget(&FeedEvent::Deleted(id));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn nothing_stays_of_a_machine_that_is_not_among_all() {
        let (boots, id) = noted();
        let known = boots.index().by_id(&id).unwrap();
        boots.forget(&FeedEvent::Snapshot(vec![(*known.hardware).clone()]));
        assert_eq!(left(&boots), [1, 1, 1]);
        boots.forget(&FeedEvent::Snapshot(Vec::new()));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn an_interface_that_was_taken_out_is_forgotten_and_the_machine_is_not() {
        let (boots, id) = noted();
        let known = boots.index().by_id(&id).unwrap();
        boots.forget(&FeedEvent::Put((*known.hardware).clone()));
        assert_eq!(left(&boots), [1, 1, 1]);
        let other = hardware(id.parse().unwrap(), Mac([2, 0, 0, 0, 0, 99]), "192.0.2.10");
        boots.forget(&FeedEvent::Put(other));
        assert_eq!(left(&boots), [0, 1, 1]);
    }
}
