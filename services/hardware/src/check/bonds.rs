//! Bonds, and which interfaces belong to them.

use std::collections::BTreeSet;

use tinwright::check;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;

/// The most bonds of a machine.
const MANY: usize = 8;
/// What Linux can do (its bonding driver's documentation, `mode`).
const MODES: [&str; 7] = [
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
];

/// Notes what is wrong with the bonds of `hardware`, and with what its interfaces say of them.
pub(super) fn check(hardware: &pb::Hardware, wrong: &mut Violations) {
    wrong.take("bonds", check::count(hardware.bonds.len(), MANY));
    // A bond is an interface of the system, too: no two of them go by one name.
    let mut names: BTreeSet<&str> =
        hardware.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    for (n, pb::Bond { name, mode }) in hardware.bonds.iter().enumerate() {
        let at = |field: &str| format!("bonds[{n}].{field}");
        wrong.take(at("name"), super::interface::name(name));
        if !names.insert(name) {
            wrong.add(at("name"), format!("{name:?} is there twice, or an interface's name"));
        }
        if !MODES.contains(&mode.as_str()) {
            wrong.add(at("mode"), format!("{mode:?} is none of {}", MODES.join(", ")));
        }
    }
    for (n, interface) in hardware.interfaces.iter().enumerate() {
        let member = &interface.bond;
        if !member.is_empty() && !hardware.bonds.iter().any(|bond| bond.name == *member) {
            wrong.add(format!("interfaces[{n}].bond"), format!("there is no bond {member:?}"));
        }
    }
}
