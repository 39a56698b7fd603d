//! A builder as a process of its own, for tests. Its only argument is a JSON object.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use builder::{Downloads, Settings, Timing};
use runtime::connect::Servers;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// The argument.
#[derive(Debug, Deserialize)]
struct Argument {
    server: String,
    scratch: PathBuf,
    /// Network that downloads may come from.
    allow: String,
    renewal_milliseconds: u64,
    retry_milliseconds: u64,
}

fn main() -> anyhow::Result<()> {
    builder::run_if_sandboxed();
    let argument = std::env::args().nth(1).context("no argument")?;
    run(&serde_json::from_str(&argument)?)
}

#[tokio::main(worker_threads = 2)]
async fn run(argument: &Argument) -> anyhow::Result<()> {
    let retry = Duration::from_millis(argument.retry_milliseconds);
    let timing = Timing {
        renewal: Duration::from_millis(argument.renewal_milliseconds),
        retry_delays: (retry, retry),
        ..Timing::default()
    };
    let allow_networks = vec![argument.allow.parse()?];
    let downloads = Downloads { allow_networks, ..Downloads::default() };
    let settings =
        Settings { downloads, timing, ..Settings::new("builder-1", argument.scratch.clone()) };
    let channel = Servers::new(&[argument.server.parse()?], None)?.channel()?;
    let stop = CancellationToken::new();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let on_signal = stop.clone();
    tokio::spawn(async move {
        terminated.recv().await;
        on_signal.cancel();
    });
    builder::run(channel, settings, stop).await
}
