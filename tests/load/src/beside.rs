//! Our server beside its peers, in one run.
//!
//! Server and peers share a core, one of them at work at a time and in turns; the bench has another one to itself. What
//! counts is the median of some rounds' ratios of ours to theirs: the host's speed changes from minute to minute, so only
//! what was measured one after the other is compared. What was measured while others had our cores is measured again
//! (but for DHCP, where the better of two seconds counts), and where they have them all the time, the row says so. Beside it stand the medians of both, and what an exchange takes of a
//! processor, whoever waits for whom. All are as silent as they can be told to be, and none limits how much is asked.

mod dhcp;
mod http;
mod tftp;

use std::time::Duration;

use crate::fleet;
use crate::process;
use crate::report::{Report, median};
use crate::site::{Settings, Site};

/// Machines of the small server, and of the large one.
const FEW: usize = 10;
const MANY: usize = 10_000;
/// What is downloaded, and its size in octets.
const FILE: &str = "image.bin";
const SIZE: usize = 4 << 20;

/// A rate, and what one of what is counted takes of a processor.
#[derive(Clone, Copy, Debug)]
struct Figure {
    rate: f64,
    each: f64,
    /// Whether others had our cores meanwhile.
    disturbed: bool,
}

impl Figure {
    /// Of `count` in `took` that had `processor` time.
    fn of(count: f64, took: Duration, processor: Duration) -> Self {
        let (rate, each) = (count / took.as_secs_f64(), processor.as_secs_f64() * 1e6 / count);
        Self { rate, each, disturbed: false }
    }

    /// As it stands in a row. Nothing is known of who leaves his children's time to the kernel.
    fn columns(self) -> String {
        let each = if self.each > 0.0 { format!("{:.1}", self.each) } else { "unknown".into() };
        format!("{:10.0}{each:>12}", self.rate)
    }

    /// The median of rounds.
    fn median(rounds: &[Self]) -> Self {
        let rate = median(rounds.iter().map(|round| round.rate));
        let each = median(rounds.iter().map(|round| round.each));
        Self { rate, each, disturbed: rounds.iter().any(|round| round.disturbed) }
    }
}

/// Ours beside theirs, row by row.
struct Table<'a> {
    report: &'a mut Report,
    rounds: usize,
}

impl Table<'_> {
    fn heading(&self, what: &str, unit: &str, peer: &str) {
        println!("\n{what:36}{:>22}{peer:>22}{:>8}", "ours", "ratio");
        println!("{:36}{unit:>10}{:>12}{unit:>10}{:>12}", "", "CPU µs each", "CPU µs each");
    }

    /// Measures both in turns, and who goes first in turns, too; `goal` is the least ratio of their rates.
    fn row(
        &mut self,
        name: &str,
        goal: Option<f64>,
        mut ours: impl FnMut() -> anyhow::Result<Figure>,
        mut theirs: impl FnMut() -> anyhow::Result<Figure>,
    ) -> anyhow::Result<()> {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for round in 0..self.rounds {
            if round % 2 == 0 {
                one.push(ours()?);
                other.push(theirs()?);
            } else {
                other.push(theirs()?);
                one.push(ours()?);
            }
        }
        let ratio = median(one.iter().zip(&other).map(|(one, other)| one.rate / other.rate));
        let [one, other] = [&one, &other].map(|rounds| Figure::median(rounds));
        let goal = goal.map(|goal| format!("   goal {goal} {}", self.report.judged(ratio >= goal)));
        let figures = [one, other].map(Figure::columns).concat();
        let note = if one.disturbed || other.disturbed { "   others had the cores" } else { "" };
        println!("{name:36}{figures}{ratio:8.2}{}{note}", goal.unwrap_or_default());
        Ok(())
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Beside dnsmasq
    Dhcp,
    /// Beside tftpd-hpa and atftpd
    Tftp,
    /// Scripts and metadata, beside nginx
    Http,
}

/// Measures each of `parts` in `rounds` rounds.
pub fn beside(parts: &[Part], rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    // Before this thread leaves the network that Debian's archive is on.
    let peers = setup::peers("tests/load/assets/peers.sh")?.join("servers");
    process::stay_on(process::core::ASKER)?;
    let settings = Settings::beside(setup::program("tinwright"));
    let [few, many] = [FEW, MANY].map(|count| site(&settings, count));
    let (few, many) = (few?, many?);
    let mut table = Table { report, rounds };
    for part in parts {
        match part {
            Part::Dhcp => dhcp::dhcp(few.measured()?, many.measured()?, &mut table)?,
            Part::Tftp => tftp::tftp(few.measured()?, &peers, &mut table)?,
            Part::Http => http::http(few.measured()?, many.measured()?, &peers, &mut table)?,
        }
    }
    Ok(())
}

/// Ours with `count` machines, and a file to download.
fn site(settings: &Settings, count: usize) -> anyhow::Result<Site> {
    let mut site = Site::new(settings.clone())?;
    std::fs::write(site.loaders().join(FILE), vec![0x5a; SIZE])?;
    site.start()?;
    fleet::create(&site, 0..count)?;
    Ok(site)
}
