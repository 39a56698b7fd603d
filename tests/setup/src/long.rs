//! Tests that take hours, in parts of at most one hour.

use std::process::Command;
use std::time::{Instant, SystemTime};

use clap::ValueEnum as _;
use setup::{program, run};

use crate::lab;
use crate::suite::{both, build_tests, cargo};

/// The duration of fuzzing for each codec, in seconds.
const FUZZ_SECONDS: &str = "600";
/// Runs of the rack's restarts.
const RESTART_RUNS: u64 = 5;
/// A name for the unit tests of all crates, in place of a test binary's name.
const UNIT_TESTS: &str = "unit tests";
/// The separator between a test binary and a module in it.
const MODULE_SEPARATOR: &str = "::";

/// A part of the long tests.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Part {
    /// 10,000 grants while the server is killed, and the workflow history of 10,000 machines
    Histories,
    /// Ten minutes of requests to each of the two OpenAPI documents, and a year of a platform's
    /// listings
    Openapi,
    /// Journeys of the rack: built image, virtual media, Debian installed twice, choice of a disk,
    /// UEFI that goes on to its disk, and nodes with all schemes of the ImageAPI
    Journeys,
    /// A former program is built, recorded, and upgraded in place and as replicas; its contract is
    /// compared with the present one
    Upgrade,
    /// The Debian package is installed, upgraded and removed on a virtual machine
    Package,
    /// The agent of a node is killed at each step, and again at each step of its recovery
    Nodes,
    /// Imports whose server, or a process of whose sandbox, is killed at each step
    Imports,
    /// 200 images of random structure, written to disks of several geometries
    Images,
    /// 1,000 BMCs with random quirks
    Bmcs,
    /// Ten minutes of fuzzing for each codec
    Fuzz,
    /// Content of images in a bucket of radosgw, which checks signatures
    Radosgw,
    /// The attacks of the sandbox, on a virtual machine with control groups of version 2
    Sandbox,
    /// Five runs of the rack's restarts with two machines, each with another seed
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

    /// Returns the test binaries, or modules in them, whose ignored tests are the part.
    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Histories => {
                &["unit tests::many", "processes::grant_storm", "processes::history"]
            }
            Self::Openapi => &["api"],
            Self::Journeys => &[
                "built_image",
                "virtual_media",
                "enrolment",
                "firmware",
                "imageapi",
                "node",
                "provision",
            ],
            Self::Upgrade => {
                &["processes::recorded", "processes::rolling", "processes::upgrade_images"]
            }
            Self::Package => &["package"],
            Self::Nodes => &["program"],
            Self::Imports => &["processes::image_kills"],
            Self::Images => &["actions"],
            Self::Bmcs => &["bmc"],
            Self::Radosgw => &["unit tests::real_server", "processes::image_radosgw"],
            Self::Sandbox => &["isolation"],
            Self::Restarts => &["restarts"],
            Self::Fuzz | Self::Lab => &[],
        }
    }

    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Histories
            | Self::Openapi
            | Self::Package
            | Self::Nodes
            | Self::Imports
            | Self::Images
            | Self::Bmcs
            | Self::Sandbox => self.run_ignored(),
            Self::Journeys | Self::Radosgw => {
                setup::long_packages()?;
                self.run_ignored()
            }
            Self::Upgrade => {
                let compared = compare_contracts();
                both(self.run_ignored(), compared)
            }
            Self::Fuzz => run(Command::new(program("fuzz")).args(["--seconds", FUZZ_SECONDS])),
            Self::Restarts => restarts(),
            Self::Lab => lab::test(lab::Test::Machine),
        }
    }

    /// Runs the ignored tests of the part. Goes on after a failure.
    fn run_ignored(self) -> anyhow::Result<()> {
        let (modules, binaries): (Vec<_>, Vec<_>) =
            self.tests().iter().partition(|name| name.contains(MODULE_SEPARATOR));
        let whole = if binaries.is_empty() { Ok(()) } else { run_tests(&binaries, None) };
        let modules = modules.iter().filter_map(|name| name.split_once(MODULE_SEPARATOR));
        modules.fold(whole, |before, (binary, module)| {
            both(before, run_tests(&[binary], Some(module)))
        })
    }
}

/// Runs the ignored tests in `binaries`, or of one `module` in them.
fn run_tests(binaries: &[&str], module: Option<&str>) -> anyhow::Result<()> {
    // `--workspace`, so that it builds nothing again.
    let mut command = cargo(["test", "--workspace", "--no-fail-fast"]);
    for binary in binaries {
        match *binary {
            UNIT_TESTS => command.args(["--lib", "--bins"]),
            binary => command.args(["--test", binary]),
        };
    }
    let module = module.map(|module| format!("{module}{MODULE_SEPARATOR}"));
    run(command.args(["--", "--ignored"]).args(module))
}

/// Compares the contract with that of the former commit: messages that were valid have to be valid.
fn compare_contracts() -> anyhow::Result<()> {
    let former = format!(".git#commit={}", setup::former::UPGRADED_COMMIT);
    let mut buf = Command::new(setup::tools()?.join("buf"));
    run(buf.args(["breaking", "--against", &former]).current_dir(setup::root()))
}

/// Runs the rack's restarts with consecutive seeds. Goes on after a failure.
fn restarts() -> anyhow::Result<()> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let mut failed = Vec::new();
    for seed in since..since + RESTART_RUNS {
        println!("restarts with RACK_SEED={seed}");
        let mut command = cargo(["test", "--workspace", "--test", "restarts", "--", "--ignored"]);
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
    use crate::lanes::RACK_TESTS;
    use crate::sources;

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

    /// Returns the test binary, or the module in it, that is in a part and has the source file `path`.
    /// It is there once for each part.
    fn parts(path: &Path) -> Vec<&'static str> {
        let all = Part::value_variants().iter().flat_map(|part| part.tests()).copied();
        let has_file = |name: &&str| match name.split_once(MODULE_SEPARATOR) {
            Some((of, module)) => of == binary(path) && has_module(path, module),
            None => *name == binary(path),
        };
        all.filter(has_file).collect()
    }

    /// True if the source file `path` is the module `module` of a test binary, or a part of it.
    fn has_module(path: &Path, module: &str) -> bool {
        path.iter().any(|name| name.to_str().unwrap().trim_end_matches(".rs") == module)
    }

    #[test]
    fn every_ignored_test_is_in_exactly_one_part() {
        let files = sources::files("rs")
            .into_iter()
            .filter(|(_, text)| text.lines().any(|line| line.trim_start().starts_with("#[ignore")));
        let mut run = BTreeSet::new();
        for (path, _) in files {
            let parts = parts(&path);
            assert_eq!(parts.len(), 1, "{}: in {parts:?}", path.display());
            run.extend(parts);
        }
        let all: BTreeSet<_> =
            Part::value_variants().iter().flat_map(|part| part.tests()).copied().collect();
        assert_eq!(run, all);
    }

    #[test]
    fn every_test_of_the_rack_is_run() {
        let files = std::fs::read_dir(setup::root().join("tests/rack/tests")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let rust = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
        let found: BTreeSet<_> =
            rust.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let long = [Part::Journeys, Part::Package].map(|part| part.tests().to_vec()).concat();
        let run = RACK_TESTS.concat().into_iter().chain(long).map(str::to_owned);
        assert_eq!(found, run.collect());
    }
}
