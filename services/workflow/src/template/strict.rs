//! Maps that refuse the same key twice, where serde would quietly keep the last.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// A map of texts; nothing behind the key is an empty one.
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
