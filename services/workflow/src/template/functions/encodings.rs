//! Base64 and YAML.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use gtmpl_ng::{FuncError, NumberKind, Value};
use serde::{Serialize, Serializer};

use super::arguments::Arguments;
use crate::template::engine;

type Answer = Result<Value, FuncError>;

/// RFC 4648 §4, padded.
pub(super) fn b64enc(values: &[Value]) -> Answer {
    let given = Arguments::exactly("b64enc", values, 1)?;
    Ok(STANDARD.encode(&*given.text(0)?).into())
}

/// RFC 4648 §4; what comes out must be text.
pub(super) fn b64dec(values: &[Value]) -> Answer {
    let given = Arguments::exactly("b64dec", values, 1)?;
    let bytes = STANDARD.decode(&*given.text(0)?).map_err(|_| given.error("wants base64"))?;
    String::from_utf8(bytes)
        .map(Value::from)
        .map_err(|_| given.error("what was encoded is no text"))
}

/// The value as YAML, keys sorted, without the last line break.
pub(super) fn to_yaml(values: &[Value]) -> Answer {
    let given = Arguments::exactly("toYaml", values, 1)?;
    let yaml = yaml_serde::to_string(&Plain(given.value(0)?))
        .map_err(|_| given.error("no YAML for this value"))?;
    Ok(yaml.trim_end_matches('\n').into())
}

/// The value that a YAML text means.
pub(super) fn from_yaml(values: &[Value]) -> Answer {
    let given = Arguments::exactly("fromYaml", values, 1)?;
    let text = given.text(0)?;
    let json = yaml_serde::from_str(&text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        given.error(&format!("the text is no YAML, see its line {line}"))
    })?;
    Ok(engine::value(json))
}

/// A template's value on its way to YAML.
struct Plain<'a>(&'a Value);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Nil | Value::NoValue | Value::Function(_) => to.serialize_unit(),
            Value::Bool(it) => to.serialize_bool(*it),
            Value::String(it) => to.serialize_str(it),
            Value::Array(items) => to.collect_seq(items.iter().map(Plain)),
            Value::Object(entries) | Value::Map(entries) => {
                let sorted: BTreeMap<_, _> = entries.iter().collect();
                to.collect_map(sorted.into_iter().map(|(key, item)| (key, Plain(item))))
            }
            Value::Number(number) => match number.kind() {
                NumberKind::Signed(it) => to.serialize_i64(it),
                NumberKind::Unsigned(it) => to.serialize_u64(it),
                NumberKind::Float(it) => to.serialize_f64(it),
            },
        }
    }
}
