//! Tests that take hours, in parts of at most one hour.

use std::process::Command;
use std::time::{Instant, SystemTime};

use clap::ValueEnum as _;
use setup::{program, run};

use crate::lab;
use crate::suite::{build_tests, cargo};

/// The duration of fuzzing for each codec, in seconds.
const FUZZ_SECONDS: &str = "600";
/// Runs of the rack's restarts.
const RESTART_RUNS: u64 = 5;
/// A name for the unit tests of all crates, in place of a test binary's name.
const UNIT_TESTS: &str = "unit tests";

/// A part of the long tests.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Part {
    /// 10,000 grants while the server is killed, and the workflow history of 10,000 machines
    Histories,
    /// Ten minutes of requests to each of the two OpenAPI documents
    Openapi,
    /// Journeys of the rack: built image, virtual media, choice of a disk, and nodes with all
    /// schemes of the ImageAPI
    Journeys,
    /// The Debian package is installed, upgraded and removed on a virtual machine
    Package,
    /// The agent of a node is killed at each step, and again at each step of its recovery
    Nodes,
    /// Ten minutes of fuzzing for each codec
    Fuzz,
    /// Five runs of the rack's restarts, each with another seed
    Restarts,
    /// The lab in containers, whose machine is installed and erased
    Lab,
}

/// Runs `part`, or all parts. Goes on after a failure, and returns an error that names all of them.
pub(crate) fn test(part: Option<Part>) -> anyhow::Result<()> {
    build_tests()?;
    let mut failures = Vec::new();
    for part in part.as_ref().map_or(Part::value_variants(), std::slice::from_ref) {
        let name = part.name();
        println!("{name}");
        let begin = Instant::now();
        let result = part.run();
        println!("{name}: {} s", begin.elapsed().as_secs());
        if let Err(error) = result {
            eprintln!("{name}: {error:#}");
            failures.push(name);
        }
    }
    anyhow::ensure!(failures.is_empty(), "failed: {}", failures.join(", "));
    Ok(())
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the names of the test binaries whose ignored tests are the part.
    fn binaries(self) -> &'static [&'static str] {
        match self {
            Self::Histories => &[UNIT_TESTS, "processes"],
            Self::Openapi => &["api"],
            Self::Journeys => &["built_image", "virtual_media", "enrolment", "imageapi", "node"],
            Self::Package => &["package"],
            Self::Nodes => &["program"],
            Self::Fuzz | Self::Restarts | Self::Lab => &[],
        }
    }

    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Histories | Self::Openapi | Self::Package | Self::Nodes => self.run_ignored(),
            Self::Journeys => {
                setup::long_packages()?;
                self.run_ignored()
            }
            Self::Fuzz => run(Command::new(program("fuzz")).args(["--seconds", FUZZ_SECONDS])),
            Self::Restarts => restarts(),
            Self::Lab => lab::test(lab::Test::Machine),
        }
    }

    /// Runs the ignored tests of the part.
    fn run_ignored(self) -> anyhow::Result<()> {
        // `--workspace`, so that it builds nothing again.
        let mut command = cargo(["test", "--workspace", "--no-fail-fast"]);
        for binary in self.binaries() {
            match *binary {
                UNIT_TESTS => command.args(["--lib", "--bins"]),
                binary => command.args(["--test", binary]),
            };
        }
        run(command.args(["--", "--ignored"]))
    }
}

/// Runs the rack's restarts with consecutive seeds. Goes on after a failure.
fn restarts() -> anyhow::Result<()> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let mut failed = Vec::new();
    for seed in since..since + RESTART_RUNS {
        println!("restarts with RACK_SEED={seed}");
        let mut command = cargo(["test", "--workspace", "--test", "restarts"]);
        if let Err(error) = run(command.env("RACK_SEED", seed.to_string())) {
            eprintln!("restarts with RACK_SEED={seed}: {error:#}");
            failed.push(seed.to_string());
        }
    }
    anyhow::ensure!(failed.is_empty(), "failed with RACK_SEED={}", failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::sources;
    use crate::suite::RACK_TESTS;

    /// The binaries of all parts. A binary in two parts is there twice.
    fn binaries() -> Vec<&'static str> {
        let mut all: Vec<_> =
            Part::value_variants().iter().flat_map(|part| part.binaries()).copied().collect();
        all.sort_unstable();
        all
    }

    /// Returns the name of the test binary that has the source file `path`.
    fn binary(path: &Path) -> &str {
        let names: Vec<_> = path.iter().map(|name| name.to_str().unwrap()).collect();
        if names.contains(&"src") {
            return UNIT_TESTS;
        }
        let folder = names.iter().rposition(|name| *name == "tests").unwrap();
        names[folder + 1].trim_end_matches(".rs")
    }

    #[test]
    fn a_source_file_belongs_to_a_binary() {
        assert_eq!(binary(Path::new("libs/store/src/sled/tests/many.rs")), UNIT_TESTS);
        assert_eq!(binary(Path::new("tests/api/openapi/ial.rs")), "api");
        assert_eq!(binary(Path::new("tests/rack/tests/node.rs")), "node");
        assert_eq!(binary(Path::new("services/node-agent/tests/program/main.rs")), "program");
    }

    #[test]
    fn every_ignored_test_is_in_exactly_one_part() {
        let files = sources::files("rs")
            .into_iter()
            .filter(|(_, text)| text.lines().any(|line| line.trim_start().starts_with("#[ignore")));
        let files: Vec<_> = files.map(|(path, _)| path).collect();
        let ignored: BTreeSet<_> = files.iter().map(|path| binary(path)).collect();
        assert_eq!(binaries(), ignored.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_test_of_the_rack_is_run() {
        let files = std::fs::read_dir(setup::root().join("tests/rack/tests")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let rust = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
        let found: BTreeSet<_> =
            rust.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let long = [Part::Journeys, Part::Package].map(|part| part.binaries().to_vec()).concat();
        let run = RACK_TESTS.concat().into_iter().chain(long).map(str::to_owned);
        assert_eq!(found, run.collect());
    }
}
