//! Percentiles of two servers, and the comparison of the large one with the small one.

use std::time::Duration;

use load::report::{Report, median, percentile};

/// The largest allowed ratio of the large server's time to the small one's.
const RATIO: f64 = 1.5;

/// The heading of the table of ratios.
pub(crate) fn heading(small: &str, large: &str) {
    println!("\n{:28}{small:>20}{large:>20}{:>16}", "", "ratio");
    println!(
        "{:28}{:>12}{:>8}{:>12}{:>8}{:>8}{:>8}",
        "µs", "p50", "p99", "p50", "p99", "p50", "p99"
    );
}

/// Formats both servers' times and their ratio.
pub(crate) fn compared(report: &mut Report, name: &str, ratios: &Ratios) {
    let good = ratios.ratios().iter().all(|ratio| *ratio <= RATIO);
    println!("{}   goal {RATIO} {}", ratios.row(name), report.verdict_of(good));
}

/// Does the same for responses of different sizes, which have no goal.
pub(crate) fn unequal(name: &str, ratios: &Ratios) {
    println!("{}   of unequal answers: no goal", ratios.row(name));
}

/// The times of two servers that got the same requests in turn, in rounds.
#[derive(Debug, Default)]
pub(crate) struct Ratios {
    few: Vec<[f64; 2]>,
    many: Vec<[f64; 2]>,
}

impl Ratios {
    /// Adds a round: the times of both, in any order.
    pub(crate) fn add(&mut self, few: Vec<Duration>, many: Vec<Duration>) {
        self.few.push(percentiles(few));
        self.many.push(percentiles(many));
    }

    /// Returns the ratio of the large server's time, at the 50th and at the 99th percentile.
    fn ratios(&self) -> [f64; 2] {
        let (few, many) = (medians(&self.few), medians(&self.many));
        [many[0] / few[0], many[1] / few[1]]
    }

    fn row(&self, name: &str) -> String {
        let (few, many, ratios) = (medians(&self.few), medians(&self.many), self.ratios());
        let times = format!("{:12.0}{:8.0}{:12.0}{:8.0}", few[0], few[1], many[0], many[1]);
        format!("{name:28}{times}{:8.2}{:8.2}", ratios[0], ratios[1])
    }
}

/// Returns the 50th and the 99th percentile, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort();
    let at = |percent| percentile(&times, percent);
    [50, 99].map(|percent| at(percent).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6))
}

/// Returns the median of each percentile over the rounds.
fn medians(rounds: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|which| median(rounds.iter().map(|round| round[which])))
}
