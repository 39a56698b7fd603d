//! Compares our server with a former build of it, alternately in one run.
//!
//! The figures of 62ce423 are known from one machine. A figure of this run is scaled by them: ours,
//! divided by that of the former program here, times the known figure. So it can be compared with
//! goals that were set there, whatever the speed of this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tinwright::hardware::v1::ListHardwareRequest;

use crate::beside::http::{ids, scripts};
use crate::dhcp_load::DhcpLoad;
use crate::http_load::{Connections, Target, measure};
use crate::process::{self, Measured};
use crate::report::{Report, median};
use crate::site::{Settings, Site};
use crate::{api, fleet};

/// Records of a measurement of creations, and requests for them at a time.
const CREATIONS: usize = 4_000;
const CONCURRENT_CREATIONS: usize = 16;
/// Records whose memory is measured.
const RECORDS: usize = 1_000;
/// Machines that request scripts and metadata.
const MACHINES: usize = 10;
/// Exchanges of DHCP that begin in a second of a measurement. A server of one core has time left.
const DHCP_RATE: f64 = 2_000.0;
/// Lists of a measurement, and records of each.
const LISTS: usize = 1_000;
const PAGE_RECORDS: i32 = 100;
/// Age of an idle server: longer than the intervals of most periodic tasks.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A measured quantity.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// The figure of 62ce423, by which figures are scaled.
    former: Option<f64>,
    /// The maximum of the scaled figure.
    goal: Option<f64>,
    measure: fn(&mut Site) -> anyhow::Result<f64>,
    settings: fn(PathBuf) -> Settings,
}

const QUANTITIES: [Quantity; 9] = [
    Quantity {
        name: "creation, 16 at a time",
        unit: "CPU µs",
        former: Some(150.0),
        goal: Some(300.0),
        measure: creation,
        settings: beside_peers,
    },
    Quantity {
        name: "creations, 16 at a time",
        unit: "/s",
        former: Some(5_150.0),
        goal: None,
        measure: creation_rate,
        settings: beside_peers,
    },
    Quantity {
        name: "script, kept connections",
        unit: "CPU µs",
        former: Some(14.0),
        goal: Some(17.0),
        measure: script,
        settings: beside_peers,
    },
    Quantity {
        name: "metadata, kept connections",
        unit: "CPU µs",
        former: Some(1.0),
        goal: Some(1.2),
        measure: metadata,
        settings: beside_peers,
    },
    Quantity {
        name: "exchange of DHCP, 2,000 a second",
        unit: "CPU µs",
        former: None,
        goal: None,
        measure: dhcp_exchange,
        settings: beside_peers,
    },
    Quantity {
        name: "page of 100 records",
        unit: "CPU µs",
        former: None,
        goal: None,
        measure: list,
        settings: beside_peers,
    },
    Quantity {
        name: "idle",
        unit: "MiB",
        former: Some(51.0),
        goal: Some(51.0),
        measure: idle,
        settings: usual,
    },
    Quantity {
        name: "1,000 records",
        unit: "MiB",
        former: Some(61.0),
        goal: Some(66.0),
        measure: records,
        settings: usual,
    },
    Quantity {
        name: "1,000 records, started again",
        unit: "MiB",
        former: None,
        goal: None,
        measure: records_again,
        settings: usual,
    },
];

/// Measures this program's server and the one of the program at `former`, in `rounds` rounds: the quantities with `only` in their
/// names.
pub fn run(former: &Path, rounds: usize, only: &str, report: &mut Report) -> anyhow::Result<()> {
    process::pin_to(process::core::BENCH)?;
    let programs = [setup::program("tinwright"), former.to_owned()];
    println!("{:32}{:>10}{:>12}{:>12}{:>8}{:>10}", "", "", "ours", "former", "ratio", "scaled");
    for quantity in QUANTITIES.into_iter().filter(|it| it.name.contains(only)) {
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for index in order {
                figures[index].push(quantity.figure(&programs[index])?);
            }
        }
        quantity.report(&figures, report);
    }
    Ok(())
}

impl Quantity {
    /// Measures a new server of `program`.
    fn figure(&self, program: &Path) -> anyhow::Result<f64> {
        let mut site = Site::new((self.settings)(program.to_owned()))?;
        site.start()?;
        (self.measure)(&mut site)
    }

