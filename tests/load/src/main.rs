//! Measures the server: `cargo rack load`.

use std::process::ExitCode;

use clap::Parser as _;
use load::power_on;
use load::report::Report;
use load::site::{Settings, Site};

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack load", bin_name = "cargo rack load", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Power on simulated machines, all at once, and wait until each knows who it is
    Boot {
        /// How many
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=60_000))]
        machines: u16,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(verdict) => verdict,
        Err(error) => {
            eprintln!("cargo rack load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "run this as root: it makes namespaces");
    let mut report = Report::default();
    match command {
        Command::Boot { machines } => {
            let mut site = Site::new(Settings::usual(setup::program("tinwright")))?;
            site.start()?;
            power_on::report(&site, machines.into(), &mut report)?;
        }
    }
    Ok(report.verdict())
}
