//! Measures the server: `cargo rack load`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use load::beside::{Part, beside};
use load::power_on;
use load::report::Report;
use load::site::{Settings, Site};
use rustix::process::setpriority_process;

/// The niceness of the bench and of what it measures: what waits for a core is the rest of the host.
const FIRST: i32 = -20;

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack load", bin_name = "cargo rack load", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Measure DHCP, TFTP and HTTP beside dnsmasq, tftpd-hpa, atftpd and nginx
    Beside {
        /// How often each is measured; the median counts
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
        /// What
        #[arg(long, value_delimiter = ',', default_value = "dhcp,tftp,http")]
        only: Vec<Part>,
    },
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
        Command::Beside { rounds, only } => {
            setpriority_process(None, FIRST).context("going before whatever else the host does")?;
            beside(&only, rounds.into(), &mut report)?;
        }
        Command::Boot { machines } => {
            let mut site = Site::new(Settings::usual(setup::program("tinwright")))?;
            site.start()?;
            power_on::report(&site, machines.into(), &mut report)?;
        }
    }
    Ok(report.verdict())
}
