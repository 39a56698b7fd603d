//! The boot gates of instances: who may set them, and the claims of gates that the server opens.
//!
//! The server opens the gate of a platform's system, and closes it for ever when the instance is deleted. No two of these gates that are open
//! have the same UUID or MAC: a boot request matches one at most. Each value is an index entry, written and deleted in the commit that opens
//! or closes the gate.

use store::records::{self, Index};
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;
use tinwright::status::Violations;
use uuid::Uuid;

use super::Error;
use crate::check::is_platform;

/// The index of the UUIDs of open gates.
pub(super) const GATE_UUID: &str = "gate_uuid";
/// The index of the MACs of open gates.
pub(super) const GATE_MAC: &str = "gate_mac";

/// True if the server opened the gate of `instance`, and has not closed it.
pub(crate) fn is_open(instance: &pb::Instance) -> bool {
    instance.boot_gate.as_ref().is_some_and(|gate| gate.open && gate.open_time.is_some())
}

/// Returns the claims of the gate, if the server opened it.
pub(super) fn claims(instance: &pb::Instance) -> impl Iterator<Item = Index> {
    let gate = instance.boot_gate.as_ref().filter(|_| is_open(instance));
    let uuid = gate.filter(|gate| !gate.uuid.is_empty());
    let mac = gate.filter(|gate| !gate.mac.is_empty());
    let uuid = uuid.map(|gate| Index::unique(GATE_UUID, uuid_value(&gate.uuid)));
    uuid.into_iter().chain(mac.map(|gate| Index::unique(GATE_MAC, &gate.mac)))
}

/// Returns `text` as the index has it: the same for both orders of the bytes in which firmware may show one UUID (SMBIOS 2.6, 7.2.1), since
/// a gate accepts both.
fn uuid_value(text: &str) -> String {
    let Ok(uuid) = text.parse::<Uuid>() else { return text.to_owned() };
    uuid.min(Uuid::from_bytes_le(*uuid.as_bytes())).to_string()
}

/// Returns the name of the value of a gate that another instance's open gate has, if `error` says so.
pub(crate) fn taken_value(error: &Error) -> Option<&'static str> {
    let Error::Records(records::Error::Taken { index, .. }) = error else { return None };
    match index.as_str() {
        GATE_UUID => Some("UUID"),
        GATE_MAC => Some("MAC"),
        _ => None,
    }
}

/// Sets the fields that only the server sets to their first values.
pub(super) fn reset(instance: &mut pb::Instance) {
    if is_platform(instance) {
        instance.boot_gate = None;
    }
    if let Some(gate) = &mut instance.boot_gate {
        gate.open_time = None;
    }
    if let Some(Os::Platform(boot)) = &mut instance.os {
        boot.boot_url.clear();
    }
}

/// Closes the gate, for ever: a retry of a deletion opens none.
pub(super) fn close(instance: &mut pb::Instance) {
    if let Some(gate) = &mut instance.boot_gate {
        gate.open = false;
    }
}

