//! The boot history of each machine, until its record is deleted. So it is bounded by the number of records.
//!
//! A script for one boot is served, started, and then removed from the record:
//!
//! ```text
//! in the record ──served──▶ OneShotScript ──the script reports `started`──▶ used, until the record no longer has it
//! ```
//!
//! The record is another service's, so a started script is remembered until the record shows that it was removed: it must
//! not be served again meanwhile. A served script is stored, since its text may be fetched after `started`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dhcp::{ClientClass, MessageType, Request};
use fleet::{FeedStates, MachineChange, Observer};
use foldhash::quality::RandomState;
use runtime::boot_token::LIFETIME;
use tinwright::HardwareId;

use super::BootScripts;
use super::evidence::BootEvidence;
use crate::Mac;
use crate::decision::ScriptSource;
use crate::machine_view::MachineView;

/// Scripts within [`BOOT_LOOP_WINDOW`] above which a machine is in a boot loop.
const MAX_SCRIPTS: usize = 10;
const BOOT_LOOP_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Maximum number of architectures that are remembered of a firmware, which sends one to four.
const MAX_ARCHITECTURES: usize = 16;

/// The boots of all machines.
#[derive(Debug, Default)]
pub struct BootHistory {
    machines: Mutex<HashMap<HardwareId, MachineBoots, RandomState>>,
    /// True if the feed of workflows was live at its latest change.
    pub(super) is_live: AtomicBool,
}

/// The boots of one machine.
#[derive(Debug, Default)]
pub(super) struct MachineBoots {
    /// SMBIOS UUID that the firmware of each interface last sent by DHCP.
    dhcp_uuids: HashMap<Mac, [u8; 16]>,
    /// The last DISCOVER of the firmware of each interface.
    firmware: HashMap<Mac, SeenFirmware>,
    /// Times at which it was given its last scripts.
    scripts: VecDeque<SystemTime>,
    one_shot: Option<OneShotScript>,
    /// What was seen of its boots in the present boot epoch.
    pub(super) evidence: BootEvidence,
    /// What was seen since its loader last started a system.
    pub(super) loading: BootEvidence,
}

/// The program and the architectures of a machine's firmware, as its DHCP requests say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFirmware {
    /// Its class: PXE or HTTP.
    pub class: ClientClass,
    /// Its architectures in its order of preference, at most [`MAX_ARCHITECTURES`]. Never empty.
    pub architectures: Vec<u16>,
}

/// A script for one boot that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotScript {
    /// Interface whose record has it.
    pub mac: Mac,
    /// The script.
    pub source: ScriptSource,
    /// Revision of the record that was last seen to have it.
    revision: i64,
    /// The text can be fetched until this time.
    expires: SystemTime,
    started: bool,
}

impl BootHistory {
    /// Records the SMBIOS UUID that the firmware of `machine` sent by DHCP (option 97, in wire order).
    pub fn record_uuid(&self, machine: &MachineView, uuid: [u8; 16]) {
        self.all().entry(machine.id).or_default().dhcp_uuids.insert(machine.mac, uuid);
    }

    /// Returns the SMBIOS UUID that the firmware of `machine` last sent by DHCP.
    pub(super) fn dhcp_uuid(&self, machine: &MachineView) -> Option<[u8; 16]> {
        self.all().get(&machine.id)?.dhcp_uuids.get(&machine.mac).copied()
    }

    /// Records the firmware of `machine` that sent the DISCOVER `request`.
    pub fn record_firmware(&self, machine: &MachineView, request: &Request) {
        let class = request.class;
        let is_firmware = matches!(class, ClientClass::Pxe | ClientClass::Http);
        if is_firmware && request.packet.kind() == Some(MessageType::Discover) {
            let architectures = request.architectures().into_iter().take(MAX_ARCHITECTURES);
            let seen = SeenFirmware { class, architectures: architectures.collect() };
            self.all().entry(machine.id).or_default().firmware.insert(machine.mac, seen);
        }
    }

    /// Returns the firmware of `machine` that last sent a DISCOVER.
    pub fn firmware(&self, machine: &MachineView) -> Option<SeenFirmware> {
        self.all().get(&machine.id)?.firmware.get(&machine.mac).cloned()
    }

