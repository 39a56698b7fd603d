//! What was measured, line by line, and whether it is what was wanted.

use std::process::ExitCode;
use std::time::Duration;

use crate::process::KiB;

/// Prints, and remembers whether a goal was missed.
#[derive(Debug, Default)]
pub struct Report {
    missed: usize,
}

impl Report {
    /// A time, which must not be longer than `goal`.
    pub fn time(&mut self, name: &str, took: Duration, goal: Option<Duration>) {
        let good = goal.map(|goal| (format!("{:.0} s", goal.as_secs_f64()), took <= goal));
        self.row(name, format!("{:.3} s", took.as_secs_f64()), good);
    }

    /// Memory, which must not be more than `goal`.
    pub fn memory(&mut self, name: &str, resident: KiB, goal: Option<KiB>) {
        let mib = |KiB(amount)| format!("{:.1} MiB", amount as f64 / 1024.0);
        self.row(name, mib(resident), goal.map(|goal| (mib(goal), resident <= goal)));
    }

    /// What each of `more` took of the memory between `before` and `after`: not more than `goal`, in KiB.
    pub fn each(&mut self, name: &str, before: KiB, after: KiB, more: usize, goal: f64) {
        let each = (after.0 as f64 - before.0 as f64) / more as f64;
        self.row(name, format!("{each:.2} KiB"), Some((format!("{goal:.0} KiB"), each <= goal)));
    }

    /// How many a second.
    pub fn rate(&mut self, name: &str, rate: f64) {
        self.row(name, format!("{rate:.0} /s"), None);
    }

    /// How many, which must not be more than `goal`.
    pub fn number(&mut self, name: &str, number: usize, goal: usize) {
        self.row(name, number.to_string(), Some((goal.to_string(), number <= goal)));
    }

    /// `value` under `name`, with a goal as text and whether it is met.
    pub fn row(&mut self, name: &str, value: String, goal: Option<(String, bool)>) {
        let goal = goal.map(|(goal, good)| format!("   goal {goal} {}", self.judged(good)));
        println!("{name:40}{value:>12}{}", goal.unwrap_or_default());
    }

    /// How a goal is said to be met, or not.
    pub fn judged(&mut self, good: bool) -> &'static str {
        self.missed += usize::from(!good);
        if good { "met" } else { "MISSED" }
    }

    /// 0 if all goals are met.
    pub fn verdict(&self) -> ExitCode {
        println!("\ngoals missed: {}", self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The `percent`th percentile of `times`, which are in order; none of none.
pub fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    times.get(times.len() * percent / 100).or(times.last()).copied()
}

/// The median; not a number where there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = values.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let times = [1, 2, 3, 4].map(Duration::from_secs);
        assert_eq!(percentile(&times, 50), Some(Duration::from_secs(3)));
        assert_eq!(percentile(&times, 100), Some(Duration::from_secs(4)));
        assert_eq!(percentile(&[], 50), None);
    }
}
