//! What commands print: tables for people, JSON and YAML for programs.

use std::io::{ErrorKind, Write};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use comfy_table::{ContentArrangement, Table, presets};
use prost::{Message, Name};
use prost_types::Timestamp;
use serde_json::Value;
use tinwright::json;

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Something that has a row in a table.
pub trait Row {
    /// The columns' names.
    const COLUMNS: &'static [&'static str];

    /// What stands in them.
    fn row(&self, now: SystemTime) -> Vec<String>;
}

/// Who read what we print has gone away, as `head` does: a reason to stop, but no failure.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output has gone")]
pub struct Closed;

/// Prints `text` and ends the line.
pub fn say(out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
    raw(out, format!("{text}\n").as_bytes())
}

/// Prints `bytes` as they are, at once.
pub fn raw(out: &mut dyn Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        other => other.context("printing"),
    }
}

/// `objects` in `format`: a list, but for a single object that was asked for by name.
pub fn list<M: Message + Name + Row>(objects: &[M], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(table(objects)),
        Format::Json | Format::Yaml => {
            let values: Result<Vec<_>, _> = objects.iter().map(json::write).collect();
            written(&Value::Array(values?), format)
        }
    }
}

/// One object in `format`; people get it as YAML, whole.
pub fn one<M: Message + Name>(object: &M, format: Format) -> anyhow::Result<String> {
    written(&json::write(object)?, if format == Format::Table { Format::Yaml } else { format })
}

/// One event of a watch, on a line of its own.
pub fn event(kind: &str, object: &Value) -> String {
    serde_json::json!({ "event": kind, "object": object }).to_string()
}

fn written(value: &Value, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Table | Format::Yaml => yaml_serde::to_string(value)?.trim_end().to_owned(),
    })
}

/// `rows` under their columns' names.
pub fn table<R: Row>(rows: &[R]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(R::COLUMNS);
    let now = SystemTime::now();
    rows.iter().for_each(|row| {
        table.add_row(row.row(now));
    });
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// What is known of one object, a line each; what is empty is left out.
pub fn facts(facts: &[(&str, String)]) -> String {
    let told = facts.iter().filter(|(_, value)| !value.is_empty());
    told.map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// An enum's value in plain words, as options spell them: `soft-off` of `POWER_SOFT_OFF` without `POWER_`.
pub fn word(value: &str, prefix: &str) -> String {
    value.strip_prefix(prefix).unwrap_or(value).to_lowercase().replace('_', "-")
}

/// How long ago `time` was; nothing if it is unset or to come.
pub fn age(time: Option<Timestamp>, now: SystemTime) -> String {
    let since = time.and_then(|time| now.duration_since(time.try_into().ok()?).ok());
    since.map_or_else(String::new, ago)
}

/// How long ago something was, as people say it: `5s`, `3m`, `7h`, `12d`.
pub fn ago(since: Duration) -> String {
    let seconds = since.as_secs();
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
        let told =
            [0, 59, 60, 3599, 3600, 86399, 86400, 864000].map(|s| ago(Duration::from_secs(s)));
        assert_eq!(told, ["0s", "59s", "1m", "59m", "1h", "23h", "1d", "10d"]);
    }

    #[test]
    fn a_state_is_shown_without_its_enum() {
        assert_eq!(word("WORKFLOW_STATE_RUNNING", "WORKFLOW_STATE_"), "running");
        assert_eq!(word("STATE_DEPROVISION_FAILED", "STATE_"), "deprovision-failed");
    }

    #[test]
    fn what_is_empty_is_no_fact() {
        let told = [("id", "a".into()), ("reason", String::new()), ("state", "failed".into())];
        assert_eq!(facts(&told), "id         a\nstate      failed\n");
    }

    #[test]
    fn a_reader_that_has_gone_is_told_from_a_full_disk() {
        struct Broken(ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        assert!(say(&mut Broken(ErrorKind::BrokenPipe), "x").unwrap_err().is::<Closed>());
        assert!(!say(&mut Broken(ErrorKind::StorageFull), "x").unwrap_err().is::<Closed>());
    }
}
