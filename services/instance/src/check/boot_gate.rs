//! The boot gate: conditions of an outside platform for network boots.

use std::collections::BTreeSet;

use tinwright::check;
use tinwright::instance::v1::BootGate;
use tinwright::mac::Mac;
use tinwright::status::Violations;
use uuid::Uuid;

/// The most source addresses.
const MAX_INITIAL_IPS: usize = 32;

/// Converts `gate` to its stored, canonical form, or adds its violations.
pub(super) fn normalize(gate: &mut BootGate, wrong: &mut Violations) {
    let BootGate { open: _, uuid, mac, initial_ips, open_time: _ } = gate;
    wrong.normalize_optional("uuid", uuid, str::parse::<Uuid>);
    wrong.normalize_optional("mac", mac, str::parse::<Mac>);
    wrong.each("initial_ips", &mut *initial_ips, MAX_INITIAL_IPS, |ip, wrong| {
        wrong.normalize("", ip, check::address);
    });
    let mut unique = BTreeSet::new();
    initial_ips.retain(|ip| unique.insert(ip.clone()));
}
