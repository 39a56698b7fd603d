//! Times of a run: of each test, each test binary, and each unit of the build.
//!
//! - `runner`: runs a test binary for cargo, and writes its times. `record`: the files of times.
//! - `build`: reads cargo's report of a build. `table`: formats times.

mod build;
mod record;
mod runner;
mod table;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

pub(crate) use self::build::remove_reports;
use self::record::{PROCESSOR, Record, Timed};
pub(crate) use self::runner::run;
use self::table::{Row, table};

/// Maximum numbers of rows in the tables.
const MAX_TESTS: usize = 30;
const MAX_BINARIES: usize = 30;
const MAX_UNITS: usize = 15;
/// The subcommand of this program that calls [`run`].
pub(crate) const RUN_SUBCOMMAND: &str = "run-timed";

/// Times of a run of the tests, in a folder with a file for each test binary.
#[derive(Debug)]
pub(crate) struct Times {
    target: PathBuf,
    folder: PathBuf,
}

impl Times {
    /// Creates the folder below cargo's `target`, in place of the folder of the last run.
    pub(crate) fn create(target: PathBuf) -> anyhow::Result<Self> {
        let times = Self { folder: target.join("test-times"), target };
        if times.folder.exists() {
            std::fs::remove_dir_all(&times.folder)?;
        }
        std::fs::create_dir_all(&times.folder)?;
        // A copy: cargo may replace the program by a new build while the tests run.
        let runner = times.folder.join("runner");
        std::fs::copy("/proc/self/exe", &runner).context("copying this program")?;
        let runner = [runner.as_os_str(), OsStr::new(RUN_SUBCOMMAND), times.folder.as_os_str()];
        let runner = runner.map(|argument| argument.to_string_lossy().into_owned());
        // An array of strings has the same form in TOML.
        let text = format!("[target.'cfg(all())']\nrunner = {runner:?}\n");
        std::fs::write(times.cargo_configuration(), text)?;
        Ok(times)
    }

    /// Has `cargo`, a command that runs tests, write their times.
    ///
    /// The runner is in a file. The variable `CARGO_TARGET_<TRIPLE>_RUNNER` would be inherited by
    /// each cargo that a test starts, and cannot hold a path with a space.
    pub(crate) fn record<'a>(&self, cargo: &'a mut Command) -> &'a mut Command {
        cargo.arg("--config").arg(self.cargo_configuration())
    }

    /// Calls `journey`, and writes its time as that of a test binary with one test.
    pub(crate) fn measure<T>(&self, binary: &str, test: &str, journey: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = journey();
        let timed = |name: &str| Timed::new(begin.elapsed(), name);
        // The journey runs in this process, beside others.
        let processor = Timed::new(Duration::ZERO, PROCESSOR);
        let record = Record { binary: timed(binary), processor, tests: vec![timed(test)] };
        record.save(&self.folder, binary);
        result
    }

    /// Prints the slowest tests and test binaries, and the slowest units of the last build, which
    /// took `build`.
    pub(crate) fn print(&self, build: Duration) {
        match record::read_all(&self.folder) {
            Ok(records) => {
                println!("\n{}\n{}", slowest_tests(&records), slowest_binaries(&records));
            }
            Err(error) => eprintln!("cargo rack: times of tests: {error:#}"),
        }
        println!("{}", slowest_units(build, build::compiled_units(&self.target)));
    }

    fn cargo_configuration(&self) -> PathBuf {
        self.folder.join("cargo.toml")
    }
}

fn slowest_tests(records: &[Record]) -> String {
    let rows = records.iter().flat_map(|record| {
        record.tests.iter().map(|test| Row {
            seconds: test.seconds,
            cells: vec![record.binary.name.clone(), test.name.clone()],
        })
    });
    let rows: Vec<_> = rows.collect();
    let title = format!("slowest of {} tests", rows.len());
    table(&title, &["binary", "test"], rows, MAX_TESTS)
}

fn slowest_binaries(records: &[Record]) -> String {
    let rows = records.iter().map(|record| Row {
        seconds: record.binary.seconds,
        cells: vec![
            format!("{:.1}", record.processor.seconds),
            record.binary.name.clone(),
            record.tests.len().to_string(),
        ],
    });
    let rows: Vec<_> = rows.collect();
    let title = format!("slowest of {} test binaries", rows.len());
    table(&title, &["processor", "binary", "tests"], rows, MAX_BINARIES)
}

fn slowest_units(build: Duration, units: anyhow::Result<Vec<Timed>>) -> String {
    let build = format!("build: {:.1} s", build.as_secs_f64());
    match units {
        Ok(units) if units.is_empty() => format!("{build}, nothing was compiled\n"),
        Ok(units) => {
            let title = format!("{build}, slowest of {} compiled units", units.len());
            let row = |unit: Timed| Row { seconds: unit.seconds, cells: vec![unit.name] };
            table(&title, &["unit"], units.into_iter().map(row).collect(), MAX_UNITS)
        }
        Err(error) => format!("{build}; its units are unknown: {error:#}\n"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(times: &Times) -> Vec<String> {
        record::read_all(&times.folder).unwrap().into_iter().map(|it| it.binary.name).collect()
    }

    #[test]
    fn a_run_begins_without_the_times_of_the_last_one() {
        let target = tempfile::tempdir().unwrap();
        let times = Times::create(target.path().to_owned()).unwrap();
        assert_eq!(times.measure("lab", "the control plane", || 7), 7);
        assert_eq!(names(&times), ["lab"]);
        let times = Times::create(target.path().to_owned()).unwrap();
        assert_eq!(names(&times), [""; 0]);
    }

    #[test]
    fn tests_are_counted_over_all_binaries() {
        let timed = |seconds, name: &str| Timed { seconds, name: name.to_owned() };
        let record = |binary: Timed, tests| Record {
            processor: timed(binary.seconds / 2.0, PROCESSOR),
            binary,
            tests,
        };
        let records = [
            record(timed(9.0, "store"), vec![timed(8.0, "a"), timed(2.0, "b")]),
            record(timed(5.0, "rack/node"), vec![timed(4.0, "c")]),
        ];
        let tests = slowest_tests(&records);
        assert!(tests.starts_with("slowest of 3 tests\n"), "{tests}");
        let order: Vec<_> = tests.lines().skip(2).map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(order, [Some("a"), Some("c"), Some("b")]);
        assert!(slowest_binaries(&records).contains("     9.0  4.5        store      2\n"));
    }

    #[test]
    fn a_build_without_work_and_one_without_report_are_named() {
        let build = Duration::from_millis(900);
        assert_eq!(slowest_units(build, Ok(vec![])), "build: 0.9 s, nothing was compiled\n");
        let unknown = slowest_units(build, Err(anyhow::anyhow!("no file")));
        assert_eq!(unknown, "build: 0.9 s; its units are unknown: no file\n");
    }
}
