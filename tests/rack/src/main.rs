//! `cargo rack`: everything a newcomer and a build machine need, in one command.
//!
//! - [`setup`]: what has to be on the machine, and getting it there.
//! - [`suite`]: every test, and what the code has to look like.

mod setup;
mod suite;

use std::process::ExitCode;

use clap::Parser as _;

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack", bin_name = "cargo rack")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Install what is missing on this machine, as root; else say what to install
    Setup,
    /// Run every test; further arguments go to cargo test
    Test {
        /// Such as a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Look at format, lints, contract and documentation
    Check,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Setup => setup::packages().and_then(|()| setup::tools().map(drop)),
        Command::Test { arguments } => suite::test(&arguments),
        Command::Check => suite::check(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack: {error:#}");
            ExitCode::FAILURE
        }
    }
}
