//! Feeds codecs with spoiled inputs: `cargo rack fuzz`.

use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Parser as _;
use fuzz::feed::{feed, replay};
use fuzz::{Codec, hex};

#[derive(Debug, clap::Parser)]
#[command(name = "cargo rack fuzz", bin_name = "cargo rack fuzz", version)]
struct Arguments {
    /// For how long each codec is fed
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// From what the inputs come; another one each time where none is given
    #[arg(long)]
    seed: Option<u64>,
    /// Which codecs
    #[arg(long, value_delimiter = ',', default_value = "dhcp,tftp,syslog,imds")]
    only: Vec<Codec>,
    /// One input in hex, in the place of all others
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
    let seed = seed.unwrap_or_else(another);
    if let Some(input) = input {
        let input = hex::read(input)?;
        return only.iter().try_for_each(|codec| replay(*codec, &input));
    }
    if let [codec] = only[..] {
        log_to_nobody();
        println!("{}", feed(codec, seed, Duration::from_secs(*seconds))?);
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    only.chunks(cores).try_for_each(|some| together(some, *seconds, seed))
}

/// Feeds `codecs` at the same time, each in a process of its own: whose memory grows is then plain.
fn together(codecs: &[Codec], seconds: u64, seed: u64) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let arguments = ["--seconds".into(), seconds.to_string(), "--seed".into(), seed.to_string()];
    let start = |codec: &Codec| {
        let only = ["--only".into(), codec.to_string()];
        Command::new(&own).args(&arguments).args(only).spawn().context("starting another process")
    };
    let started: Vec<_> = codecs.iter().map(start).collect();
    let ended = started.into_iter().map(|process| Ok(process?.wait()?.success()));
    let ended: Vec<anyhow::Result<bool>> = ended.collect();
    for (codec, good) in codecs.iter().zip(ended) {
        anyhow::ensure!(good?, "{codec} failed: --seed {seed} --only {codec}");
    }
    Ok(())
}

/// What is logged is written out and thrown away: writing it is part of the service.
fn log_to_nobody() {
    let quiet = tracing_subscriber::fmt().with_writer(std::io::sink);
    quiet.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
}

/// A seed that was not used yet.
fn another() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20 | u64::from(since.subsec_micros())
}
