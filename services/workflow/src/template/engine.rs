//! Go's `text/template` over JSON values, with limits on nesting, iterations, output and time.
//!
//! The library quotes the data in its errors, and hardware data holds secrets. So an error keeps only the position and the
//! recognised parts of the library's text; see [`error`](super::error). A missing key is an error (Go's `missingkey=error`),
//! and whole numbers stay whole, where Go would turn 1000000 of JSON into 1e+06.

use std::{collections::HashMap, time::Duration};

use gtmpl_ng::{Context, Limits, Template, Value};

use super::{
    error::{PlaceholderError, PlaceholderErrorCause},
    functions,
};

/// The most bytes of a template, before rendering and after.
pub const MAX_TEMPLATE_BYTES: usize = 256 * 1024;

const MAX_ITERATIONS: usize = 100_000;
/// Only a malicious template takes as long. A failure on a very slow machine is better than no limit.
const RENDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks that the placeholders in `text` are well formed and call only existing functions.
pub(super) fn check(name: &str, text: &str) -> Result<(), PlaceholderError> {
    compile(name, text).map(drop)
}

/// Renders `text` with `data`.
pub(super) fn render(
    name: &str,
    text: &str,
    data: serde_json::Value,
) -> Result<String, PlaceholderError> {
    let template = compile(name, text)?;
    template
        .render(&Context::from(value(data)))
        .map_err(|error| PlaceholderError::rendering(name, text, &error))
}

fn compile(name: &str, text: &str) -> Result<Template, PlaceholderError> {
    if text.len() > MAX_TEMPLATE_BYTES {
        let cause = PlaceholderErrorCause::TooLarge;
        return Err(PlaceholderError { template: name.to_owned(), line: None, cause });
    }
    parse(text).map_err(|error| PlaceholderError::parsing(name, text, &error))
}

/// Parses with our limits and functions. The template gets no name: the library would only add it to its errors.
pub(super) fn parse(text: &str) -> Result<Template, gtmpl_ng::ParseError> {
    let limits = Limits::default()
        .with_output_bytes(MAX_TEMPLATE_BYTES)
        .with_function_output(MAX_TEMPLATE_BYTES)
        .with_total_iterations(MAX_ITERATIONS)
        .with_deadline(RENDER_TIMEOUT);
    let mut template = Template::with_limits(limits);
    template.add_funcs(functions::TABLE);
    template.parse(text)?;
    Ok(template)
}

/// Converts JSON into the library's values: objects, not maps, because only an object makes a missing key an error.
pub(super) fn value(json: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Nil,
        Json::Bool(it) => Value::Bool(it),
        Json::String(it) => Value::String(it),
        Json::Array(items) => Value::Array(items.into_iter().map(value).collect()),
        Json::Object(entries) => {
            let entries: HashMap<_, _> =
                entries.into_iter().map(|(key, item)| (key, value(item))).collect();
            Value::Object(entries)
        }
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => Value::from(signed),
            (None, Some(unsigned)) => Value::from(unsigned),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
    }
}
