//! `cargo rack`: everything a newcomer and a build machine need, in one command.
//!
//! Without a command it boots the virtual rack and provisions it; that, every test, and what the code has to look like are
//! in `suite`. This program is small, so that it soon says what it is about to do.

mod alone;
mod suite;

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
    /// Boot two machines, one BIOS and one UEFI, and provision them; what happens without a command, too
    Up {
        /// Take the rack down once both machines are active
        #[arg(long)]
        down: bool,
    },
    /// Install what is missing on this machine, as root; else say what to install
    Setup,
    /// Run every test; further arguments go to cargo test
    Test {
        /// Such as a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure the server: a thousand machines at once, or beside its peers; further arguments go to the program that does it
    Load {
        /// Such as boot --machines 1000, or beside
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Feed codecs with spoiled inputs; further arguments go to the program that does it
    Fuzz {
        /// Such as --seconds 600, --seed 7 or --only dhcp,tftp,syslog,imds
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check format, lints, contract, documentation, and that every crate builds alone
    Check,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        None => suite::up(&[]),
        Some(Command::Up { down }) => suite::up(if down { &["--down"] } else { &[] }),
        Some(Command::Setup) => setup::packages().and_then(|()| setup::tools().map(drop)),
        Some(Command::Test { arguments }) => suite::test(&arguments),
        Some(Command::Load { arguments }) => suite::load(&arguments),
        Some(Command::Fuzz { arguments }) => suite::fuzz(&arguments),
        Some(Command::Check) => suite::check(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack: {error:#}");
            ExitCode::FAILURE
        }
    }
}
