//! Powers on a whole rack at once.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::task::{JoinSet, LocalSet};

use crate::machine::{Booted, Machine, STEPS};
use crate::process::KiB;
use crate::report::{Report, percentile};
use crate::site::{Site, loader};
use crate::{api, fleet};

/// Goal for the time from power on to the last machine's script.
const LAST_SCRIPT_GOAL: Duration = Duration::from_secs(30);
/// Goal for the number of repeated requests of one machine.
const MAX_RETRIES_GOAL: u32 = 2;
/// Goal for the growth of the server's memory: per machine, and in addition once.
const GROWTH_PER_MACHINE: KiB = KiB(64);
const GROWTH_ONCE: KiB = KiB(8 << 10);
/// Index of the script in [`STEPS`].
const SCRIPT_STEP: usize = 2;

/// The result of powering on all machines.
#[derive(Clone, Debug)]
pub struct PowerOnResult {
    /// The machines that booted.
    pub booted: Vec<Booted>,
    /// The errors of the others.
    pub failed: Vec<String>,
    /// Time from power on to the last response.
    pub elapsed: Duration,
    /// The server's resident memory before.
    pub before: KiB,
    /// The server's peak memory.
    pub peak: KiB,
}

impl PowerOnResult {
    /// Returns the time from power on to the last machine's script.
    pub fn last_script(&self) -> Duration {
        self.booted.iter().map(|booted| booted.at[SCRIPT_STEP]).max().unwrap_or_default()
    }

    /// Returns the goal for the peak memory.
    pub fn memory_goal(&self) -> KiB {
        let machines = self.booted.len() + self.failed.len();
        KiB(self.before.0 + GROWTH_ONCE.0 + GROWTH_PER_MACHINE.0 * machines as u64)
    }

    /// Returns the highest number of repeated requests of one machine.
    pub fn max_retries(&self) -> u32 {
        self.booted.iter().map(|booted| booted.retries).max().unwrap_or_default()
    }
}

/// Powers on all machines of `site`, of which there must be `count`, and waits for each of them.
pub fn power_on(site: &Site, count: usize) -> anyhow::Result<PowerOnResult> {
    allow_sockets(count)?;
    site.enter()?;
    let runtime = api::runtime()?;
    let ids = runtime.block_on(async { api::ids(api::hardware(site).await?, count).await })?;
    let loader: Rc<[u8]> = loader().into();
    let before = site.settled_memory()?;
    let start = Instant::now();
    let (booted, failed) = runtime.block_on(LocalSet::new().run_until(async {
        let mut machines = JoinSet::new();
        for (n, id) in ids.into_iter().enumerate() {
            machines.spawn_local(Machine { n, id, loader: loader.clone() }.boot());
        }
        let (mut booted, mut failed) = (Vec::new(), Vec::new());
        while let Some(ended) = machines.join_next().await {
            match ended.context("a machine's task panicked")? {
                Ok(machine) => booted.push(machine),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        anyhow::Ok((booted, failed))
    }))?;
    let peak = site.server()?.peak_memory()?;
    Ok(PowerOnResult { booted, failed, elapsed: start.elapsed(), before, peak })
}

/// Raises the limit of open files, which the server inherits: one socket per machine at the bench, and one at the server.
fn allow_sockets(count: usize) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = Some(count as u64 * 2 + 256);
    if limit.current < wanted {
        limit.current = limit.maximum.map_or(wanted, |max| wanted.map(|wanted| wanted.min(max)));
        setrlimit(Resource::Nofile, limit).context("raising the limit of open files")?;
    }
    Ok(())
}

/// Creates `count` machines at `site`, whose server must be running, powers them on, and prints the results.
pub fn report(site: &Site, count: usize, report: &mut Report) -> anyhow::Result<()> {
    fleet::create(site, 0..count)?;
    let result = power_on(site, count)?;
    for failed in result.failed.iter().take(5) {
        println!("{failed}");
    }
    report.number("machines that did not boot", result.failed.len(), 0);
    println!("\n{:40}{:>12}{:>12}{:>12}", "seconds after power on", "p50", "p99", "last");
    for (step, name) in STEPS.iter().enumerate() {
        let mut times: Vec<_> = result.booted.iter().map(|booted| booted.at[step]).collect();
        times.sort();
        let at = |percent| percentile(&times, percent).unwrap_or_default().as_secs_f64();
        println!("{name:40}{:12.3}{:12.3}{:12.3}", at(50), at(99), at(100));
    }
    println!();
    let rate = result.booted.len() as f64 / result.elapsed.as_secs_f64();
    report.rate("complete boots", rate);
    report.time("last script", result.last_script(), Some(LAST_SCRIPT_GOAL));
    let retries = usize::try_from(result.max_retries())?;
    report.number(
        "most repeated requests of a machine",
        retries,
        usize::try_from(MAX_RETRIES_GOAL)?,
    );
    report.memory("memory before", result.before, None);
    report.memory("peak memory", result.peak, Some(result.memory_goal()));
    Ok(())
}
