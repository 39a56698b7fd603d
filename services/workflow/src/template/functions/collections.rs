//! Functions over lists, maps and choices.

use std::collections::HashMap;

use gtmpl_ng::{FuncError, Value};

use super::arguments::{Arguments, as_text, is_true};
use crate::template::engine::LIMIT;

type Answer = Result<Value, FuncError>;

/// `default "fallback" value`: the value unless it is empty.
pub(super) fn default(values: &[Value]) -> Answer {
    let given = Arguments::any("default", values);
    match (given.value(0)?, values.get(1)) {
        (_, Some(value)) if is_true(value) => Ok(value.clone()),
        (fallback, _) => Ok(fallback.clone()),
    }
}

/// `ternary "yes" "no" condition`.
pub(super) fn ternary(values: &[Value]) -> Answer {
    let given = Arguments::exactly("ternary", values, 3)?;
    given.value(if is_true(given.value(2)?) { 0 } else { 1 }).cloned()
}

/// A map of the keys and values given in turn; a last key without a value gets an empty text.
pub(super) fn dict(values: &[Value]) -> Answer {
    let given = Arguments::any("dict", values);
    let mut map = HashMap::new();
    for place in (0..values.len()).step_by(2) {
        let value = values.get(place + 1).cloned().unwrap_or_else(|| "".into());
        map.insert(given.text(place)?.into_owned(), value);
    }
    Ok(Value::Object(map))
}

/// A list of the arguments.
pub(super) fn list(values: &[Value]) -> Answer {
    Ok(Value::Array(values.to_vec()))
}

/// The first item of a list, nil for an empty one.
pub(super) fn first(values: &[Value]) -> Answer {
    let given = Arguments::exactly("first", values, 1)?;
    Ok(given.list(0)?.first().cloned().unwrap_or(Value::Nil))
}

/// `get map "key"`: the value, or an empty text; the way to ask for what may be missing.
pub(super) fn get(values: &[Value]) -> Answer {
    let given = Arguments::exactly("get", values, 2)?;
    Ok(given.map(0)?.get(&*given.text(1)?).cloned().unwrap_or_else(|| "".into()))
}

/// Go's `index`, in which a key that a map lacks is nil and no error: the library says so of its maps only.
pub(super) fn index(values: &[Value]) -> Answer {
    let given = Arguments::any("index", values);
    let mut found = given.value(0)?.clone();
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

/// `join "," list`: a single value is a list of one, nil is left out.
pub(super) fn join(values: &[Value]) -> Answer {
    let given = Arguments::exactly("join", values, 2)?;
    let single = given.value(1)?;
    let items = if let Value::Array(items) = single { items } else { std::slice::from_ref(single) };
    let mut parts = Vec::new();
    for item in items.iter().filter(|item| !matches!(item, Value::Nil | Value::NoValue)) {
        parts.push(
            as_text(item)
                .ok_or_else(|| given.error("joins texts, numbers and truth values only"))?,
        );
    }
    let separator = given.text(0)?;
    if separator.len().saturating_mul(parts.len()) > LIMIT {
        return Err(given.error("the result would be too large"));
    }
    Ok(parts.join(&*separator).into())
}

/// `split "$" "a$b"`: a map, `_0` is `a` and `_1` is `b`.
pub(super) fn split(values: &[Value]) -> Answer {
    let given = Arguments::exactly("split", values, 2)?;
    let (separator, text) = (given.text(0)?, given.text(1)?);
    let parts = text.split(&*separator).enumerate();
    Ok(Value::Object(parts.map(|(place, part)| (format!("_{place}"), part.into())).collect()))
}
