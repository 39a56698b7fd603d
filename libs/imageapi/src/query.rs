//! Query parameters: the last of repeated ones counts, an empty one is absent, unknown ones are ignored.

use std::borrow::Cow;

use crate::error::ApiError;
use crate::fields::{Fields, Value};
use crate::schema::{ObjectSchema, Property, ValueType};
use crate::validate::Validator;

/// The texts that are true, in any letter case. All others are false.
const TRUE: [&str; 10] =
    ["true", "1", "yes", "ok", "y", "on", "selected", "checked", "t", "enabled"];

/// Reads the parameters that `parameters` lists from the query of a URL, still percent-encoded.
pub(crate) fn read(parameters: &'static ObjectSchema, query: &str) -> Result<Fields, ApiError> {
    let mut fields = Fields::new(parameters);
    for parameter in parameters.properties {
        let text = last(query, parameter.name).filter(|text| !text.is_empty());
        let value = text.map(|text| parse(parameter, text)).transpose()?;
        Validator::QUERY.check_property(parameter, value.as_ref())?;
        fields.set(parameter, value);
    }
    Ok(fields)
}

/// Returns the last value of the parameter `name`.
fn last<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.filter(|(key, _)| key == name).last().map(|(_, value)| value)
}

/// Parses the value of a parameter.
fn parse(parameter: &Property, text: Cow<'_, str>) -> Result<Value, ApiError> {
    match parameter.value {
        ValueType::Boolean => {
            Ok(Value::Boolean(TRUE.iter().any(|it| it.eq_ignore_ascii_case(&text))))
        }
        ValueType::Integer => match text.parse() {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => Err(Validator::QUERY.wrong_type(parameter.name, "int64", &text)),
        },
        // No parameter is an array or an object.
        ValueType::Text(_) | ValueType::Texts(_) | ValueType::Object(_) | ValueType::Objects(_) => {
            Ok(Value::Text(text.into_owned()))
        }
    }
}
