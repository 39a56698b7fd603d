//! What commands print: tables for people, JSON and YAML for programs.

use std::time::{Duration, SystemTime};

use comfy_table::{ContentArrangement, Table, presets};
use prost::{Message, Name};
use serde_json::Value;
use tinwright::json;

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table.
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

fn table<R: Row>(rows: &[R]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(R::COLUMNS);
    let now = SystemTime::now();
    rows.iter().for_each(|row| {
        table.add_row(row.row(now));
    });
    table.trim_fmt()
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
}
