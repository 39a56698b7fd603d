//! Reads a JSON body into the properties of a table, by the rules of the original's decoder: names match without regard to letter
//! case, unknown properties are ignored, the last duplicate wins, `null` is unset. Text after the value is an error here.
//!
//! Errors name the property and the position, never a value: it could be a secret.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::ApiError;
use crate::fields::{Fields, Value};
use crate::schema::{ObjectSchema, TextRule, ValueType};

/// Reads `body` as the object `object`, whose name in errors is `parameter`. None if the body has nothing but white space.
pub(crate) fn read(
    body: &[u8],
    parameter: &str,
    object: &'static ObjectSchema,
) -> Result<Option<Fields>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    // The deserializer limits the depth to 128, so that a body cannot use up the stack.
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Expected { name: parameter, value: ValueType::Object(object) };
    let value = seed.deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    match value {
        Ok(Some(Value::Object(fields))) => Ok(Some(fields)),
        Ok(_) => Ok(Some(Fields::new(object))),
        Err(cause) => Err(parse_error(parameter, &cause.to_string())),
    }
}

/// Returns the error of a body that cannot be parsed.
pub(crate) fn parse_error(parameter: &str, cause: &str) -> ApiError {
    let message = format!("parsing {parameter} body from \"\" failed, because {cause}");
    ApiError::new(http::StatusCode::BAD_REQUEST, message)
}

/// A value that is to be read, with the name of its property.
#[derive(Clone, Copy)]
struct Expected<'a> {
    name: &'a str,
    value: ValueType,
}

impl Expected<'_> {
    /// Returns the error of a value with another type.
    fn mismatch<T, E: Error>(self) -> Result<T, E> {
        Err(E::custom(format_args!("{} is not {}", self.name, self.value.description())))
    }
}

impl<'de> DeserializeSeed<'de> for Expected<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Expected<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value.description())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        let ValueType::Boolean = self.value else { return self.mismatch() };
        Ok(Some(Value::Boolean(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        let ValueType::Integer = self.value else { return self.mismatch() };
        Ok(Some(Value::Integer(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        i64::try_from(value).map_or_else(|_| self.mismatch(), |value| self.visit_i64(value))
    }

    // 5.0 and 1e2 are no integers, nor is a number of more than 64 bits.
    fn visit_f64<E: Error>(self, _value: f64) -> Result<Self::Value, E> {
        self.mismatch()
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let ValueType::Text(_) = self.value else { return self.mismatch() };
        Ok(Some(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<Self::Value, A::Error> {
        match self.value {
            ValueType::Texts(rule) => self.texts(rule, array),
            ValueType::Objects(object) => self.objects(object, array),
            ValueType::Boolean | ValueType::Integer | ValueType::Text(_) | ValueType::Object(_) => {
                self.mismatch()
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let ValueType::Object(object) = self.value else { return self.mismatch() };
        properties(object, map)
    }
}

impl Expected<'_> {
    /// Reads an array of texts. As in the original, `null` is an empty text.
    fn texts<'de, A: SeqAccess<'de>>(
        self,
        rule: TextRule,
        mut array: A,
    ) -> Result<Option<Value>, A::Error> {
        let element = Expected { value: ValueType::Text(rule), ..self };
        let mut texts = Vec::new();
        while let Some(value) = array.next_element_seed(element)? {
            texts.push(if let Some(Value::Text(text)) = value { text } else { String::new() });
        }
        Ok(Some(Value::Texts(texts)))
    }

    /// Reads an array of objects.
    fn objects<'de, A: SeqAccess<'de>>(
        self,
        object: &'static ObjectSchema,
        mut array: A,
    ) -> Result<Option<Value>, A::Error> {
        let element = Expected { value: ValueType::Object(object), ..self };
        let mut objects = Vec::new();
        while let Some(value) = array.next_element_seed(element)? {
            objects.push(if let Some(Value::Object(fields)) = value { Some(fields) } else { None });
        }
        Ok(Some(Value::Objects(objects)))
    }
}

/// Reads the properties of `object`.
fn properties<'de, A: MapAccess<'de>>(
    object: &'static ObjectSchema,
    mut map: A,
) -> Result<Option<Value>, A::Error> {
    let mut fields = Fields::new(object);
    while let Some(name) = map.next_key::<String>()? {
        match object.property(&name) {
            Some(property) => {
                let expected = Expected { name: property.name, value: property.value };
                let value = map.next_value_seed(expected)?;
                fields.set(property, value);
            }
            None => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(Some(Value::Object(fields)))
}
