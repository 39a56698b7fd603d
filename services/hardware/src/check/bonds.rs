//! Bonds and their interfaces.

use std::collections::BTreeSet;

use tinwright::check;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;

/// The most bonds of a machine.
const MAX_BONDS: usize = 8;
/// The modes of Linux's bonding driver.
const MODES: [&str; 7] = [
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
];

/// Adds the violations of the bonds of `hardware` and of their interfaces.
pub(super) fn check(hardware: &pb::Hardware, wrong: &mut Violations) {
    wrong.take("bonds", check::count(hardware.bonds.len(), MAX_BONDS));
    // A bond is an interface of the installed system as well, so its name must differ from theirs.
    let mut names: BTreeSet<&str> =
        hardware.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    for (n, pb::Bond { name, mode }) in hardware.bonds.iter().enumerate() {
        let at = |field: &str| format!("bonds[{n}].{field}");
        wrong.take(at("name"), super::interface::check_name(name));
        if !names.insert(name) {
            wrong.add(
                at("name"),
                format!("{name:?} is listed twice, or is the name of an interface"),
            );
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
