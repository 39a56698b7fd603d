//! Detects CPU steal: time in which the hypervisor gave our cores to others. A measurement during steal is unreliable.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::process::TICK;

/// Maximum stolen time in a valid measurement, as a part of the elapsed time.
const MAX_STEAL_RATIO: f64 = 0.05;
/// Maximum number of measurements until one is valid.
const MAX_ATTEMPTS: usize = 3;
/// Index of steal in the first line of `/proc/stat` (proc(5)): after user, nice, system, idle, iowait, irq and softirq.
const STEAL_INDEX: usize = 7;

/// A measurement, marked if it was disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Sample<T> {
    /// The measured value.
    pub value: T,
    /// True if too much time was stolen.
    pub disturbed: bool,
}

/// Measures once.
pub fn sample<T>(measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Sample<T>> {
    let (before, start) = (stolen()?, Instant::now());
    let value = measure()?;
    let stolen = stolen()?.saturating_sub(before);
    Ok(Sample { value, disturbed: stolen > start.elapsed().mul_f64(MAX_STEAL_RATIO) })
}

/// Measures until a measurement was not disturbed, at most three times.
pub fn undisturbed<T>(mut measure: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Sample<T>> {
    retry(|| sample(&mut measure))
}

fn retry<T>(mut attempt: impl FnMut() -> anyhow::Result<Sample<T>>) -> anyhow::Result<Sample<T>> {
    let mut last = attempt()?;
    for _ in 1..MAX_ATTEMPTS {
        if !last.disturbed {
            break;
        }
        last = attempt()?;
    }
    Ok(last)
}

/// Returns the stolen time since the host's start.
fn stolen() -> anyhow::Result<Duration> {
    parse_steal(&fs::read_to_string("/proc/stat")?).context("no steal time in /proc/stat")
}

fn parse_steal(stat: &str) -> Option<Duration> {
    let mut times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    times.nth(STEAL_INDEX)?.parse::<u32>().ok().map(|ticks| TICK * ticks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_steal_time_is_read_from_proc_stat() {
        let stat = "cpu  6947406 870063 664479 2888617 28476 0 85982 241226 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(parse_steal(stat), Some(TICK * 241_226));
        assert_eq!(parse_steal("cpu  1 2 3 4 5 6 7\n"), None);
        assert!(stolen().is_ok());
    }

    /// Returns value and mark of the sample that counts, if the attempts are disturbed in this way.
    fn last_sample(disturbed: &[bool]) -> (usize, bool) {
        let mut attempts = disturbed.iter().copied().enumerate();
        let mut next = || attempts.next().map(|(value, disturbed)| Sample { value, disturbed });
        let Sample { value, disturbed } = retry(|| Ok(next().unwrap())).unwrap();
        (value, disturbed)
    }

    #[test]
    fn a_disturbed_measurement_is_repeated_at_most_twice() {
        assert_eq!(last_sample(&[false]), (0, false));
        assert_eq!(last_sample(&[true, false]), (1, false));
        assert_eq!(last_sample(&[true, true, true]), (2, true));
    }
}