    /// True if the machine, given one more script at `now`, is in a boot loop. A clock that was set back makes earlier scripts
    /// not count, and nothing worse.
    pub(super) fn would_loop(&self, machine: HardwareId, now: SystemTime) -> bool {
        let is_recent =
            |at: &&SystemTime| now.duration_since(**at).is_ok_and(|since| since < BOOT_LOOP_WINDOW);
        let all = self.all();
        let recent = all.get(&machine).map(|boots| boots.scripts.iter().filter(is_recent).count());
        recent.is_some_and(|scripts| scripts >= MAX_SCRIPTS)
    }

    /// Records that the machine was given a script.
    pub(super) fn record_script(&self, machine: HardwareId, now: SystemTime) {
        let mut all = self.all();
        let scripts = &mut all.entry(machine).or_default().scripts;
        scripts.truncate(MAX_SCRIPTS - 1);
        scripts.push_front(now);
    }

    /// Records that the one-shot script `source` was served to `machine` at `now`.
    pub(crate) fn record_one_shot(
        &self,
        machine: &MachineView,
        source: &ScriptSource,
        now: SystemTime,
    ) {
        let mut all = self.all();
        for boots in all.values_mut() {
            boots.one_shot.take_if(|script| !script.started && now >= script.expires);
        }
        all.entry(machine.id).or_default().one_shot = Some(OneShotScript {
            mac: machine.mac,
            source: source.clone(),
            revision: machine.hardware.revision,
            expires: now + LIFETIME,
            started: false,
        });
    }

    /// Returns the one-shot script that was served to the machine.
    fn one_shot(&self, machine: HardwareId) -> Option<OneShotScript> {
        self.all().get(&machine)?.one_shot.clone()
    }

    /// Returns the one-shot script that was served to the machine and may still be fetched.
    pub(super) fn served(&self, machine: HardwareId, now: SystemTime) -> Option<ScriptSource> {
        self.one_shot(machine).filter(|script| now < script.expires).map(|script| script.source)
    }

    /// Returns the one-shot script that was served to the machine, unless it was started.
    pub(super) fn not_started(&self, machine: HardwareId) -> Option<OneShotScript> {
        self.one_shot(machine).filter(|script| !script.started)
    }

    /// Records that the machine started its one-shot script. True the first time.
    pub(crate) fn mark_started(&self, machine: HardwareId) -> bool {
        let mut all = self.all();
        let script = all.get_mut(&machine).and_then(|boots| boots.one_shot.as_mut());
        script.is_some_and(|script| !std::mem::replace(&mut script.started, true))
    }

    /// True if the one-shot script that the record still has was started already.
    pub fn is_used(&self, machine: &MachineView) -> bool {
        self.one_shot(machine.id).is_some_and(|script| {
            let same = script.mac == machine.mac && script.revision == machine.hardware.revision;
            script.started && same
        })
    }

    /// Records that the record still has the one-shot script at `revision`.
    pub(super) fn set_revision(&self, machine: HardwareId, revision: i64) {
        if let Some(boots) = self.all().get_mut(&machine)
            && let Some(script) = &mut boots.one_shot
        {
            script.revision = revision;
        }
    }

