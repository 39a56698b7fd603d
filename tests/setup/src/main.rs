//! `cargo rack`: boots the virtual rack, runs tests, benches and checks, installs what they need, and packs the programs.
//!
//! This program has few dependencies, so that it is built quickly and prints its first line soon.

mod alone;
mod json;
mod lab;
mod lanes;
mod long;
#[cfg(test)]
mod sources;
mod suite;
mod times;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack", bin_name = "cargo rack", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Boot two virtual machines, one with BIOS and one with UEFI, and provision them (the default)
    Up {
        /// Remove the rack once both instances are active
        #[arg(long)]
        down: bool,
        /// Write an animated picture of the run to this SVG file
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Start the site of compose.yaml in containers, without an image registry, and provision its virtual machine
    Lab {
        /// Remove the lab once the instance is active
        #[arg(long)]
        down: bool,
        /// Run a test of it instead
        #[arg(long, conflicts_with = "down")]
        test: Option<lab::Test>,
    },
    /// Install missing packages if root, else print the command that installs them
    Setup,
    /// Run all tests; arguments are passed to cargo test
    Test {
        /// Run the tests that take hours instead: a part, of one hour at most, or all parts
        #[arg(long, value_name = "PART", conflicts_with = "arguments")]
        long: Option<Option<long::Part>>,
        /// Arguments of cargo test, such as a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the release programs, and pack them: a tarball for any Linux, and a package for Debian, in target/package
    Package {
        /// Name this version in the packages
        #[arg(long, default_value = setup::package::VERSION)]
        version: String,
    },
    /// Measure the server under load, or compare it with other servers; arguments are passed to the benchmark
    Load {
        /// Arguments of the benchmark, such as boot --machines 1000, or beside (the comparison)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzz the codecs and servers; arguments are passed to the fuzzer
    Fuzz {
        /// Arguments of the fuzzer, such as --seconds 600, --seed 7 or --only dhcp,tftp,syslog,imds,ial
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check format, contract, lints, documentation, and the features of each crate
    Check,
    /// Run a test binary for cargo, and write its times
    #[command(hide = true, name = times::RUN_SUBCOMMAND)]
    RunTimed {
        /// The folder for the times
        folder: PathBuf,
        /// The test binary
        program: OsString,
        /// Arguments of the test binary
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        None => suite::up(&[]),
        Some(Command::Up { down, record }) => {
            let down = down.then(|| "--down".into());
            let record = record.map(|path| ["--record".into(), path.into_os_string()]);
            suite::up(&down.into_iter().chain(record.into_iter().flatten()).collect::<Vec<_>>())
        }
        Some(Command::Lab { test: Some(test), .. }) => suite::test_lab(test),
        Some(Command::Lab { down, test: None }) => suite::lab(down),
        Some(Command::Setup) => setup::packages().and_then(|()| setup::tools().map(drop)),
        Some(Command::Test { long: Some(part), .. }) => long::test(part),
        Some(Command::Test { long: None, arguments }) => suite::test(&arguments),
        Some(Command::Package { version }) => suite::package(version),
        Some(Command::Load { arguments }) => suite::load(&arguments),
        Some(Command::Fuzz { arguments }) => suite::fuzz(&arguments),
        Some(Command::Check) => suite::check(),
        Some(Command::RunTimed { folder, program, arguments }) => {
            return times::run(&folder, &program, &arguments).unwrap_or_else(|error| fail(&error));
        }
    };
    result.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("cargo rack: {error:#}");
    ExitCode::FAILURE
}
