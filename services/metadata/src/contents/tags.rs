//! Tags as pairs.

use serde_json::{Map, Value};

use crate::machine::Machine;

/// The instance's tags by key; one without a `=` has an empty value. Of two with one key the first counts.
pub(super) fn pairs(machine: &Machine) -> Map<String, Value> {
    let mut pairs = Map::new();
    for tag in machine.instance.iter().flat_map(|instance| &instance.tags) {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        if !pairs.contains_key(key) {
            pairs.insert(key.to_owned(), value.into());
        }
    }
    pairs
}
