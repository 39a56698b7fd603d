//! Switch ports, as DHCP relays identify them.

use tinwright::check::{self, InvalidValue};
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;

/// The space in option 82 besides the headers of its two sub-options (RFC 3046 §2.0).
const MAX_IDS_BYTES: usize = 255 - 2 * 2;

/// Converts `port` to its stored form, or adds its violations.
pub(super) fn normalize(port: &mut pb::RelayPort, wrong: &mut Violations) {
    if port.circuit_id.is_empty() {
        wrong.add("circuit_id", "is empty");
    }
    for (field, hex) in [("circuit_id", &mut port.circuit_id), ("remote_id", &mut port.remote_id)] {
        hex.make_ascii_lowercase();
        if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            wrong.add(field, "is not hex with two digits a byte");
        }
    }
    let length = (port.circuit_id.len() + port.remote_id.len()) / 2;
    if length > MAX_IDS_BYTES {
        let reason = InvalidValue::TooLong { length, max: MAX_IDS_BYTES };
        wrong.add("circuit_id", format!("with remote_id {reason}"));
    }
    wrong.normalize_optional("link_address", &mut port.link_address, check::address);
}
