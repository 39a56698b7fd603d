//! What was measured, line by line, and whether it is what was wanted.

use std::process::ExitCode;
use std::time::Duration;

use crate::site::KiB;

/// How much longer the large server may take than the small one.
const RATIO: f64 = 1.5;
/// What one more record may take.
const EACH: f64 = 12.0;

/// Prints, and remembers whether a goal was missed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    missed: usize,
}

impl Report {
    /// A time, which must not be longer than `goal`.
    pub(crate) fn time(&mut self, name: &str, took: Duration, goal: Option<Duration>) {
        let good = goal.map(|goal| (format!("{:.0} s", goal.as_secs_f64()), took <= goal));
        self.row(name, format!("{:.3} s", took.as_secs_f64()), good);
    }

    /// Memory, which must not be more than `goal`.
    pub(crate) fn memory(&mut self, name: &str, resident: KiB, goal: Option<KiB>) {
        let mib = |KiB(amount)| format!("{:.1} MiB", amount as f64 / 1024.0);
        self.row(name, mib(resident), goal.map(|goal| (mib(goal), resident <= goal)));
    }

    /// What each of `more` records took of the memory between `before` and `after`.
    pub(crate) fn each(&mut self, name: &str, after: KiB, before: KiB, more: usize) {
        let each = (after.0 as f64 - before.0 as f64) / more as f64;
        self.row(name, format!("{each:.2} KiB"), Some((format!("{EACH:.0} KiB"), each <= EACH)));
    }

    /// How many a second.
    pub(crate) fn rate(&mut self, name: &str, rate: f64) {
        self.row(name, format!("{rate:.0} /s"), None);
    }

    /// The heading of the table of ratios.
    pub(crate) fn heading(&self, small: &str, large: &str) {
        println!("\n{:28}{small:>20}{large:>20}{:>16}", "", "ratio");
        println!(
            "{:28}{:>12}{:>8}{:>12}{:>8}{:>8}{:>8}",
            "µs", "p50", "p99", "p50", "p99", "p50", "p99"
        );
    }

    /// Both servers' times, and by how much the large one's are longer.
    pub(crate) fn ratios(&mut self, name: &str, ratios: &Ratios) {
        let good = ratios.ratios().iter().all(|ratio| *ratio <= RATIO);
        println!("{}   goal {RATIO} {}", ratios.row(name), self.judged(good));
    }

    /// The same where the answers are of different sizes: no goal.
    pub(crate) fn unequal(&self, name: &str, ratios: &Ratios) {
        println!("{}   of unequal answers: no goal", ratios.row(name));
    }

    /// 0 if all goals are met.
    pub(crate) fn verdict(&self) -> ExitCode {
        println!("\ngoals missed: {}", self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn row(&mut self, name: &str, value: String, goal: Option<(String, bool)>) {
        let goal = goal.map(|(goal, good)| format!("   goal {goal} {}", self.judged(good)));
        println!("{name:40}{value:>12}{}", goal.unwrap_or_default());
    }

    fn judged(&mut self, good: bool) -> &'static str {
        self.missed += usize::from(!good);
        if good { "met" } else { "MISSED" }
    }
}

/// The times of two servers that were asked the same in turns, in rounds.
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

    /// By how much the large server's time is longer, at the 50th and at the 99th percentile.
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

/// The 50th and the 99th percentile, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort();
    let at = |percent| times.get(times.len() * percent / 100);
    [50, 99].map(|percent| at(percent).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6))
}

/// Of the rounds' percentiles, each one's median.
fn medians(rounds: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|which| {
        let mut all: Vec<_> = rounds.iter().map(|round| round[which]).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    })
}
