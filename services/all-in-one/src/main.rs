//! The program `tinwright`: the server, and the client's commands.

#[cfg(test)]
mod docs_tests;
mod examples;
#[cfg(test)]
mod help_tests;
mod install_service;
#[cfg(test)]
mod reference_tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use all_in_one::config::{CommandLine, Config, StoreOptions, full_help};
use all_in_one::{Server, maintenance, open_files};
use anyhow::Context as _;
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use runtime::telemetry::MachineNames;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Responses make many small allocations: in a profile, glibc's allocator took an eighth of their time.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A configuration that cannot be used (sysexits.h).
const EX_CONFIG: u8 = 78;

/// Turn a rack of bare machines into a cloud
#[derive(Debug, Parser)]
#[command(name = "tinwright", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the server: all services in one process
    #[command(
        after_long_help = "Print the options that few sites need: tinwright serve --help-all"
    )]
    Serve(CommandLine),
    /// Install the server as a service of systemd
    InstallService(install_service::Options),
    /// Back up, restore and check the store of a server
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print completions for a shell
    Completions {
        /// Print the script for this shell
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
        options: StoreOptions,
    },
    /// Let content of images be collected again after a restore, while a server runs
    Resume {
        #[command(flatten)]
        connection: cli::connect::Connection,
    },
    /// Compare all records with their indexes, while no server uses the store
    Check {
        /// Repair the indexes
        #[arg(long)]
        mend: bool,
        #[command(flatten)]
        options: StoreOptions,
    },
}

fn main() -> ExitCode {
    // This process may be a sandbox of a builder, which runs this program.
    builder::run_if_sandboxed();
    let mut program = without_empty_variables(examples::with_examples(Arguments::command()));
    let arguments = cli::connect::move_options(std::env::args_os());
    let matches = program
        .clone()
        .try_get_matches_from(&arguments)
        .unwrap_or_else(|error| without_values(error, &program, &arguments).exit());
    program.build();
    let help = match matches.subcommand() {
        None => Some(program.render_long_help().to_string()),
        Some((name, matches)) => {
            program.find_subcommand(name).and_then(|command| full_help(command, matches))
        }
    };
    if let Some(help) = help {
        return print(&help);
    }
    let Arguments { command } = Arguments::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.format(&mut program).exit());
    command.map_or(ExitCode::SUCCESS, execute)
}

/// Returns `command` with options that do not read variables of the environment which are empty: such a variable is as one that is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env().is_some_and(is_empty) {
        true => argument.env(Resettable::Reset),
        false => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

/// Returns `error` of these wrong `arguments`, whose usage line has no options that are set by variables of the environment.
fn without_values(
    error: clap::Error,
    program: &clap::Command,
    arguments: &[OsString],
) -> clap::Error {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        return error;
    }
    let plain = without_variables(program.clone()).try_get_matches_from(arguments).err();
    plain.filter(|plain| plain.kind() == error.kind()).unwrap_or(error)
}

/// Returns `command` with options that do not read variables of the environment.
fn without_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.env(Resettable::Reset));
    command.mut_subcommands(without_variables)
}

/// Prints `text`. An error means that nobody reads it.
fn print(text: &str) -> ExitCode {
    drop(std::io::stdout().write_all(text.as_bytes()));
    ExitCode::SUCCESS
}

fn execute(command: Command) -> ExitCode {
    match command {
        Command::Serve(command_line) => configured(command_line, |config| {
            let names = runtime::telemetry::init_logging(config.log_format, &config.log)?;
            run(config, names).map(|()| ExitCode::SUCCESS)
        }),
        Command::Store(StoreCommand::Backup { file, connection }) => {
            cli::backup(&connection, &file)
        }
        Command::Store(StoreCommand::Restore { file, options }) => {
            configured(options.0, |config| restore(&config, &file))
        }
        Command::Store(StoreCommand::Resume { connection }) => cli::resume(&connection),
        Command::Store(StoreCommand::Check { mend, options }) => {
            configured(options.0, |config| check(&config, mend))
        }
        Command::InstallService(options) => {
            match install_service::run(&options, &mut std::io::stdout()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(1, &error),
            }
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
async fn run(config: Config, names: MachineNames) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::spawn(cancel_on_signal(stop.clone()));
    let max_open_files = open_files::raise();
    let server = Server::open(config).await?.with_machine_names(names).with_builder();
    let (api, gateway) = (list(&server.grpc()?), list(&server.gateway()?));
    let metrics = server.vitals()?;
    tracing::info!(target: "tinwright", api, gateway, %metrics, max_open_files, "listening");
    Box::pin(server.run(stop)).await?;
    tracing::info!(target: "tinwright", "stopped");
    Ok(())
}

/// Returns `addresses` for the log; none if there are none.
fn list(addresses: &[SocketAddr]) -> Option<String> {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
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
    println!(
        "content of images is not collected: compare the images, then run tinwright store resume"
    );
    Ok(ExitCode::SUCCESS)
}

async fn cancel_on_signal(stop: CancellationToken) {
    let (Ok(mut int), Ok(mut term)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return stop.cancel();
    };
    let signal = tokio::select! { _ = int.recv() => "SIGINT", _ = term.recv() => "SIGTERM" };
    tracing::info!(target: "tinwright", signal, "stopping");
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
    fn no_command_is_no_error_and_starts_no_server() {
        assert!(Arguments::try_parse_from(["tinwright"]).unwrap().command.is_none());
        assert!(Arguments::try_parse_from(["tinwright", "--data", "/nowhere"]).is_err());
        let version = Arguments::command().render_version();
        assert_eq!(version, concat!("tinwright ", env!("CARGO_PKG_VERSION"), "\n"));
    }

    #[test]
    fn the_servers_options_and_those_of_client_commands_do_not_collide() {
        for line in [
            "hardware list --data /nowhere",
            "serve --data /nowhere",
            "store check --data /nowhere",
            "store backup --data /nowhere b",
            "store restore --data /nowhere b",
            "store resume --data /nowhere",
        ] {
            let arguments = ["tinwright"].into_iter().chain(line.split(' '));
            Arguments::try_parse_from(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
