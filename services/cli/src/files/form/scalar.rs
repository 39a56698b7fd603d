//! Checks of single values.

use prost_reflect::Kind;
use serde_json::Value;
use tinwright::Mac;

use crate::input;

/// Describes `value` in an error.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "empty".into(),
        Value::Bool(value) => format!("{value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("{:?}", input::short(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "keys with values".into(),
    }
}

/// Returns `value` as protobuf's JSON has it, or the value and what is wrong with it.
pub(super) fn check(name: &str, kind: &Kind, value: Value) -> Result<Value, (Value, String)> {
    let is_text = matches!(kind, Kind::String | Kind::Bytes);
    let expected = match (kind, &value) {
        (_, Value::Null) => return Ok(value),
        (Kind::String, Value::String(text)) if name == "mac" => {
            return Ok(text.parse::<Mac>().map_or(value, |mac| mac.to_string().into()));
        }
        (Kind::String | Kind::Bytes, Value::String(_)) | (Kind::Bool, Value::Bool(_)) => {
            return Ok(value);
        }
        (Kind::String | Kind::Bytes, Value::Number(_) | Value::Bool(_)) => {
            "not a text: put it in quotes"
        }
        (Kind::String | Kind::Bytes, _) => "not a text",
        (Kind::Bool, _) => "not true or false",
        (Kind::Double | Kind::Float, Value::Number(_)) => return Ok(value),
        (Kind::Double | Kind::Float, _) => "not a number",
        (Kind::Uint32 | Kind::Fixed32, _) if fits(&value, 0, u32::MAX.into()) => return Ok(value),
        (Kind::Uint64 | Kind::Fixed64, _) if fits(&value, 0, u64::MAX.into()) => return Ok(value),
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, _)
            if fits(&value, i32::MIN.into(), i32::MAX.into()) =>
        {
            return Ok(value);
        }
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, _)
            if fits(&value, i64::MIN.into(), i64::MAX.into()) =>
        {
            return Ok(value);
        }
        (Kind::Uint32 | Kind::Uint64, _) => "not a whole number of at least 0 in its range",
        _ => "not a whole number in its range",
    };
    let described =
        if is_text { describe(&value).replacen("the number ", "", 1) } else { describe(&value) };
    Err((value, format!("is {described}, {expected}")))
}

/// True if `value` is a whole number between `least` and `most`; protobuf's JSON also has them as texts.
fn fits(value: &Value, least: i128, most: i128) -> bool {
    let number = match value {
        Value::Number(number) => number.to_string().parse::<i128>().ok(),
        Value::String(text) => text.parse::<i128>().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.is_some_and(|number| (least..=most).contains(&number))
}

/// True for seconds as protobuf's JSON has them, such as `1.5s`.
pub(super) fn is_seconds(text: &str) -> bool {
    let number =
        text.strip_suffix('s').map(|number| number.split_once('.').unwrap_or((number, "0")));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    number.is_some_and(|(whole, part)| {
        is_digits(whole) && whole.len() <= 12 && is_digits(part) && part.len() <= 9
    })
}
