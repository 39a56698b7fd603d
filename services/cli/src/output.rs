//! Output of commands: tables for people, JSON and YAML for programs.
//!
//! - `columns`: the values of objects in the columns of tables.
//! - `format`: the formats.
//! - `list`: lists of objects, as all commands print them.
//! - `table`: tables with names and short ids.

mod columns;
mod format;
mod list;
mod table;

use std::io::{ErrorKind, Write};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use prost::{Message, Name};
use prost_types::Timestamp;
use runtime::Clock;
use serde_json::Value;
use tinwright::{Stored, json};

pub(crate) use self::columns::headers;
pub use self::format::Format;
pub use self::list::{List, ListOutput};
pub use self::table::{GrowingTable, Table};
use crate::files::{descriptor, human};

/// An object with a row in a table.
pub trait Row: Message + Name + Sized {
    /// The columns, as kubectl has custom ones: a header, and the path of a field after a colon. Columns without
    /// a path have their values from [`cell`](Self::cell).
    const COLUMNS: &'static str;

    /// Returns the value in `column`, which does not show one field.
    fn cell(&self, _column: &str) -> String {
        String::new()
    }

    /// Returns the values in the columns.
    fn row(&self, now: SystemTime) -> Vec<String> {
        columns::row(self, now)
    }
}

/// The reader of the output has closed it, as `head` does: a reason to stop, but not a failure.
#[derive(Debug, thiserror::Error)]
#[error("the reader closed the output")]
pub struct Closed;

/// Prints `text` with one line end.
pub fn print_line(out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
    print_bytes(out, format!("{}\n", text.trim_end_matches('\n')).as_bytes())
}

/// Prints `bytes` and flushes them.
pub fn print_bytes(out: &mut dyn Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        other => other.context("printing"),
    }
}

/// Prints one object: as `text` for people.
pub fn print_one<M: Message + Name>(
    out: &mut dyn Write,
    object: &M,
    format: &Format,
    text: impl FnOnce(&M) -> String,
) -> anyhow::Result<()> {
    let text = if format.is_for_people() { text(object) } else { one(object, format)? };
    print_line(out, &text)
}

/// Prints `values` as a list; as a table, it is YAML.
pub fn print_values(
    out: &mut dyn Write,
    values: Vec<Value>,
    format: &Format,
) -> anyhow::Result<()> {
    print_line(out, &format.render(&Value::Array(values))?)
}

/// Renders one object; as a table, it is YAML.
pub fn one<M: Message + Name>(object: &M, format: &Format) -> anyhow::Result<String> {
    if matches!(format, Format::Name) {
        let value = json::write(object)?;
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        return Ok(reference::<M>(text("name").or_else(|| text("id")).unwrap_or_default()));
    }
    format.render(&value(object, format)?)
}

/// Returns `object` with its kind: in JSON as the API has it, else as people write it.
fn value<M: Message + Name>(object: &M, format: &Format) -> anyhow::Result<Value> {
    let (descriptor, mut value) = (descriptor::<M>()?, json::write(object)?);
    if *format != Format::Json {
        value = human::value(&descriptor, value);
    }
    let Value::Object(mut fields) = value else { return Ok(value) };
    if human::is_range(&descriptor)
        && let Some(own) = fields.shift_remove("kind")
    {
        fields.insert(human::RANGE_KIND.to_owned(), own);
    } else if descriptor.get_field_by_name("kind").is_some() {
        return Ok(Value::Object(fields));
    }
    let kind = ("kind".to_owned(), Value::from(M::NAME));
    Ok(Value::Object([kind].into_iter().chain(fields).collect()))
}

/// Returns the reference that scripts use to the object of type `M` with the name `name`: `hardware/node-1`.
pub fn reference<M: Name>(name: &str) -> String {
    format!("{}/{name}", M::NAME.to_lowercase())
}

/// Returns the name in `text`, which is a name or a reference to an object of type `M`.
pub fn referenced<M: Name>(text: &str) -> &str {
    match text.split_once('/') {
        Some((kind, name)) if kind.eq_ignore_ascii_case(M::NAME) => name,
        Some(_) | None => text,
    }
}

/// Renders `objects` as a table.
pub fn table<R: Row>(objects: &[R]) -> String {
    Table::of(objects, Clock::system().wall()).render(false, true)
}

/// Renders the fields of one object, one per line. Empty ones are left out.
pub fn fields(fields: &[(&str, String)]) -> String {
    let present = fields.iter().filter(|(_, value)| !value.is_empty());
    present.map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// Returns the state of `object` as options write it, such as `deprovision-failed`.
pub fn state(object: &impl Stored) -> String {
    object.state_word().replace('_', "-")
}

/// Returns `state` as tables show it for an object that is protected or not.
pub fn with_protection(state: String, protect: bool) -> String {
    if protect { state + ",protected" } else { state }
}

/// Converts the name of an enum's value as options write it: `POWER_SOFT_OFF` without `POWER_` becomes `soft-off`.
pub fn word(value: &str, prefix: &str) -> String {
    value.strip_prefix(prefix).unwrap_or(value).to_lowercase().replace('_', "-")
}

/// Returns the time since `time`, or nothing if it is absent or in the future.
pub fn age(time: Option<Timestamp>, now: SystemTime) -> String {
    let since = time.and_then(|time| now.duration_since(time.try_into().ok()?).ok());
    since.map_or_else(String::new, short_duration)
}

/// Returns the time until `time`, or nothing if it is absent or past.
pub fn time_until(time: Option<Timestamp>, now: SystemTime) -> String {
    let until = time.and_then(|time| SystemTime::try_from(time).ok()?.duration_since(now).ok());
    until.map_or_else(String::new, short_duration)
}

/// Renders a duration with one unit: `5s`, `3m`, `7h`, `12d`.
fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let ages = [0, 59, 60, 3599, 3600, 86399, 86400, 864000]
            .map(|s| short_duration(Duration::from_secs(s)));
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "23h", "1d", "10d"]);
    }

    #[test]
    fn a_state_is_printed_without_the_name_of_its_enum() {
        assert_eq!(word("WORKFLOW_STATE_RUNNING", "WORKFLOW_STATE_"), "running");
        assert_eq!(word("STATE_DEPROVISION_FAILED", "STATE_"), "deprovision-failed");
    }

    #[test]
    fn empty_fields_are_not_printed() {
        let all = [("id", "a".into()), ("reason", String::new()), ("state", "failed".into())];
        assert_eq!(fields(&all), "id         a\nstate      failed\n");
    }

    #[test]
    fn a_closed_output_is_distinguished_from_a_full_disk() {
        struct Broken(ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        assert!(print_line(&mut Broken(ErrorKind::BrokenPipe), "x").unwrap_err().is::<Closed>());
        assert!(!print_line(&mut Broken(ErrorKind::StorageFull), "x").unwrap_err().is::<Closed>());
    }
}
