//! Go's `text/template` over JSON values, with an end to everything: nesting, iterations, output, time.
//!
//! The library underneath prints the whole data with its errors, and hardware data holds secrets. So nothing of an
//! error's text gets out but its position and what is recognised in it; see [`fault`](super::fault). A key that
//! is missing is an error (Go's `missingkey=error`), and whole numbers stay whole, where Go would make
//! 1000000 of JSON into 1e+06.

use std::{collections::HashMap, time::Duration};

use gtmpl_ng::{Context, Limits, Template, Value};

use super::{
    fault::{Cause, Fault},
    functions,
};

/// The most bytes a template may have, before rendering and after.
pub const LIMIT: usize = 256 * 1024;

const ITERATIONS: usize = 100_000;
/// Only a template bent on harm needs as long; a wrong answer on a very slow machine beats none on any.
const TIME: Duration = Duration::from_secs(5);

/// Passes if the actions in `text` are well formed and call only functions we have.
pub(super) fn check(name: &str, text: &str) -> Result<(), Fault> {
    compile(name, text).map(drop)
}

/// `text` with every action replaced by what it says about `data`.
pub(super) fn render(name: &str, text: &str, data: serde_json::Value) -> Result<String, Fault> {
    let template = compile(name, text)?;
    template
        .render(&Context::from(value(data)))
        .map_err(|error| Fault::rendering(name, text, &error))
}

fn compile(name: &str, text: &str) -> Result<Template, Fault> {
    if text.len() > LIMIT {
        return Err(Fault { template: name.to_owned(), line: None, cause: Cause::TooLarge });
    }
    parse(text).map_err(|error| Fault::parsing(name, text, &error))
}

/// The library's template with our limits and functions, and no name: it would only turn up in errors.
pub(super) fn parse(text: &str) -> Result<Template, gtmpl_ng::ParseError> {
    let limits = Limits::default()
        .with_output_bytes(LIMIT)
        .with_function_output(LIMIT)
        .with_total_iterations(ITERATIONS)
        .with_deadline(TIME);
    let mut template = Template::with_limits(limits);
    template.add_funcs(functions::TABLE);
    template.parse(text)?;
    Ok(template)
}

/// As the library holds it: objects, not maps, because only an object makes a missing key an error.
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