    fn report(&self, figures: &[Vec<f64>; 2], report: &mut Report) {
        let [ours, former] = figures.each_ref().map(|all| median(all.iter().copied()));
        let ratio = median(figures[0].iter().zip(&figures[1]).map(|(ours, former)| ours / former));
        let scaled = self.former.map(|known| ratio * known);
        let goal = self.goal.zip(scaled);
        let goal = goal
            .map(|(goal, scaled)| format!("   goal {goal} {}", report.verdict_of(scaled <= goal)));
        println!(
            "{:32}{:>10}{ours:12.1}{former:12.1}{ratio:8.2}{:>10}{}",
            self.name,
            self.unit,
            scaled.map(|scaled| format!("{scaled:.1}")).unwrap_or_default(),
            goal.unwrap_or_default()
        );
    }
}

fn beside_peers(program: PathBuf) -> Settings {
    Settings::beside_peers(program)
}

fn usual(program: PathBuf) -> Settings {
    Settings::with_defaults(program)
}

/// Returns the processor time of a creation, in µs.
fn creation(site: &mut Site) -> anyhow::Result<f64> {
    let before = site.server()?.cpu_time()?;
    fleet::create_by(site, 0..CREATIONS, CONCURRENT_CREATIONS)?;
    Ok(micros(site.server()?.cpu_time()? - before, CREATIONS))
}

/// Returns the number of creations per second.
fn creation_rate(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create_by(site, 0..CREATIONS, CONCURRENT_CREATIONS)
}

fn script(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create(site, 0..MACHINES)?;
    request(site.measured()?, &scripts(MACHINES))
}

fn metadata(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create(site, 0..MACHINES)?;
    request(site.measured()?, &ids(MACHINES))
}

/// Returns the processor time of a request for one of `targets`, in µs.
fn request(server: Measured<'_>, targets: &[Target]) -> anyhow::Result<f64> {
    // The first second warms caches up.
    measure(server, targets, Connections::KeepAlive)?;
    let result = measure(server, targets, Connections::KeepAlive)?;
    Ok(micros(result.cpu, result.requests))
}

/// Returns the processor time of an exchange of DHCP, in µs: DISCOVER, OFFER, REQUEST and ACK.
fn dhcp_exchange(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create(site, 0..MACHINES)?;
    let server = site.measured()?;
    let mut load = DhcpLoad::new(server, MACHINES)?;
    // The first second warms caches up.
    load.trial(DHCP_RATE, server)?;
    let trial = load.trial(DHCP_RATE, server)?;
    anyhow::ensure!(trial.is_sustained(), "{} of {} exchanges", trial.done, trial.begun);
    Ok(micros(trial.cpu, trial.done))
}

/// Returns the processor time of a list of machines, in µs.
fn list(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create(site, 0..RECORDS)?;
    site.enter()?;
    api::runtime()?.block_on(async {
        let mut hardware = api::hardware(site).await?;
        let before = site.server()?.cpu_time()?;
        for _ in 0..LISTS {
            let request = ListHardwareRequest { page_size: PAGE_RECORDS, ..Default::default() };
            hardware.list_hardware(request).await?;
        }
        Ok(micros(site.server()?.cpu_time()? - before, LISTS))
    })
}

/// Returns the resident memory of an idle server, in MiB.
fn idle(site: &mut Site) -> anyhow::Result<f64> {
    std::thread::sleep(IDLE_TIME);
    mebibytes(site)
}

/// Returns the resident memory of a server with records, in MiB.
fn records(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create_by(site, 0..RECORDS, CONCURRENT_CREATIONS)?;
    mebibytes(site)
}

/// Returns the resident memory of a server that was started with records, in MiB.
fn records_again(site: &mut Site) -> anyhow::Result<f64> {
    fleet::create_by(site, 0..RECORDS, CONCURRENT_CREATIONS)?;
    site.stop(Signal::TERM)?;
    site.start()?;
    mebibytes(site)
}

fn mebibytes(site: &Site) -> anyhow::Result<f64> {
    Ok(site.settled_memory()?.0 as f64 / 1024.0)
}

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}
