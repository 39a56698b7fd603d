//! The report that `cargo build --timings` writes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hifijson::value::Value;

use super::record::Timed;
use crate::json::{self, Json};

/// The text before the array of units in the report.
const UNITS: &str = "const UNIT_DATA = ";

/// Removes the reports of earlier builds. Cargo writes one for each build, and removes none.
pub(crate) fn remove_reports(target: &Path) {
    drop(std::fs::remove_dir_all(folder(target)));
}

/// Returns the units that the last build compiled.
pub(super) fn compiled_units(target: &Path) -> anyhow::Result<Vec<Timed>> {
    let path = folder(target).join("cargo-timing.html");
    let report = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    units(&report).with_context(|| path.display().to_string())
}

fn folder(target: &Path) -> PathBuf {
    target.join("cargo-timings")
}

/// Reads the units of a `report`, except those that were not compiled again.
fn units(report: &str) -> anyhow::Result<Vec<Timed>> {
    let (_, units) = report.split_once(UNITS).with_context(|| format!("{UNITS:?}: not found"))?;
    let units = json::parse(units).context("the array of units")?;
    let Value::Array(units) = units else { anyhow::bail!("the units: not an array") };
    let units =
        units.iter().map(|it| unit(it).with_context(|| format!("a unit: unknown form: {it}")));
    // The units of earlier builds have the duration 0.
    units.filter(|unit| unit.as_ref().map_or(true, |unit| unit.seconds > 0.0)).collect()
}

/// Reads an object such as `{"name": "setup", "target": " cargo-rack \"bin\"", "duration": 1.5}`.
/// A unit without target is the crate's library.
fn unit(unit: &Json<'_>) -> Option<Timed> {
    let Value::Number((duration, _)) = json::field(unit, "duration")? else { return None };
    let name = [json::text(unit, "name")?, json::text(unit, "target")?].concat();
    Some(Timed { seconds: duration.parse().ok()?, name })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The form of cargo 1.95, shortened.
    const REPORT: &str = r#"<script>
DURATION = 60;
const UNIT_DATA = [
  {
    "i": 22,
    "name": "libc",
    "version": "0.2.191",
    "mode": "todo",
    "target": "",
    "features": [
      "default"
    ],
    "start": 0.73,
    "duration": 0.61,
    "unblocked_units": [
      23
    ],
    "sections": [["frontend", {"start": 0.0, "end": 0.6}]]
  },
  {
    "i": 23,
    "name": "setup",
    "target": " cargo-rack \"bin\" (test)",
    "start": 1.0,
    "duration": 2,
    "sections": null
  },
  {
    "i": 24,
    "name": "anyhow",
    "target": "",
    "start": 0.0,
    "duration": 0.0
  }
];
const CONCURRENCY_DATA = [];
"#;

    #[test]
    fn compiled_units_are_read_and_fresh_ones_left_out() {
        let expected = [
            Timed { seconds: 0.61, name: "libc".to_owned() },
            Timed { seconds: 2.0, name: "setup cargo-rack \"bin\" (test)".to_owned() },
        ];
        assert_eq!(units(REPORT).unwrap(), expected);
        assert_eq!(units("const UNIT_DATA = [];").unwrap(), []);
    }

    #[test]
    fn a_report_of_another_form_is_an_error() {
        assert_eq!(units("<html>").unwrap_err().to_string(), r#""const UNIT_DATA = ": not found"#);
        for other in ["", "{}", "[", r#"[{"name": "libc", "target": ""}]"#] {
            assert!(units(&format!("const UNIT_DATA = {other};")).is_err(), "{other}");
        }
    }
}
