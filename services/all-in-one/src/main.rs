//! The program `tinwright`: the server, and the client's commands.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use all_in_one::config::{CommandLine, Config};
use all_in_one::{Server, maintenance, open_files};
use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Responses make many small allocations: in a profile, glibc's allocator took an eighth of their time.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A configuration that cannot be used (sysexits.h).
const EX_CONFIG: u8 = 78;

/// Turns a rack of bare machines into a cloud
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: CommandLine,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serve every service in one process (the default without a command)
    Serve(CommandLine),
    /// Back up, restore and check the store of a server
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: cli::Shell,
    },
    #[command(flatten)]
    Client(cli::Command),
}

#[derive(Debug, clap::Subcommand)]
enum StoreCommand {
    /// Copy the store of a running server, as it is at one moment
    Backup {
        /// Write this file; - for standard output
        file: PathBuf,
        #[command(flatten)]
        connection: cli::connect::Connection,
    },
    /// Restore a backup into an empty store, while no server uses it
    Restore {
        /// Read this file; - for standard input
        file: PathBuf,
        #[command(flatten)]
        command_line: CommandLine,
    },
    /// Compare all records with their indexes, while no server uses the store
    Check {
        /// Repair the indexes
        #[arg(long)]
        mend: bool,
        #[command(flatten)]
        command_line: CommandLine,
    },
}

fn main() -> ExitCode {
    let Arguments { command, serve } = Arguments::parse();
    match command.unwrap_or(Command::Serve(serve)) {
        Command::Serve(command_line) => configured(command_line, |config| {
            runtime::telemetry::init_logging(config.log_format, &config.log)?;
            run(config).map(|()| ExitCode::SUCCESS)
        }),
        Command::Store(StoreCommand::Backup { file, connection }) => {
            cli::backup(&connection, &file)
        }
        Command::Store(StoreCommand::Restore { file, command_line }) => {
            configured(command_line, |config| restore(&config, &file))
        }
        Command::Store(StoreCommand::Check { mend, command_line }) => {
            configured(command_line, |config| check(&config, mend))
        }
        Command::Completions { shell } => {
            cli::completions(shell, &mut Arguments::command());
            ExitCode::SUCCESS
        }
        Command::Client(command) => cli::run(command),
    }
}

fn configured(
    command_line: CommandLine,
    work: impl FnOnce(Config) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let config = match Config::load(command_line) {
        Ok(config) => config,
        Err(error) => return failed(EX_CONFIG, &error),
    };
    work(config).unwrap_or_else(|error| failed(1, &error))
}

fn failed(code: u8, error: &anyhow::Error) -> ExitCode {
    eprintln!("tinwright: {error:#}");
    ExitCode::from(code)
}

#[tokio::main]
async fn run(config: Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(cancel_on_signal(stop.clone()));
    let files = open_files::raise();
    let server = Server::open(config).await?;
    let gateway = server.gateway()?;
    tracing::info!(grpc = ?server.grpc()?, ?gateway, metrics = %server.vitals()?, ?files, "listening");
    Box::pin(server.run(stop)).await
}

#[tokio::main]
async fn check(config: &Config, mend: bool) -> anyhow::Result<ExitCode> {
    let report = Box::pin(maintenance::check(config, mend)).await?;
    println!("{}", maintenance::format_report(&report));
    let good = if mend { report.is_repairable() } else { report.is_clean() };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[tokio::main]
async fn restore(config: &Config, file: &Path) -> anyhow::Result<ExitCode> {
    let reading = || format!("reading {}", file.display());
    let restored = if file == Path::new("-") {
        maintenance::restore(config, std::io::stdin()).await?
    } else {
        maintenance::restore(config, File::open(file).with_context(reading)?).await?
    };
    println!("{restored} entries restored");
    Ok(ExitCode::SUCCESS)
}

async fn cancel_on_signal(stop: CancellationToken) {
    let (Ok(mut int), Ok(mut term)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return stop.cancel();
    };
    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    stop.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_servers_options_and_those_of_client_commands_do_not_collide() {
        for line in [
            "hardware list --data /nowhere",
            "--data /nowhere",
            "store check --data /nowhere",
            "store backup --data /nowhere b",
            "store restore --data /nowhere b",
        ] {
            let arguments = ["tinwright"].into_iter().chain(line.split(' '));
            Arguments::try_parse_from(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
