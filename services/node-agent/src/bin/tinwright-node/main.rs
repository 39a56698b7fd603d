//! The program `tinwright-node`: serves the ImageAPI of the node that it runs on.
//!
//! ```text
//! main ─▶ arguments ─▶ listeners: all sockets are bound ─▶ agent: the node is opened and reconciled
//!           ─▶ http: request ─▶ imageapi::decode ─▶ Node::call ─▶ imageapi::encode
//! SIGINT, SIGTERM ─▶ listeners stop ─▶ open requests end ─▶ the node is closed; attachments, mounts and containers stay
//! ```
//!
//! - `arguments`: flags and environment, by the names and defaults of the original; `units`: durations and sizes in them.
//! - `listeners`, `unix_socket`, `tls`: sockets. `http`: requests. `serve_unix`: connections of the Unix socket.
//! - `control`: the control plane of the site, if there is one. `agent`: the node; `log_retention`: removal of old logs; `logging`: the log level of the original.
//!
//! The program is also the supervisor of containers, by a hidden subcommand: see `containers::supervisor`.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agent;
mod arguments;
mod control;
mod http;
mod listeners;
mod log_retention;
mod logging;
mod serve_unix;
mod tls;
mod units;
mod unix_socket;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use tokio_util::sync::CancellationToken;

use arguments::Arguments;

/// The hidden subcommand of supervisors.
const SUPERVISE: &str = "container-supervisor";
/// The longest wait at the exit for system calls that hang.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == SUPERVISE) {
        // Before anything else: this process may have no other thread.
        return containers::supervisor::main(arguments);
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tinwright-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    logging::init()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let stop = stop_at_signals()?;
        Box::pin(agent::run(arguments, stop)).await
    });
    runtime.shutdown_timeout(EXIT_TIMEOUT);
    outcome
}

/// Returns a token that is cancelled at SIGINT or SIGTERM.
fn stop_at_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
            _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
        }
        stopped.cancel();
    });
    Ok(stop)
}
