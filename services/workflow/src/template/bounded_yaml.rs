//! YAML whose aliases are limited. An alias (`*name`) stands for the whole value of its anchor, so that a short text with
//! many of them can fill the memory of the server.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess as _, Visitor,
};

/// The most bytes of all keys and values of a text, its aliases replaced by what they stand for. A workflow with more could
/// not be stored.
pub(super) const MAX_EXPANDED_BYTES: usize = store::limits::MAX_VALUE_BYTES;

/// Reads a value. Refuses a text whose aliases stand for more than [`MAX_EXPANDED_BYTES`], without expanding them.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, yaml_serde::Error> {
    // Without an alias nothing is read twice.
    if text.contains('*') {
        let mut bytes = 0;
        Measure(&mut bytes).deserialize(yaml_serde::Deserializer::from_str(text))?;
    }
    yaml_serde::from_str(text)
}

/// Adds the size of a value to a sum, without keeping any of it.
struct Measure<'a>(&'a mut usize);

impl Measure<'_> {
    /// Counts at least one byte for each value, as empty ones need memory, too.
    fn count<E: Error>(self, bytes: usize) -> Result<(), E> {
        *self.0 = self.0.saturating_add(bytes.max(1));
        match *self.0 {
            0..=MAX_EXPANDED_BYTES => Ok(()),
            _ => Err(E::custom(format_args!(
                "its aliases stand for more than {MAX_EXPANDED_BYTES} bytes"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Measure<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measure<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.count(1)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.count(1)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.count(1)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.count(1)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.count(1)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.count(1)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.count(text.len())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.count(1)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.count(1)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Measure(self.0))?.is_some() {}
        self.count(1)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while entries.next_key_seed(Measure(self.0))?.is_some() {
            entries.next_value_seed(Measure(self.0))?;
        }
        self.count(1)
    }

    /// A value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), value) = tagged.variant_seed(Measure(self.0))?;
        value.newtype_variant_seed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_that_stand_for_too_much_are_refused_before_they_are_expanded() {
        let value = "x".repeat(100 * 1024);
        let text = |aliases| format!("- &a {value}\n{}", "- *a\n".repeat(aliases));
        assert_eq!(read::<Vec<String>>(&text(4)).unwrap().len(), 5);
        let refused = read::<Vec<String>>(&text(5)).unwrap_err().to_string();
        assert!(refused.contains("its aliases stand for more than 524288 bytes"), "{refused}");
    }

    #[test]
    fn aliases_of_aliases_are_counted() {
        let text = |levels: usize| {
            let level = |n: usize| format!("- &a{n} [*a{below}, *a{below}]\n", below = n - 1);
            let above: String = (1..=levels).map(level).collect();
            format!("- &a0 {}\n{above}", "x".repeat(10 * 1024))
        };
        assert!(read::<serde_json::Value>(&text(4)).is_ok());
        let refused = read::<serde_json::Value>(&text(6)).unwrap_err().to_string();
        assert!(refused.contains("its aliases stand for more than"), "{refused}");
    }

    #[test]
    fn values_of_every_kind_are_measured_and_read() {
        let text = "{a: &a [1, -1, 1.5, true, ~, x, !tag y, {}], 7: *a}";
        let found: yaml_serde::Value = read(text).unwrap();
        assert_eq!(found["a"], found[7]);
    }
}
