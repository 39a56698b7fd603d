//! The rules for placements.

use tinwright::check;
use tinwright::instance::v1::Placement;
use tinwright::status::Violations;

/// The longest name of a model or location, and the longest key of a label.
const MAX_NAME_BYTES: usize = 255;

/// Adds the violations of `placement`.
pub(super) fn check(placement: &Placement, wrong: &mut Violations) {
    let Placement { model_id, location_id, labels, spread_label, zone } = placement;
    wrong.take("model_id", check::length(model_id, MAX_NAME_BYTES));
    wrong.take("location_id", check::length(location_id, MAX_NAME_BYTES));
    wrong.take("labels", check::labels(labels));
    wrong.take("spread_label", check::length(spread_label, MAX_NAME_BYTES));
    wrong.take("zone", check::length(zone, MAX_NAME_BYTES));
    if !zone.is_empty() && location_id.is_empty() {
        wrong.add("zone", "is set without location_id: zones belong to a location");
    }
}