    /// Removes what no longer has a record: a deleted machine, or the interfaces that were removed from one.
    fn evict(&self, MachineChange { id, after, .. }: &MachineChange) {
        let mut all = self.all();
        let Some(machine) = after else { return drop(all.remove(id)) };
        if let Some(boots) = all.get_mut(id) {
            let macs: HashSet<Mac> = machine.macs().collect();
            boots.dhcp_uuids.retain(|mac, _| macs.contains(mac));
            boots.firmware.retain(|mac, _| macs.contains(mac));
        }
    }

    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<HardwareId, MachineBoots, RandomState>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for BootScripts {
    fn machines(&self, changes: &[MachineChange], feeds: &FeedStates) {
        self.history.record_epochs(changes, feeds);
        for change in changes {
            self.history.evict(change);
            self.record_phone_home(change, self.clock.wall());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bootscripts::tests::{MAC, boots, fleet_of, hardware};
    use dhcp::options::code;
    use dhcp::{Link, ListenPort, Packet, Received};
    use fleet::Fleet;
    use runtime::feed::FeedEvent;

    #[test]
    fn the_eleventh_script_in_ten_minutes_is_a_loop_until_the_first_is_old() {
        let (history, now) = (BootHistory::default(), SystemTime::UNIX_EPOCH);
        let [a, b] = [HardwareId::new(), HardwareId::new()];
        for n in 0..10 {
            assert!(!history.would_loop(a, now + Duration::from_secs(n)));
            history.record_script(a, now + Duration::from_secs(n));
        }
        assert!(history.would_loop(a, now + Duration::from_secs(599)));
        assert!(!history.would_loop(b, now + Duration::from_secs(599)));
        assert!(!history.would_loop(a, now + Duration::from_secs(600)));
    }

    /// Returns a machine with a UUID, a script and a started one-shot script in its history.
    fn with_history() -> (BootScripts, Fleet, HardwareId) {
        let id = HardwareId::new();
        let (boots, now) = (boots(id), SystemTime::UNIX_EPOCH);
        let fleet = fleet_of(&boots);
        let machine = boots.index.by_mac(MAC).unwrap();
        boots.history.record_uuid(&machine, [1; 16]);
        boots.history.record_firmware(&machine, &discover(7));
        boots.history.record_script(id, now);
        boots.history.record_one_shot(&machine, &ScriptSource::Url("http://t/1".into()), now);
        assert!(boots.history.mark_started(id));
        (boots, fleet, id)
    }

    /// A DISCOVER of PXE firmware.
    fn discover(architecture: u16) -> Request {
        let mut packet = Packet::request(MessageType::Discover, MAC.0);
        packet.options.set(code::VENDOR_CLASS, "PXEClient");
        packet.options.set(code::CLIENT_ARCHITECTURE, architecture.to_be_bytes());
        let source = "0.0.0.0:68".parse().unwrap();
        let received = Received { source, broadcast: true, port: ListenPort::Dhcp };
        Request::new(packet, received, &Link::new([192, 0, 2, 1].into(), "")).unwrap()
    }

    #[test]
    fn the_last_firmware_of_an_interface_is_remembered_and_no_loader() {
        let (boots, _, _) = with_history();
        let machine = boots.index.by_mac(MAC).unwrap();
        boots.history.record_firmware(&machine, &discover(12));
        let mut loader = discover(11);
        loader.class = ClientClass::Ipxe { http: true };
        boots.history.record_firmware(&machine, &loader);
        let expected = SeenFirmware { class: ClientClass::Pxe, architectures: vec![12] };
        assert_eq!(boots.history.firmware(&machine), Some(expected));
    }

    /// Returns the number of UUIDs, firmwares, scripts and one-shot scripts.
    fn counts(boots: &BootScripts) -> [usize; 4] {
        let all = boots.history.all();
        let sum = |count: fn(&MachineBoots) -> usize| all.values().map(count).sum();
        [
            sum(|boots| boots.dhcp_uuids.len()),
            sum(|boots| boots.firmware.len()),
            sum(|boots| boots.scripts.len()),
            sum(|boots| usize::from(boots.one_shot.is_some())),
        ]
    }

    #[test]
    fn a_deleted_machine_is_evicted() {
        let (boots, fleet, id) = with_history();
        fleet.hardware(FeedEvent::Deleted(HardwareId::new().to_string()));
        fleet.hardware(FeedEvent::Disconnected);
        assert_eq!(counts(&boots), [1, 1, 1, 1]);
        fleet.hardware(FeedEvent::Deleted(id.to_string()));
        assert!(boots.history.all().is_empty());
    }

    #[test]
    fn a_machine_that_is_not_in_a_new_snapshot_is_evicted() {
        let (boots, fleet, id) = with_history();
        fleet.hardware(FeedEvent::Snapshot(vec![hardware(id, MAC, "192.0.2.10")]));
        assert_eq!(counts(&boots), [1, 1, 1, 1]);
        fleet.hardware(FeedEvent::Snapshot(Vec::new()));
        assert!(boots.history.all().is_empty());
    }

    #[test]
    fn a_removed_interface_is_evicted_and_its_machine_is_not() {
        let (boots, fleet, id) = with_history();
        fleet.hardware(FeedEvent::Put(hardware(id, MAC, "192.0.2.10")));
        assert_eq!(counts(&boots), [1, 1, 1, 1]);
        let other = hardware(id, Mac([2, 0, 0, 0, 0, 99]), "192.0.2.10");
        fleet.hardware(FeedEvent::Put(other));
        assert_eq!(counts(&boots), [0, 0, 1, 1]);
    }
}
