//! Output of commands: tables for people, JSON and YAML for programs.

use std::io::{ErrorKind, Write};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use comfy_table::{ContentArrangement, Table, presets};
use prost::{Message, Name};
use prost_types::Timestamp;
use runtime::Clock;
use serde_json::Value;
use tinwright::json;

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Table or text, for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// An object with a row in a table.
pub trait Row {
    /// Names of the columns.
    const COLUMNS: &'static [&'static str];

    /// Returns the values in the columns.
    fn row(&self, now: SystemTime) -> Vec<String>;
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

/// Prints `objects` as a list.
pub fn print_list<M: Message + Name + Row>(
    out: &mut dyn Write,
    objects: &[M],
    format: Format,
) -> anyhow::Result<()> {
    if format == Format::Table {
        return print_line(out, &table(objects));
    }
    let values: Result<Vec<_>, _> = objects.iter().map(json::write).collect();
    print_line(out, &render(&Value::Array(values?), format)?)
}

/// Prints one object: as `text` for people.
pub fn print_one<M: Message + Name>(
    out: &mut dyn Write,
    object: &M,
    format: Format,
    text: impl FnOnce(&M) -> String,
) -> anyhow::Result<()> {
    let text = if format == Format::Table { text(object) } else { one(object, format)? };
    print_line(out, &text)
}

/// Prints `values` as a list; as a table, it is YAML.
pub fn print_values(out: &mut dyn Write, values: Vec<Value>, format: Format) -> anyhow::Result<()> {
    print_line(out, &render(&Value::Array(values), format)?)
}

/// Renders one object; as a table, it is YAML.
pub fn one<M: Message + Name>(object: &M, format: Format) -> anyhow::Result<String> {
    render(&json::write(object)?, format)
}

fn render(value: &Value, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Table | Format::Yaml => yaml_serde::to_string(value)?,
    })
}

/// Renders `objects` as a table.
pub fn table<R: Row>(objects: &[R]) -> String {
    let now = Clock::system().wall();
    table_of(R::COLUMNS, objects.iter().map(|object| object.row(now)))
}

/// Renders `rows` as a table with the names of its `columns`.
pub fn table_of(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns).add_rows(rows);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.trim_fmt()
}

/// Renders the fields of one object, one per line. Empty ones are left out.
pub fn fields(fields: &[(&str, String)]) -> String {
    let present = fields.iter().filter(|(_, value)| !value.is_empty());
    present.map(|(name, value)| format!("{name:<10} {value}\n")).collect()
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
