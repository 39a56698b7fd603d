//! `cargo rack`: boots and provisions two virtual machines, and prints each step.

mod progress;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use rack::machines::{Firmware, Machine};
use rack::provision::images;
use rack::server::osie;
use rack::site::Site;
use tinwright::instance::v1::{Instance, State};
use tokio::task::JoinSet;

use crate::progress::ProgressPrinter;

/// Maximum time until a machine's instance is active.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(20 * 60);

#[derive(Debug, clap::Parser)]
#[command(version)]
struct Arguments {
    /// Remove the rack once both instances are active
    #[arg(long)]
    down: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match up(Arguments::parse().down).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Boots and provisions the rack. Without `down`, keeps it running until Enter is pressed.
async fn up(down: bool) -> anyhow::Result<()> {
    let printer = ProgressPrinter::new();
    printer.line("building the operating system installation environment and the images");
    let (osie, images) = (osie()?, images()?);
    printer.line("starting libvirt, the BMCs and the server");
    let site = Site::start(&osie, &images).await?;
    printer.line(format!("tinwright serves on https://{}", site.server.api));
    let machines =
        [Machine::new(&site.lab, 1, Firmware::Bios)?, Machine::new(&site.lab, 2, Firmware::Uefi)?];
    provision(&printer, &site, &machines).await?;
    printer.line("both instances are active");
    if !down {
        eprintln!(
            "\nLook around from another terminal:\n  export TINWRIGHT_SERVER=https://{} TINWRIGHT_DATA={}\n  {} hardware list\n\nPress Enter to remove the rack.",
            site.server.api,
            site.server.data.display(),
            setup::program("tinwright").display(),
        );
        std::io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

/// Provisions the machines at the same time, and waits until their instances are active.
async fn provision(
    printer: &ProgressPrinter,
    site: &Site,
    machines: &[Machine],
) -> anyhow::Result<()> {
    let template = site.operator.create_template().await.context("creating the template")?;
    let mut tasks = JoinSet::new();
    for machine in machines {
        let id = site.add_machine(machine).await?;
        let instance = site.install(&id, machine, &template).await?;
        let (operator, name) = (site.operator.clone(), machine.name.clone());
        let progress = printer.for_machine(&name);
        let states = progress.clone();
        tasks.spawn(async move {
            let mut last = (String::new(), String::new());
            let print_state = |instance: &Instance| {
                let state = (instance.state().word(), instance.state_reason.clone());
                if state != last {
                    states.print_state(&state.0, &state.1);
                    last = state;
                }
            };
            let done = operator
                .wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, print_state)
                .await;
            done.with_context(|| name.clone())
        });
        let operator = site.operator.clone();
        tasks
            .spawn(async move { operator.watch_work(&id, |work| progress.print_work(work)).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
