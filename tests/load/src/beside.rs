//! Compares our server with other servers in one run.
//!
//! Server and peer use the same core, one at a time and alternately; the bench has another core to itself. The result of a
//! row is the median over some rounds of the ratio of our rate to the peer's rate: the host's speed changes from minute to
//! minute, so only consecutive measurements are compared. A measurement that was disturbed by CPU steal is repeated (for
//! DHCP, the better of two seconds counts); a row says if it was disturbed to the end. A row also shows both median rates,
//! and the processor time per exchange. All servers log as little as they can, without rate limits.

pub(crate) mod dhcp;
pub(crate) mod http;
mod images;
mod tftp;

use std::time::Duration;

use crate::fleet;
use crate::process;
use crate::report::{Report, median};
use crate::site::{Settings, Site};

/// Number of machines at the small server, and at the large one.
const FEW_MACHINES: usize = 10;
const MANY_MACHINES: usize = 10_000;
/// Name of the downloaded file, and its size in bytes.
const FILE_NAME: &str = "image.bin";
const FILE_BYTES: usize = 4 << 20;

/// A rate, with the processor time per operation.
#[derive(Clone, Copy, Debug)]
struct Figure {
    /// Operations per second.
    rate: f64,
    /// Processor time per operation, in microseconds; 0 if unknown.
    cpu_each: f64,
    /// True if the hypervisor gave our cores to others meanwhile.
    disturbed: bool,
}

impl Figure {
    /// Computes the figure of `count` operations in the time `elapsed`, which took the processor time `cpu`.
    fn new(count: f64, elapsed: Duration, cpu: Duration) -> Self {
        let (rate, cpu_each) = (count / elapsed.as_secs_f64(), cpu.as_secs_f64() * 1e6 / count);
        Self { rate, cpu_each, disturbed: false }
    }

    /// The figure's columns in a row. The processor time is unknown for a server that does not wait for its children.
    fn columns(self) -> String {
        let cpu =
            if self.cpu_each > 0.0 { format!("{:.1}", self.cpu_each) } else { "unknown".into() };
        format!("{:10.0}{cpu:>12}", self.rate)
    }

    /// The median over rounds.
    fn median(rounds: &[Self]) -> Self {
        let rate = median(rounds.iter().map(|round| round.rate));
        let cpu_each = median(rounds.iter().map(|round| round.cpu_each));
        Self { rate, cpu_each, disturbed: rounds.iter().any(|round| round.disturbed) }
    }
}

/// Prints the comparison with peers, one row per measurement.
struct Table<'a> {
    report: &'a mut Report,
    rounds: usize,
}

impl Table<'_> {
    fn heading(&self, title: &str, unit: &str, peer: &str) {
        println!("\n{title:36}{:>22}{peer:>22}{:>8}", "ours", "ratio");
        println!("{:36}{unit:>10}{:>12}{unit:>10}{:>12}", "", "CPU µs each", "CPU µs each");
    }

    /// Measures both alternately, the first of each round alternating too, and prints the row. `goal` is the lowest ratio
    /// of the rates that is accepted.
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
        let goal =
            goal.map(|goal| format!("   goal {goal} {}", self.report.verdict_of(ratio >= goal)));
        let figures = [one, other].map(Figure::columns).concat();
        let note = if one.disturbed || other.disturbed { "   disturbed by CPU steal" } else { "" };
        println!("{name:36}{figures}{ratio:8.2}{}{note}", goal.unwrap_or_default());
        Ok(())
    }
}

/// The protocol that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Compare with dnsmasq
    Dhcp,
    /// Compare with tftpd-hpa and atftpd
    Tftp,
    /// Compare scripts and metadata with nginx
    Http,
    /// Compare the downloads of an image with nginx
    Images,
}

/// Measures each of `protocols` in `rounds` rounds.
pub fn beside(protocols: &[Protocol], rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    // Downloads Debian packages, so it has to run before this thread enters a network namespace.
    let peers = setup::peers("tests/load/assets/peers.sh")?.join("servers");
    process::pin_to(process::core::BENCH)?;
    let settings = Settings::beside_peers(setup::program("tinwright"));
    let [few, many] = [FEW_MACHINES, MANY_MACHINES].map(|count| site(&settings, count));
    let (few, many) = (few?, many?);
    let mut table = Table { report, rounds };
    for protocol in protocols {
        match protocol {
            Protocol::Dhcp => dhcp::dhcp(few.measured()?, many.measured()?, &mut table)?,
            Protocol::Tftp => tftp::tftp(few.measured()?, &peers, &mut table)?,
            Protocol::Http => http::http(few.measured()?, many.measured()?, &peers, &mut table)?,
            Protocol::Images => images::images(&few, &peers, &mut table)?,
        }
    }
    Ok(())
}

/// Starts our server with `count` machines, and a file to download.
fn site(settings: &Settings, count: usize) -> anyhow::Result<Site> {
    let mut site = Site::new(settings.clone())?;
    std::fs::write(site.loaders().join(FILE_NAME), vec![0x5a; FILE_BYTES])?;
    site.start()?;
    fleet::create(&site, 0..count)?;
    Ok(site)
}
