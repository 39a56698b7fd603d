//! The boot gate: conditions of an outside platform for network boots.

use std::collections::BTreeSet;

use tinwright::check;
use tinwright::instance::v1::BootGate;
use tinwright::mac::Mac;
use tinwright::status::Violations;
use uuid::Uuid;

/// The most source addresses.
const MAX_INITIAL_IPS: usize = 32;

/// Converts `gate` to its stored, canonical form. Returns its violations.
pub(super) fn normalize(gate: &mut BootGate) -> Violations {
    let mut wrong = Violations::default();
    let BootGate { open: _, uuid, mac, initial_ips } = gate;
    if !uuid.is_empty()
        && let Some(parsed) = wrong.take("uuid", uuid.parse::<Uuid>())
    {
        *uuid = parsed.to_string();
    }
    if !mac.is_empty()
        && let Some(parsed) = wrong.take("mac", mac.parse::<Mac>())
    {
        *mac = parsed.to_string();
    }
    wrong.take("initial_ips", check::count(initial_ips.len(), MAX_INITIAL_IPS));
    for (n, ip) in initial_ips.iter_mut().enumerate() {
        if let Some(address) = wrong.take(format!("initial_ips[{n}]"), check::address(ip)) {
            *ip = address.to_string();
        }
    }
    let mut unique = BTreeSet::new();
    initial_ips.retain(|ip| unique.insert(ip.clone()));
    wrong
}
