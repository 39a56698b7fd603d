//! Measures the memory and the start of a server, and compares its responses with 40,000 machines and with ten:
//! `cargo bench -p all-in-one --bench front_door`, as root.
//!
//! The two servers get requests in turn, so that other load of the host slows down both. The results are ratios of medians over
//! many rounds: other load for a short time changes one round only. The exit code is 1 if a goal is missed.
//!
//! - [`load`]: a server, the machines' network, their records and requests.
//! - [`asking`]: a page, a DHCP exchange, a metadata request, each timed and its response checked.
//! - [`report`]: percentiles of both servers.
#![allow(missing_docs)]

mod asking;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use load::fleet;
use load::process::KiB;
use load::report::Report;
use load::site::{Settings, Site, StartTimes};
use rustix::process::{Signal, setpriority_process};

use crate::asking::{Asker, Question};
use crate::report::{Ratios, compared, heading, unequal};

/// The limit on the memory of one more record, in KiB.
const EACH: f64 = 12.0;
/// The niceness of the bench and of both servers, so that other processes wait for them.
const FIRST: i32 = -20;
/// Starts of a server on a new directory.
const STARTS: usize = 5;
/// Machines of the small server.
const FEW: usize = 10;
/// Machines of the large server when the measurement of its memory begins.
const SOME: usize = 1_000;
/// Machines of the large server.
const MANY_MACHINES: usize = 40_000;
/// Machines of a whole page.
const PAGE: usize = 100;
/// Requests of each kind to each server before the measurement.
const WARMING: usize = 500;
/// Measured requests, in rounds with their own percentiles. Together they stay below the burst that the metadata service allows
/// each of ten machines.
const ROUNDS: usize = 16;
const ROUND: usize = 500;

fn main() -> anyhow::Result<ExitCode> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "run this as root: it makes namespaces");
    setpriority_process(None, FIRST).context("going before whatever else the host does")?;
    let mut report = Report::default();
    // Ten machines send as many requests as 40,000.
    let usual = Settings::with_defaults(env!("CARGO_BIN_EXE_tinwright"));
    let settings = Settings { rate_limits: false, ..usual };
    let mut few = Site::new(settings.clone())?;
    fresh_starts(&mut few, &mut report)?;
    few.start()?;
    let mut many = Site::new(settings)?;
    growth(&mut many, &mut report)?;
    beside_each_other(&few, &many, &mut report)?;
    Ok(report.exit_code())
}

/// Measures the start of an empty server, and its memory and CPU time while idle.
fn fresh_starts(site: &mut Site, report: &mut Report) -> anyhow::Result<()> {
    let (mut healthy, mut ready, mut idle) = (Duration::ZERO, Duration::ZERO, KiB(0));
    for _ in 0..STARTS {
        site.wipe()?;
        let started = site.start()?;
        (healthy, ready) = (healthy.max(started.healthy), ready.max(started.ready));
        idle = idle.max(site.settled_memory()?);
        site.stop(Signal::TERM)?;
    }
    site.wipe()?;
    report.time("fresh directory: answers /healthz", healthy, Some(Duration::from_secs(1)));
    report.time("fresh directory: answers /readyz", ready, None);
    report.memory("idle", idle, Some(KiB(64 << 10)));
    Ok(())
}

/// Measures the memory of each record, and the start of a server with many.
fn growth(site: &mut Site, report: &mut Report) -> anyhow::Result<()> {
    site.start()?;
    report.rate("records created, 64 at a time", fleet::create(site, 0..SOME)?);
    let grown = site.settled_memory()?;
    let (_, restarted) = again(site, Signal::TERM)?;
    report.memory("1,000 records", grown, None);
    report.memory("1,000 records, started again", restarted, None);
    let (least, fresh) = (grown.min(restarted), restarted);

    report.rate("records created, 64 at a time", fleet::create(site, SOME..MANY_MACHINES)?);
    let grown = site.settled_memory()?;
    let (ended, restarted) = again(site, Signal::TERM)?;
    let (killed, recovered) = again(site, Signal::KILL)?;
    report.memory("40,000 records", grown, None);
    report.memory("40,000 records, started again", restarted, None);
    let more = MANY_MACHINES - SOME;
    report.memory_each("each record from 1,000 on", least, grown, more, EACH);
    report.memory_each("the same, started again", fresh, restarted.max(recovered), more, EACH);
    let five = Some(Duration::from_secs(5));
    report.time("40,000 records: answers /readyz", ended.ready, five);
    report.time("the same, after a kill", killed.ready, five);
    Ok(())
}

/// Ends the server by `signal` and starts it again.
fn again(site: &mut Site, signal: Signal) -> anyhow::Result<(StartTimes, KiB)> {
    site.stop(signal)?;
    Ok((site.start()?, site.settled_memory()?))
}

/// Measures the two servers in turn.
fn beside_each_other(few: &Site, many: &Site, report: &mut Report) -> anyhow::Result<()> {
    fleet::create(few, 0..FEW)?;
    let (mut small, mut large) = (Asker::new(few, FEW)?, Asker::new(many, MANY_MACHINES)?);
    heading("few records", "40,000 records");
    compared(
        report,
        "DHCP exchange, of 10",
        &in_turns(&mut small, &mut large, Question::Exchange)?,
    );
    compared(
        report,
        "metadata request, of 10",
        &in_turns(&mut small, &mut large, Question::Metadata)?,
    );
    compared(
        report,
        "gRPC page of 10, of 10",
        &in_turns(&mut small, &mut large, Question::Page(FEW))?,
    );
    // A page of 100 from ten records is a tenth of one from 40,000: it is reported, but not compared.
    let page = Question::Page(PAGE);
    unequal("gRPC page of 100, of 10", &in_turns(&mut small, &mut large, page)?);
    drop(small);
    fleet::create(few, FEW..PAGE)?;
    let mut small = Asker::new(few, PAGE)?;
    compared(report, "gRPC page of 100, of 100", &in_turns(&mut small, &mut large, page)?);
    Ok(())
}

fn in_turns(small: &mut Asker, large: &mut Asker, question: Question) -> anyhow::Result<Ratios> {
    for _ in 0..WARMING {
        small.ask(question)?;
        large.ask(question)?;
    }
    let mut ratios = Ratios::default();
    for _ in 0..ROUNDS {
        let (mut few, mut many) = (Vec::with_capacity(ROUND), Vec::with_capacity(ROUND));
        for _ in 0..ROUND {
            few.push(small.ask(question)?);
            many.push(large.ask(question)?);
        }
        ratios.add(few, many);
    }
    Ok(ratios)
}