/// Restores in `new`, an update of `old`, what only the server sets. Fails if `new` begins or ceases to be a platform's system, has another
/// one, or if `paths` names the gate of one and `new` has another gate.
pub(super) fn check_update(
    old: &pb::Instance,
    new: &mut pb::Instance,
    paths: &[String],
) -> Result<(), Violations> {
    if let (Some(Os::Platform(old)), Some(Os::Platform(new))) = (&old.os, &mut new.os) {
        new.boot_url.clone_from(&old.boot_url);
    }
    if !is_platform(old) && !is_platform(new) {
        if let Some(gate) = &mut new.boot_gate {
            gate.open_time = old.boot_gate.as_ref().and_then(|old| old.open_time);
        }
        return Ok(());
    }
    if old.os != new.os {
        let reason = "can be neither set nor changed after the creation: create another instance";
        return Err(Violations::single("platform", reason));
    }
    if paths.iter().any(|path| path == "boot_gate") && old.boot_gate != new.boot_gate {
        return Err(Violations::single("boot_gate", "is set by the server if os is platform"));
    }
    new.boot_gate.clone_from(&old.boot_gate);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_claimed_in_both_orders_of_its_bytes() {
        let uuid = "4c4c4544-0051-3610-8052-b4c04f4d3532";
        let swapped = "44454c4c-5100-1036-8052-b4c04f4d3532";
        assert_eq!(uuid_value(uuid), uuid_value(swapped));
        assert_eq!(uuid_value(&uuid.to_uppercase()), uuid_value(uuid));
        assert_ne!(uuid_value("4c4c4544-0051-3610-8052-b4c04f4d3533"), uuid_value(uuid));
    }

    fn platform(url: &str, boot_url: &str, gate: Option<pb::BootGate>) -> pb::Instance {
        let (url, boot_url) = (url.to_owned(), boot_url.to_owned());
        let boot = pb::PlatformBoot { url, boot_url, ..pb::PlatformBoot::default() };
        let os = Some(Os::Platform(boot));
        pb::Instance { os, boot_gate: gate, ..pb::Instance::default() }
    }

    #[test]
    fn an_update_changes_neither_a_platforms_system_nor_its_gate() {
        let opened = pb::BootGate { open: true, ..pb::BootGate::default() };
        let opened = pb::BootGate { open_time: Some(prost_types::Timestamp::default()), ..opened };
        let old = platform("http://a/", "http://a/", Some(opened.clone()));
        let update = |mut new: pb::Instance, path: &str| {
            let paths: Vec<_> = [path].into_iter().filter(|it| !it.is_empty()).collect();
            let paths: Vec<_> = paths.into_iter().map(str::to_owned).collect();
            check_update(&old, &mut new, &paths).map(|()| new).map_err(|wrong| wrong.to_string())
        };
        for (sent, path) in [
            (old.clone(), ""),
            (platform("http://a/", "http://evil/", None), ""),
            (platform("http://a/", "", Some(pb::BootGate::default())), "platform"),
            (old.clone(), "boot_gate"),
        ] {
            assert_eq!(update(sent, path), Ok(old.clone()), "{path}");
        }
        let other = platform("http://b/", "http://a/", Some(opened.clone()));
        assert!(update(other, "").unwrap_err().starts_with("platform: "));
        assert!(update(pb::Instance::default(), "platform").unwrap_err().starts_with("platform: "));
        let closed = pb::BootGate { open: false, ..opened };
        let closed = platform("http://a/", "http://a/", Some(closed));
        assert!(update(closed, "boot_gate").unwrap_err().starts_with("boot_gate: "));
        let none = pb::Instance::default();
        let wanted = check_update(&none, &mut platform("", "", None), &[]);
        assert!(wanted.is_err(), "an instance does not become a platform's");
    }

    #[test]
    fn a_callers_gate_has_no_time_at_which_the_server_opened_it() {
        let time = Some(prost_types::Timestamp::default());
        let gate = pb::BootGate { open: true, open_time: time, ..pb::BootGate::default() };
        let sent = pb::Instance { boot_gate: Some(gate), ..pb::Instance::default() };
        let (mut first, mut update) = (sent.clone(), sent.clone());
        reset(&mut first);
        check_update(&first, &mut update, &["boot_gate".to_owned()]).unwrap();
        for instance in [first, update] {
            assert_eq!(
                instance.boot_gate.unwrap(),
                pb::BootGate { open: true, ..Default::default() }
            );
        }
        let mut system = platform("", "http://x/", sent.boot_gate);
        reset(&mut system);
        assert_eq!(system, platform("", "", None));
    }

    #[test]
    fn only_an_open_gate_of_the_server_is_claimed() {
        let gate = pb::BootGate {
            open: true,
            uuid: "4c4c4544-0051-3610-8052-b4c04f4d3532".into(),
            mac: "52:54:00:00:00:01".into(),
            initial_ips: vec!["192.0.2.1".into()],
            open_time: Some(prost_types::Timestamp::default()),
        };
        let count = |gate: pb::BootGate| {
            claims(&pb::Instance { boot_gate: Some(gate), ..pb::Instance::default() }).count()
        };
        assert_eq!(count(gate.clone()), 2);
        assert_eq!(count(pb::BootGate { open: false, ..gate.clone() }), 0);
        assert_eq!(count(pb::BootGate { open_time: None, ..gate }), 0);
        assert_eq!(claims(&pb::Instance::default()).count(), 0);
    }
}
