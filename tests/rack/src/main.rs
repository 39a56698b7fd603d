//! `cargo rack`: boots and provisions two virtual machines, and shows each step.

mod progress;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use rack::machines::{Firmware, Machine};
use rack::provision::{images, record};
use rack::server::{CHAIN_IPXE, osie};
use rack::site::Site;
use rack::tenant::Tenant;
use rack::view::console::last_lines;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::{Instance, State};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, block_in_place};

use crate::progress::Progress;

/// Maximum time until a machine's instance is active.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Time between two drawings of the view.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two requests for the boots of a machine.
const BOOTS_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of a console that the view may show.
const CONSOLE_LINES: usize = 8;

#[derive(Debug, clap::Parser)]
#[command(version)]
struct Arguments {
    /// Remove the rack once both instances are active
    #[arg(long)]
    down: bool,
    /// Write an animated picture of the view to this SVG file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match up(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Boots and provisions the rack. Without `down`, keeps it running until Enter or Ctrl-C is pressed.
async fn up(arguments: Arguments) -> anyhow::Result<()> {
    let progress = Arc::new(Progress::new(arguments.record.is_some()));
    progress.line("building the in-memory environment and the images");
    let (osie, images) = (osie()?, images()?);
    let mut interrupt = Interrupt::new()?;
    progress.line("starting libvirt, the BMCs and the server");
    let site = Site::start_with(&osie, &images, &[CHAIN_IPXE.to_owned()]).await?;
    progress.line(format_args!("tinwright serves on https://{}", site.server.api));
    let machines =
        [Machine::new(&site.lab, 1, Firmware::Bios)?, Machine::new(&site.lab, 2, Firmware::Uefi)?];
    progress.begin_view();
    let installed = tokio::select! {
        installed = install(&progress, &site, &machines) => installed,
        () = interrupt.wait() => Err(anyhow::anyhow!("interrupted: removing the rack")),
    };
    progress.refresh();
    progress.end_view();
    installed?;
    if let Some(path) = &arguments.record {
        progress.write_recording(path)?;
        progress.line(format_args!("recorded in {}", path.display()));
    }
    if arguments.down {
        return Ok(());
    }
    eprintln!("{}", next_steps(&site, &machines));
    tokio::select! {
        done = enter() => done,
        () = interrupt.wait() => Ok(()),
    }
}

/// Provisions the machines at the same time, and waits until their instances are active.
async fn install(
    progress: &Arc<Progress>,
    site: &Site,
    machines: &[Machine],
) -> anyhow::Result<()> {
    let tenant = Tenant::create(site, "acme").await.context("creating the tenant")?;
    let location = tenant.create_location(site).await?;
    progress.line("uploading an image of the site and one of the tenant acme");
    let mut tasks = JoinSet::new();
    // Aborted at the end.
    let mut observers = JoinSet::new();
    observers.spawn(draw(progress.clone()));
    for machine in machines {
        progress.add_machine(machine);
        let (id, instance) = match machine.firmware {
            Firmware::Bios => order(site, machine).await?,
            Firmware::Uefi => order_as(site, &tenant, &location, machine).await?,
        };
        observers.spawn(observe(progress.clone(), site, machine, id.clone()));
        let (operator, name, shown) =
            (site.operator.clone(), machine.name.clone(), progress.clone());
        tasks.spawn(async move {
            let update = |instance: &_| shown.set_instance(&name, instance);
            let done =
                operator.wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, update).await;
            done.with_context(|| name.clone())
        });
        let (operator, name, shown) =
            (site.operator.clone(), machine.name.clone(), progress.clone());
        tasks.spawn(
            async move { operator.watch_work(&id, |work| shown.set_work(&name, work)).await },
        );
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    progress.line("both instances are active");
    Ok(())
}

/// Adds `machine`, and orders it for the site by its name. Returns its hardware id, and the instance.
async fn order(site: &Site, machine: &Machine) -> anyhow::Result<(String, Instance)> {
    let image = block_in_place(|| site.upload(site.server.cli(), machine.firmware))?;
    let id = site.add_machine(machine).await?;
    let order = Instance { hardware_id: id.clone(), ..Instance::default() };
    let instance = site.install(&site.operator, machine, &image, order).await?;
    Ok((id, instance))
}

/// Adds `machine` in the location of `tenant`, whose caller orders a machine there. Returns its hardware id, and the instance.
async fn order_as(
    site: &Site,
    tenant: &Tenant,
    location: &str,
    machine: &Machine,
) -> anyhow::Result<(String, Instance)> {
    let image = block_in_place(|| site.upload(tenant.cli(site), machine.firmware))?;
    let record = Hardware { location_id: location.to_owned(), ..record(machine) };
    let id = site.add_machine_with(machine, record).await?;
    let placement = Some(Box::new(tenant.placement()));
    let order = Instance { placement, ..Instance::default() };
    let instance = site.install(&tenant.operator, machine, &image, order).await?;
    Ok((id, instance))
}

/// Draws the view, until it is aborted.
async fn draw(progress: Arc<Progress>) {
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        ticks.tick().await;
        progress.refresh();
    }
}

/// Returns the task that shows boots and console of `machine`, whose hardware id is `id`, until it is aborted.
fn observe(
    progress: Arc<Progress>,
    site: &Site,
    machine: &Machine,
    id: String,
) -> impl Future<Output = ()> + Send + 'static {
    let (operator, name, serial) =
        (site.operator.clone(), machine.name.clone(), machine.serial(&site.lab));
    async move {
        let mut ticks = tokio::time::interval(BOOTS_INTERVAL);
        loop {
            ticks.tick().await;
            progress.set_console(&name, last_lines(&serial, CONSOLE_LINES));
            // Only shown: a failure of the server is seen by the tasks that wait for it.
            if let Ok(boots) = operator.boots(&id).await {
                progress.set_boots(&name, &boots);
            }
        }
    }
}

/// Returns what can be typed in another terminal.
fn next_steps(site: &Site, machines: &[Machine]) -> String {
    let logins: String =
        machines.iter().map(|machine| format!("  {}\n", site.ssh.command_line(machine))).collect();
    let program = setup::program("tinwright");
    let folder = program.parent().unwrap_or(&program).display();
    let (api, data) = (site.server.api, site.server.data.display());
    format!(
        "
In another terminal, as root, log in to the machines that were just installed:
{logins}
Use the server:
  export TINWRIGHT_SERVER=https://{api} TINWRIGHT_DATA={data} PATH={folder}:$PATH
  tinwright hardware list
  tinwright boot get m1
  tinwright instance delete m1 --wait    # wipes its disk and switches it off

Press Enter or Ctrl-C to remove the rack."
    )
}

/// Waits for a line or the end of standard input.
async fn enter() -> anyhow::Result<()> {
    let (sender, read) = oneshot::channel();
    // A thread of its own: the runtime would wait for it at its end.
    std::thread::spawn(move || sender.send(std::io::stdin().read_line(&mut String::new())));
    read.await.context("reading standard input")??;
    Ok(())
}

/// The signals that end a program at a terminal.
struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupt {
    /// From now on, the signals do not end the process by themselves.
    fn new() -> anyhow::Result<Self> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    /// Waits for one of them.
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
