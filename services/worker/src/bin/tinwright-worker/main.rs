//! The program `tinwright-worker`: runs on a machine, in memory, and does what the control plane has for it.
//!
//! ```text
//! init ─▶ boot: what the kernel's command line says
//!         ─▶ clock ─▶ trust: the site's authority ─▶ identity: a certificate for the boot token
//!            ─▶ session: NextAction ─▶ action ─▶ FinishAction ─▶ …      beside it: the certificate is renewed
//! ```
//!
//! - [`link`], [`retry`]: calls that outlive the control plane's absences.
//! - [`journal`]: what outlives this process; [`orphans`]: what should not have; [`power`]: the end of this boot.
//!
//! Mounts and network are init's to set up. Nothing here gives up: what cannot be done is said on the console, and the
//! machine waits for somebody to boot it again.

mod boot;
mod clock;
mod identity;
mod journal;
mod link;
mod orphans;
mod power;
mod retry;
mod session;
mod trust;

use std::fs;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::thread;

use anyhow::Context as _;
use clap::Parser;
use runtime::Clock;
use runtime::telemetry::{self, Format};
use tinwright::workflow::v1::Holder;

use boot::Boot;
use identity::Identity;
use journal::Journal;
use link::{ControlPlane, Link};
use power::Power;
use session::Session;

/// Names the present boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Gives another name at each reading (random(4)).
const FRESH_ID: &str = "/proc/sys/kernel/random/uuid";

/// Does on this machine what the control plane has for it
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What the boot script said
    #[arg(long, value_name = "FILE", default_value = "/proc/cmdline")]
    cmdline: PathBuf,
    /// Where results wait that are not told yet; in memory, as a reboot makes them void
    #[arg(long, value_name = "DIR", default_value = "/run/tinwright/worker")]
    journal: PathBuf,
    /// Whom, besides the site, image servers are vouched for by; may be absent
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    roots: PathBuf,
    /// Say what the machine would do instead of rebooting or turning it off, and end
    #[arg(long)]
    no_reboot: bool,
    /// What is logged, in tracing's notation
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

fn main() -> ExitCode {
    // On a thread, for a panic to end that and not the first process, with which the kernel would go.
    let ended = thread::spawn(|| run(arguments())).join();
    let code = match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(&format!("{error:#}")),
        Err(_) => failed("it broke: a defect of the worker"),
    };
    while is_first() {
        thread::park();
    }
    code
}

/// Whether we are init: the kernel goes down with the first process.
fn is_first() -> bool {
    process::id() == 1
}

/// What we were called with. The kernel hands its own command line's unknown words to init: they are none of ours.
fn arguments() -> Arguments {
    match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(_) if is_first() => Arguments::parse_from(["tinwright-worker"]),
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
    let boot = Boot::parse(&line.with_context(|| arguments.cmdline.display().to_string())?)?;
    tracing::info!(
        worker.id = boot.worker_id,
        hw_addr = boot.hw_addr,
        instance.id = boot.instance_id,
        server = %boot.grpc_authority,
        "worker begins"
    );
    if let Some(time) = clock::correction(Clock::system().wall(), boot.boot_time) {
        clock::set(time).context("setting the clock")?;
        tracing::info!("the clock was late and is set");
    }
    serve(&arguments, &boot).await
}

/// Works for the site that `boot` names.
async fn serve(arguments: &Arguments, boot: &Boot) -> anyhow::Result<()> {
    let holder = Holder { boot_id: id(BOOT_ID)?, process_id: id(FRESH_ID)? };
    let journal = Journal::open(&arguments.journal).await?;

    let authority = trust::authority(&boot.boot_url, boot.ca_sha256).await?;
    let roots = trust::image_roots(&arguments.roots, &authority)
        .with_context(|| arguments.roots.display().to_string())?;
    let link = Link::new(ControlPlane { address: boot.grpc_authority.clone(), authority })?;
    let mut identity = Identity::establish(&link, &journal, &boot.boot_token, &holder).await?;
    let hardware_id = identity.hardware_id().to_owned();
    tracing::info!(hardware.id = hardware_id, "known to the site");

    let power = if arguments.no_reboot { Power::Pretended } else { Power::Real };
    let session =
        Session { link: link.clone(), journal: journal.clone(), holder, hardware_id, roots, power };
    tokio::select! {
        () = session.run() => Ok(()),
        never = identity.keep_renewed(&link, &journal) => match never {},
    }
}

fn id(path: &'static str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(path).context(path)?.trim().to_owned())
}
