//! A value that was recorded, compared with the one that is there now.

use std::collections::BTreeSet;

use serde_json::Value;

/// A comparison. A field that was not there when the value was recorded is no difference.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Names of fields that are not compared.
    pub(crate) ignored: &'static [&'static str],
    /// True if elements of lists may be gone.
    pub(crate) is_expiring: bool,
    /// The differences, each with its place.
    pub(crate) found: Vec<String>,
}

impl Comparison {
    /// Compares the value `now` at the place `at` with the recorded one.
    pub(crate) fn compare(&mut self, recorded: &Value, now: &Value, at: &str) {
        match (recorded, now) {
            (Value::Object(recorded), Value::Object(now)) => {
                for (name, value) in recorded {
                    if !self.ignored.contains(&name.as_str()) {
                        let now = now.get(name).unwrap_or(&Value::Null);
                        self.compare(value, now, &format!("{at}.{name}"));
                    }
                }
            }
            (Value::Array(recorded), Value::Array(now)) => self.compare_lists(recorded, now, at),
            _ if recorded == now => {}
            _ => self.found.push(format!("{at}: {recorded}, now {now}")),
        }
    }

    fn compare_lists(&mut self, recorded: &[Value], now: &[Value], at: &str) {
        let (Some(names), Some(names_now)) = (names(recorded), names(now)) else {
            if recorded.len() != now.len() {
                self.found.push(format!("{at}: {recorded:?}, now {now:?}"));
            }
            for (number, (value, now)) in recorded.iter().zip(now).enumerate() {
                self.compare(value, now, &format!("{at}[{number}]"));
            }
            return;
        };
        for value in recorded {
            let at = format!("{at}[{}]", name(value));
            match now.iter().find(|it| name(it) == name(value)) {
                Some(now) => self.compare(value, now, &at),
                None if self.is_expiring => {}
                None => self.found.push(format!("{at}: missing")),
            }
        }
        self.found.extend(names_now.difference(&names).map(|name| format!("{at}[{name}]: new")));
    }
}

/// Returns the names of the elements of a list; none unless each has another one.
fn names(list: &[Value]) -> Option<BTreeSet<String>> {
    let names: BTreeSet<_> = list.iter().map(name).collect();
    (names.len() == list.len() && !names.contains("")).then_some(names)
}

/// Returns what names an object, or the only object in it, or the field that is all it has; empty if
/// nothing does.
fn name(value: &Value) -> String {
    let Some(object) = value.as_object() else { return value.to_string() };
    let own =
        ["id", "serial", "mac", "address"].iter().find_map(|name| object.get(*name)?.as_str());
    match (own, object.iter().next().filter(|_| object.len() == 1)) {
        (Some(own), _) => own.to_owned(),
        (None, Some((field, part))) => {
            let name = if part.is_object() { name(part) } else { String::new() };
            if name.is_empty() { field.clone() } else { name }
        }
        (None, None) => String::new(),
    }
}
