//! Base64 and YAML.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use gtmpl_ng::{FuncError, NumberKind, Value};
use serde::{Serialize, Serializer};

use super::arguments::Arguments;
use crate::template::{bounded_yaml, engine};

type FunctionResult = Result<Value, FuncError>;

/// Encodes base64 (RFC 4648 §4), padded.
pub(super) fn b64enc(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("b64enc", values, 1)?;
    Ok(STANDARD.encode(&*arguments.text(0)?).into())
}

/// Decodes base64 (RFC 4648 §4); the result must be text.
pub(super) fn b64dec(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("b64dec", values, 1)?;
    let bytes =
        STANDARD.decode(&*arguments.text(0)?).map_err(|_| arguments.error("wants base64"))?;
    String::from_utf8(bytes)
        .map(Value::from)
        .map_err(|_| arguments.error("the decoded bytes are not text"))
}

/// Writes a value as YAML that readers of all versions read alike, with sorted keys, without the last line break.
pub(super) fn to_yaml(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("toYaml", values, 1)?;
    let yaml = yaml::to_string(&YamlValue(arguments.value(0)?))
        .map_err(|_| arguments.error("the value cannot be written as YAML"))?;
    Ok(yaml.trim_end_matches('\n').into())
}

/// Reads a YAML text.
pub(super) fn from_yaml(values: &[Value]) -> FunctionResult {
    let arguments = Arguments::exactly("fromYaml", values, 1)?;
    let text = arguments.text(0)?;
    let json = bounded_yaml::read(&text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        arguments.error(&format!("the text is not YAML, see its line {line}"))
    })?;
    Ok(engine::value(json))
}

/// Serializes a template's value.
struct YamlValue<'a>(&'a Value);

impl Serialize for YamlValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Nil | Value::NoValue | Value::Function(_) => to.serialize_unit(),
            Value::Bool(it) => to.serialize_bool(*it),
            Value::String(it) => to.serialize_str(it),
            Value::Array(items) => to.collect_seq(items.iter().map(YamlValue)),
            Value::Object(entries) | Value::Map(entries) => {
                let sorted: BTreeMap<_, _> = entries.iter().collect();
                to.collect_map(sorted.into_iter().map(|(key, item)| (key, YamlValue(item))))
            }
            Value::Number(number) => match number.kind() {
                NumberKind::Signed(it) => to.serialize_i64(it),
                NumberKind::Unsigned(it) => to.serialize_u64(it),
                NumberKind::Float(it) => to.serialize_f64(it),
            },
        }
    }
}
