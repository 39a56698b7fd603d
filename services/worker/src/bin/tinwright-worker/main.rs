//! The program `tinwright-worker`: runs on a machine in the in-memory environment, and executes the actions of its workflows.
//!
//! ```text
//! init ─▶ boot_parameters: the kernel's command line
//!         ─▶ clock ─▶ trust: the site's certificate authority ─▶ identity: a certificate for the boot token
//!            ─▶ session: NextAction ─▶ action ─▶ FinishAction ─▶ …      meanwhile the certificate is renewed
//! ```
//!
//! - [`machine::control_plane`], [`machine::retry_policy`]: calls, which are repeated while the control plane is not reachable.
//! - [`machine::journal`]: state that survives a crash of this process; [`leftover_processes`]: kills processes left by a crash.
//! - [`inventory`]: the report of this machine's parts and neighbours, and the links to its disks.
//! - [`power`]: the end of this boot.
//!
//! A machine without a record reports its inventory, by which it gets one, and powers off: an operator accepts it.
//!
//! Init sets up mounts and network. Errors are printed on the console. The machine reboots after its token was refused for ten
//! minutes, and when its certificate is expired: the next boot has a new token.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod inventory;
mod leftover_processes;
mod power;
mod session;

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{self, ExitCode};
use std::thread;

use anyhow::Context as _;
use clap::Parser;
use image_signature::PublicKeys;
use machine::boot_parameters::BootParameters;
use machine::control_plane::{ControlPlane, ControlPlaneClient};
use machine::identity::MachineIdentity;
use machine::journal::Journal;
use machine::{clock, trust};
use runtime::Clock;
use runtime::telemetry::{self, Format};
use tinwright::workflow::v1::Holder;
use worker::Terminal;
use worker::lldp::{LISTENING_LIMIT, Listener};

use inventory::MachineFiles;
use power::Power;
use session::Session;

/// File with the id of the current boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";
/// File with a new random id at each read (random(4)).
const RANDOM_ID_FILE: &str = "/proc/sys/kernel/random/uuid";

/// Carry out the workflows of this machine
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Read the kernel's command line from this file
    #[arg(long, value_name = "FILE", default_value = "/proc/cmdline")]
    cmdline: PathBuf,
    /// Store results that are not reported yet in this directory; in memory, because a reboot invalidates them
    #[arg(long, value_name = "DIR", default_value = "/run/tinwright/worker")]
    journal: PathBuf,
    /// Trust the certificate authorities in this file for image servers, besides the site's own; may be missing
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    roots: PathBuf,
    /// Read the machine's parts below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Make the links to disks in /dev/disk, as udev does
    #[arg(long)]
    disk_links: bool,
    /// Print instead of rebooting or powering off the machine, and exit
    #[arg(long)]
    no_reboot: bool,
    /// Set the log filter, in the notation of tracing
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

fn main() -> ExitCode {
    // Runs on another thread: if process 1 ended after a panic, the kernel would panic.
    let result = thread::spawn(|| run(arguments())).join();
    let code = match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(&format!("{error:#}")),
        Err(_) => failed("panicked: this is a bug of the worker"),
    };
    while is_init() {
        thread::park();
    }
    code
}

/// True if this process is init. The kernel panics if init ends.
fn is_init() -> bool {
    process::id() == 1
}

/// Parses the arguments. As init, errors are ignored: the kernel passes unknown words of its command line to init.
fn arguments() -> Arguments {
    match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(_) if is_init() => Arguments::parse_from(["tinwright-worker"]),
        Err(error) => error.exit(),
    }
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("tinwright-worker: {reason}");
    ExitCode::FAILURE
}

#[tokio::main]
async fn run(arguments: Arguments) -> anyhow::Result<()> {
    telemetry::init_logging(Format::Human, &arguments.log)?;
    let line = fs::read_to_string(&arguments.cmdline);
    let boot =
        BootParameters::parse(&line.with_context(|| arguments.cmdline.display().to_string())?)?;
    tracing::info!(
        worker.id = boot.worker_id,
        hw_addr = boot.hw_addr,
        instance.id = boot.instance_id,
        servers = ?boot.servers,
        "worker started"
    );
    if let Some(time) = clock::correction(Clock::system().wall(), boot.boot_time) {
        clock::set(time).context("setting the clock")?;
        tracing::info!("clock set to the server's time");
    }
    Box::pin(serve(&arguments, &boot)).await
}

/// Connects to the control plane and runs its actions.
async fn serve(arguments: &Arguments, boot: &BootParameters) -> anyhow::Result<()> {
    let holder = Holder { boot_id: read_id(BOOT_ID_FILE)?, process_id: read_id(RANDOM_ID_FILE)? };
    let neighbours = Listener::start(&arguments.root, LISTENING_LIMIT);
    let journal = Journal::open(&arguments.journal).await?;
    let power = if arguments.no_reboot { Power::DryRun } else { Power::Real };

    let authority = trust::authority(&journal, &boot.boot_url, &boot.ca_sha256).await?;
    let Some(authority) = authority else {
        return Ok(power.end_boot(Terminal::Reboot)?);
    };
    let roots = trust::image_roots(&arguments.roots, &authority)
        .with_context(|| arguments.roots.display().to_string())?;
    let image_keys = image_keys()?;
    let plane = ControlPlane { servers: boot.servers.clone(), authority };
    let link = ControlPlaneClient::new(plane)?;
    let (token, clock) = (&boot.boot_token, Clock::system());
    let identity = MachineIdentity::establish(&link, &journal, token, &holder, clock).await?;
    let Some(mut identity) = identity else {
        return Ok(power.end_boot(Terminal::Reboot)?);
    };
    let hardware_id = identity.hardware_id().to_owned();
    tracing::info!(hardware.id = hardware_id, "identity established");

    let (root, makes_links) = (arguments.root.clone(), arguments.disk_links);
    let machine = MachineFiles { root, makes_links, neighbours };
    if identity.enrols() {
        machine.enrol(&link).await;
        return Ok(power.end_boot(Terminal::PowerOff)?);
    }
    let (client, pages) = (link.clone(), journal.clone());
    let session = Session {
        link: client,
        journal: pages,
        holder,
        hardware_id,
        roots,
        image_keys,
        boot_server: boot.boot_url.clone(),
        power,
        machine,
    };
    let mut actions = pin!(session.run());
    tokio::select! {
        () = &mut actions => return Ok(()),
        () = identity.renew_until_expired(&link, &journal) => {}
    }
    tracing::error!("certificate expired: the machine reboots as soon as no action is running");
    link.set_expired();
    actions.await;
    Ok(())
}

/// Returns the keys of this environment. No argument names another place: as init, the worker gets
/// arguments from the kernel's command line, which the boot server writes.
fn image_keys() -> anyhow::Result<Option<PublicKeys>> {
    let keys = worker::image_keys::read(Path::new("/"))?;
    if let Some(keys) = &keys {
        let ids: Vec<_> = keys.ids().map(|id| id.to_string()).collect();
        tracing::info!(keys = ids.join(","), "images need a signature");
    }
    Ok(keys)
}

fn read_id(path: &'static str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(path).context(path)?.trim().to_owned())
}
