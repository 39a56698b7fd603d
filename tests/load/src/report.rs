//! Prints measurements line by line, and compares them with their goals.

use std::process::ExitCode;
use std::time::Duration;

use crate::process::KiB;

/// Prints rows, and counts missed goals.
#[derive(Debug, Default)]
pub struct Report {
    missed: usize,
}

impl Report {
    /// Prints a time. The goal is an upper limit.
    pub fn time(&mut self, name: &str, elapsed: Duration, goal: Option<Duration>) {
        let goal = goal.map(|goal| (format!("{:.0} s", goal.as_secs_f64()), elapsed <= goal));
        self.row(name, format!("{:.3} s", elapsed.as_secs_f64()), goal);
    }

    /// Prints an amount of memory. The goal is an upper limit.
    pub fn memory(&mut self, name: &str, resident: KiB, goal: Option<KiB>) {
        let mib = |KiB(amount)| format!("{:.1} MiB", amount as f64 / 1024.0);
        self.row(name, mib(resident), goal.map(|goal| (mib(goal), resident <= goal)));
    }

    /// Prints the memory per object, where `count` objects were added between `before` and `after`. The goal is an upper
    /// limit, in KiB.
    pub fn memory_each(&mut self, name: &str, before: KiB, after: KiB, count: usize, goal: f64) {
        let each = (after.0 as f64 - before.0 as f64) / count as f64;
        self.row(name, format!("{each:.2} KiB"), Some((format!("{goal:.0} KiB"), each <= goal)));
    }

    /// Prints a rate per second.
    pub fn rate(&mut self, name: &str, rate: f64) {
        self.row(name, format!("{rate:.0} /s"), None);
    }

    /// Prints a number. The goal is an upper limit.
    pub fn number(&mut self, name: &str, number: usize, goal: usize) {
        self.row(name, number.to_string(), Some((goal.to_string(), number <= goal)));
    }

    /// Prints `value` with `name`, and the goal as text with its verdict.
    pub fn row(&mut self, name: &str, value: String, goal: Option<(String, bool)>) {
        let goal = goal.map(|(goal, met)| format!("   goal {goal} {}", self.verdict_of(met)));
        println!("{name:40}{value:>12}{}", goal.unwrap_or_default());
    }

    /// Returns the word for a goal that was `met` or not, and counts it if not.
    pub fn verdict_of(&mut self, met: bool) -> &'static str {
        self.missed += usize::from(!met);
        if met { "met" } else { "MISSED" }
    }

    /// Prints the number of missed goals. Success if there is none.
    pub fn exit_code(&self) -> ExitCode {
        println!("\ngoals missed: {}", self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Returns the `percent`th percentile of `times`, which must be sorted; `None` if there are none.
pub fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    times.get(times.len() * percent / 100).or(times.last()).copied()
}

/// Returns the median; NaN if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = values.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
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
