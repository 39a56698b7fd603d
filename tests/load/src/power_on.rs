//! A rack that is powered on at once.

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

/// How long after power on the last machine may have its script.
pub const SCRIPT: Duration = Duration::from_secs(30);
/// How often a machine may have to ask again.
pub const AGAIN: u32 = 2;
/// What the server's memory may grow by for each machine, and for there being any.
const EACH: KiB = KiB(64);
const SOME: KiB = KiB(8 << 10);
/// The step whose end is [`SCRIPT`]'s.
const SCRIPT_STEP: usize = 2;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every machine that has come all the way.
    pub booted: Vec<Booted>,
    /// What became of the others.
    pub failed: Vec<String>,
    /// From the first to the last answer.
    pub took: Duration,
    /// The server's memory before.
    pub before: KiB,
    /// The most it had.
    pub peak: KiB,
}

impl Outcome {
    /// When the last machine had its script.
    pub fn last_script(&self) -> Duration {
        self.booted.iter().map(|booted| booted.at[SCRIPT_STEP]).max().unwrap_or_default()
    }

    /// The most memory it may have had.
    pub fn bound(&self) -> KiB {
        let machines = self.booted.len() + self.failed.len();
        KiB(self.before.0 + SOME.0 + EACH.0 * machines as u64)
    }

    /// How often the machine asked again that had to do so most often.
    pub fn most_again(&self) -> u32 {
        self.booted.iter().map(|booted| booted.again).max().unwrap_or_default()
    }
}

/// Powers on `count` machines of `site` at once, which must have just as many, and waits for each of them.
pub fn power_on(site: &Site, count: usize) -> anyhow::Result<Outcome> {
    allow_sockets(count)?;
    site.enter()?;
    let runtime = api::runtime()?;
    let ids = runtime.block_on(async { api::ids(api::hardware(site).await?, count).await })?;
    let loader: Rc<[u8]> = loader().into();
    let before = site.resident()?;
    let start = Instant::now();
    let (booted, failed) = runtime.block_on(LocalSet::new().run_until(async {
        let mut machines = JoinSet::new();
        for (n, id) in ids.into_iter().enumerate() {
            machines.spawn_local(Machine { n, id, loader: loader.clone() }.boot());
        }
        let (mut booted, mut failed) = (Vec::new(), Vec::new());
        while let Some(ended) = machines.join_next().await {
            match ended.context("a machine broke")? {
                Ok(machine) => booted.push(machine),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        anyhow::Ok((booted, failed))
    }))?;
    Ok(Outcome { booted, failed, took: start.elapsed(), before, peak: site.server()?.peak()? })
}

/// Every machine has a socket open at a time, and so has the server for each: its limit is ours.
fn allow_sockets(count: usize) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = Some(count as u64 * 2 + 256);
    if limit.current < wanted {
        limit.current = limit.maximum.map_or(wanted, |most| wanted.map(|wanted| wanted.min(most)));
        setrlimit(Resource::Nofile, limit).context("allowing enough sockets")?;
    }
    Ok(())
}

/// Creates `count` machines at `site`, whose server runs, powers them on, and reports.
pub fn report(site: &Site, count: usize, report: &mut Report) -> anyhow::Result<()> {
    fleet::create(site, 0..count)?;
    let outcome = power_on(site, count)?;
    for failed in outcome.failed.iter().take(5) {
        println!("{failed}");
    }
    report.number("machines that did not come up", outcome.failed.len(), 0);
    println!("\n{:40}{:>12}{:>12}{:>12}", "seconds after power on", "p50", "p99", "last");
    for (step, name) in STEPS.iter().enumerate() {
        let mut times: Vec<_> = outcome.booted.iter().map(|booted| booted.at[step]).collect();
        times.sort();
        let at = |percent| percentile(&times, percent).unwrap_or_default().as_secs_f64();
        println!("{name:40}{:12.3}{:12.3}{:12.3}", at(50), at(99), at(100));
    }
    println!();
    let rate = outcome.booted.len() as f64 / outcome.took.as_secs_f64();
    report.rate("whole conversations", rate);
    report.time("last script", outcome.last_script(), Some(SCRIPT));
    let again = usize::try_from(outcome.most_again())?;
    report.number("most often asked again, by one machine", again, usize::try_from(AGAIN)?);
    report.memory("memory before", outcome.before, None);
    report.memory("most memory", outcome.peak, Some(outcome.bound()));
    Ok(())
}
