//! Measures the server under load: `cargo rack load`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use load::beside::{Protocol, beside};
use load::former;
use load::install::{WriteImage, install, write_image};
use load::power_on;
use load::report::Report;
use load::site::{Settings, Site};
use rustix::process::setpriority_process;

/// The niceness of the bench and of the measured servers, so that they take precedence over other programs.
const BENCH_NICENESS: i32 = -20;

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack load", bin_name = "cargo rack load", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Measure DHCP, TFTP, HTTP and downloads of images beside dnsmasq, tftpd-hpa, atftpd and nginx
    Beside {
        /// Number of rounds; the median counts
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
        /// Measure these protocols only, separated by commas
        #[arg(long, value_delimiter = ',', default_value = "dhcp,tftp,http,images")]
        only: Vec<Protocol>,
    },
    /// Measure creations, scripts, metadata, lists, DHCP and memory beside a former build of this server
    Former {
        /// The former program `tinwright`
        program: PathBuf,
        /// Number of rounds; the median counts
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
        /// Measure only what has this in its name
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Measure installations of an image beside curl, zstd and dd
    Install {
        /// Number of rounds; the median counts
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
    },
    /// Write an image to a disk, as one measurement
    #[command(hide = true)]
    WriteImage(WriteImage),
    /// Power on simulated machines, all at once, and wait until each has its instance-id
    Boot {
        /// Number of machines
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=60_000))]
        machines: u16,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cargo rack load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "run this as root: it creates network namespaces"
    );
    let mut report = Report::default();
    match command {
        Command::Beside { rounds, only } => {
            setpriority_process(None, BENCH_NICENESS).context("raising the bench's priority")?;
            beside(&only, rounds.into(), &mut report)?;
        }
        Command::Former { program, rounds, only } => {
            setpriority_process(None, BENCH_NICENESS).context("raising the bench's priority")?;
            former::run(&program, rounds.into(), &only, &mut report)?;
        }
        Command::Install { rounds } => {
            setpriority_process(None, BENCH_NICENESS).context("raising the bench's priority")?;
            install(&setup::root().join("target"), rounds.into(), &mut report)?;
        }
        Command::WriteImage(image) => return write_image(&image).map(|()| ExitCode::SUCCESS),
        Command::Boot { machines } => {
            let mut site = Site::new(Settings::with_defaults(setup::program("tinwright")))?;
            site.start()?;
            power_on::report(&site, machines.into(), &mut report)?;
        }
    }
    Ok(report.exit_code())
}
