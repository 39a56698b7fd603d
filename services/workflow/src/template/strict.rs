//! Maps that refuse a repeated key, where serde would silently use the last value.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Reads a map of texts; a key without a value has an empty one.
pub(super) fn map<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Texts)
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, Option<String>>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate entry with key {key:?}")));
            }
            map.insert(key, value.unwrap_or_default());
        }
        Ok(map)
    }
}
