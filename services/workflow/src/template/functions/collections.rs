//! Functions over lists, maps and choices.

use std::collections::HashMap;

use gtmpl_ng::{FuncError, Value};

use super::arguments::{Arguments, as_text, is_true};
use crate::template::engine::MAX_TEMPLATE_BYTES;

type FunctionResult = Result<Value, FuncError>;

/// `default "fallback" value` returns the value unless it is empty.
pub(super) fn default(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::any("default", values);
    match (arguments.value(0)?, values.get(1)) {
        (_, Some(value)) if is_true(value) => Ok(value.clone()),
        (fallback, _) => Ok(fallback.clone()),
    }
}

/// `ternary "yes" "no" condition` returns the first argument if the condition is true, else the second.
pub(super) fn ternary(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("ternary", values, 3)?;
    arguments.value(if is_true(arguments.value(2)?) { 0 } else { 1 }).cloned()
}

/// Returns a map of alternating keys and values; a last key without a value gets an empty text.
pub(super) fn dict(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::any("dict", values);
    let mut map = HashMap::new();
    for place in (0..values.len()).step_by(2) {
        let value = values.get(place + 1).cloned().unwrap_or_else(|| "".into());
        map.insert(arguments.text(place)?.into_owned(), value);
    }
    Ok(Value::Object(map))
}

/// Returns a list of the arguments.
pub(super) fn list(values: &[Value]) -> FunctionResult {
    Ok(Value::Array(values.to_vec()))
}

/// Returns the first item of a list, nil for an empty one.
pub(super) fn first(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("first", values, 1)?;
    Ok(arguments.list(0)?.first().cloned().unwrap_or(Value::Nil))
}

/// `get map "key"` returns the value, or an empty text if there is none: for keys that may be missing.
pub(super) fn get(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("get", values, 2)?;
    Ok(arguments.map(0)?.get(&*arguments.text(1)?).cloned().unwrap_or_else(|| "".into()))
}

/// Go's `index`, in which a missing key of a map is nil and not an error: the library does so for its maps only.
pub(super) fn index(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::any("index", values);
    let mut found = arguments.value(0)?.clone();
    for key in values.iter().skip(1) {
        found = match (&found, key) {
            (Value::Object(entries), Value::String(key)) => {
                entries.get(key).cloned().unwrap_or(Value::NoValue)
            }
            (collection, key) => gtmpl_ng::funcs::index(&[collection.clone(), key.clone()])?,
        };
    }
    Ok(found)
}

/// `join "," list` joins the items. A single value counts as a list of one; nil is left out.
pub(super) fn join(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("join", values, 2)?;
    let single = arguments.value(1)?;
    let items = if let Value::Array(items) = single { items } else { std::slice::from_ref(single) };
    let mut parts = Vec::new();
    for item in items.iter().filter(|item| !matches!(item, Value::Nil | Value::NoValue)) {
        parts.push(
            as_text(item)
                .ok_or_else(|| arguments.error("joins texts, numbers and booleans only"))?,
        );
    }
    let separator = arguments.text(0)?;
    if separator.len().saturating_mul(parts.len()) > MAX_TEMPLATE_BYTES {
        return Err(arguments.error("the result would be too large"));
    }
    Ok(parts.join(&*separator).into())
}

/// `split "$" "a$b"` returns a map in which `_0` is `a` and `_1` is `b`.
pub(super) fn split(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("split", values, 2)?;
    let (separator, text) = (arguments.text(0)?, arguments.text(1)?);
    let parts = text.split(&*separator).enumerate();
    Ok(Value::Object(parts.map(|(place, part)| (format!("_{place}"), part.into())).collect()))
}
