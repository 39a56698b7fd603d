//! `cargo rack fuzz`: feeds codecs with mutated inputs.

use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Parser as _;
use fuzz::feed::{feed, replay};
use fuzz::{Codec, hex};

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack fuzz", bin_name = "cargo rack fuzz", version)]
struct Arguments {
    /// Duration per codec, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seed of the inputs; by default a new one for each run
    #[arg(long)]
    seed: Option<u64>,
    /// Feed these codecs only, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "dhcp,tftp,syslog,imds,ial")]
    only: Vec<Codec>,
    /// Feed only this input, in hex
    #[arg(long)]
    input: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { seconds, seed, only, input } = arguments;
    let seed = seed.unwrap_or_else(new_seed);
    if let Some(input) = input {
        let input = hex::decode(input)?;
        return only.iter().try_for_each(|codec| replay(*codec, &input));
    }
    if let [codec] = only[..] {
        discard_logs();
        println!("{}", feed(codec, seed, Duration::from_secs(*seconds))?);
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    only.chunks(cores).try_for_each(|codecs| feed_in_processes(codecs, *seconds, seed))
}

/// Feeds `codecs` at the same time, each in its own process, so that growing memory can be attributed.
fn feed_in_processes(codecs: &[Codec], seconds: u64, seed: u64) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let arguments = ["--seconds".into(), seconds.to_string(), "--seed".into(), seed.to_string()];
    let start = |codec: &Codec| {
        let only = ["--only".into(), codec.to_string()];
        Command::new(&program)
            .args(&arguments)
            .args(only)
            .spawn()
            .context("starting another process")
    };
    let processes: Vec<_> = codecs.iter().map(start).collect();
    let results = processes.into_iter().map(|process| Ok(process?.wait()?.success()));
    let results: Vec<anyhow::Result<bool>> = results.collect();
    for (codec, succeeded) in codecs.iter().zip(results) {
        anyhow::ensure!(succeeded?, "{codec} failed: --seed {seed} --only {codec}");
    }
    Ok(())
}

/// Formats log lines and discards them: formatting is part of the service and must not fail.
fn discard_logs() {
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::sink);
    subscriber.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
}

/// Returns a seed made of the time.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20 | u64::from(since.subsec_micros())
}
