//! Eviction of deleted machines, so that what is remembered is bounded by the number of records.

use std::collections::HashSet;
use std::time::SystemTime;

use fleet::{FeedStates, MachineChange, Observer};

use super::BootScripts;
use crate::Mac;

impl Observer for BootScripts {
    fn machines(&self, changes: &[MachineChange], _feeds: &FeedStates) {
        for change in changes {
            self.evict(change);
            self.record_phone_home(change, SystemTime::now());
        }
    }
}

impl BootScripts {
    fn evict(&self, MachineChange { id, before, after }: &MachineChange) {
        let left: HashSet<Mac> = after.iter().flat_map(|machine| machine.macs()).collect();
        let before = before.iter().flat_map(|machine| machine.macs());
        let gone: Vec<_> = before.filter(|mac| !left.contains(mac)).collect();
        if !gone.is_empty() {
            self.uuids().retain(|mac, _| !gone.contains(mac));
        }
        if after.is_none() {
            self.boot_loops.evict(*id);
            self.one_shot.evict(&id.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::SystemTime;

    use super::*;
    use crate::bootscripts::tests::{MAC, boots, fleet_of, hardware};
    use crate::decision::ScriptSource;
    use fleet::Fleet;
    use runtime::feed::FeedEvent;
    use tinwright::HardwareId;

    /// A machine of which everything is remembered that can be.
    fn remembered() -> (BootScripts, Fleet, HardwareId) {
        let id = HardwareId::new();
        let (boots, now) = (boots(id), SystemTime::UNIX_EPOCH);
        let fleet = fleet_of(&boots);
        let known = boots.index().by_mac(MAC).unwrap();
        boots.record_uuid(&known, [1; 16]);
        boots.boot_loops.record(known.id, now);
        boots.one_shot.record_served(&known, &ScriptSource::Url("http://t/1".into()), now);
        assert!(boots.one_shot.mark_started(&known.hardware.id));
        (boots, fleet, id)
    }

    fn left(boots: &BootScripts) -> [usize; 3] {
        [boots.uuids().len(), boots.boot_loops.len(), boots.one_shot.len()]
    }

    #[test]
    fn nothing_stays_of_a_machine_that_is_deleted() {
        let (boots, fleet, id) = remembered();
        fleet.hardware(FeedEvent::Deleted(HardwareId::new().to_string()));
        fleet.hardware(FeedEvent::Disconnected);
        assert_eq!(left(&boots), [1, 1, 1]);
        fleet.hardware(FeedEvent::Deleted(id.to_string()));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn nothing_stays_of_a_machine_that_a_new_listing_does_not_name() {
        let (boots, fleet, id) = remembered();
        fleet.hardware(FeedEvent::Snapshot(vec![hardware(id, MAC, "192.0.2.10")]));
        assert_eq!(left(&boots), [1, 1, 1]);
        fleet.hardware(FeedEvent::Snapshot(Vec::new()));
        assert_eq!(left(&boots), [0, 0, 0]);
    }

    #[test]
    fn an_interface_that_was_removed_is_evicted_and_the_machine_is_not() {
        let (boots, fleet, id) = remembered();
        fleet.hardware(FeedEvent::Put(hardware(id, MAC, "192.0.2.10")));
        assert_eq!(left(&boots), [1, 1, 1]);
        let other = hardware(id, Mac([2, 0, 0, 0, 0, 99]), "192.0.2.10");
        fleet.hardware(FeedEvent::Put(other));
        assert_eq!(left(&boots), [0, 1, 1]);
    }
}
