//! Whether the host left us our cores. A hypervisor gives them to others, too, and says how long: what was measured meanwhile
//! tells of the others.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::process::TICK;

/// What part of a core others may have had of ours, in a measurement that counts.
const MOST: f64 = 0.05;
/// How often is measured until one counts.
const TRIES: usize = 3;
/// Where the time of others stands in the first line of proc(5)'s `/proc/stat`: behind user, nice, system, idle, iowait, irq
/// and softirq.
const STEAL: usize = 7;

/// What was measured, and whether others had our cores meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Quiet<T> {
    /// What was measured.
    pub measured: T,
    /// Whether others had our cores meanwhile.
    pub disturbed: bool,
}

/// Measures once.
pub fn watched<T>(measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Quiet<T>> {
    let (before, start) = (stolen()?, Instant::now());
    let measured = measure()?;
    let taken = stolen()?.saturating_sub(before);
    Ok(Quiet { measured, disturbed: taken > start.elapsed().mul_f64(MOST) })
}

/// Measures until others have left us our cores meanwhile, three times at the most.
pub fn quiet<T>(mut measure: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Quiet<T>> {
    until_quiet(|| watched(&mut measure))
}

fn until_quiet<T>(
    mut attempt: impl FnMut() -> anyhow::Result<Quiet<T>>,
) -> anyhow::Result<Quiet<T>> {
    let mut last = attempt()?;
    for _ in 1..TRIES {
        if !last.disturbed {
            break;
        }
        last = attempt()?;
    }
    Ok(last)
}

/// How long others have had our cores since the machine was started.
fn stolen() -> anyhow::Result<Duration> {
    steal(&fs::read_to_string("/proc/stat")?).context("no time of others in /proc/stat")
}

fn steal(stat: &str) -> Option<Duration> {
    let mut times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    times.nth(STEAL)?.parse::<u32>().ok().map(|ticks| TICK * ticks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_time_of_others_is_told_by_the_kernel() {
        let stat = "cpu  6947406 870063 664479 2888617 28476 0 85982 241226 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(steal(stat), Some(TICK * 241_226));
        assert_eq!(steal("cpu  1 2 3 4 5 6 7\n"), None);
        assert!(stolen().is_ok());
    }

    /// What is measured where these attempts, one after the other, are disturbed or not.
    fn measured(disturbed: &[bool]) -> (usize, bool) {
        let mut attempts = disturbed.iter().copied().enumerate();
        let mut next =
            || attempts.next().map(|(measured, disturbed)| Quiet { measured, disturbed });
        let Quiet { measured, disturbed } = until_quiet(|| Ok(next().unwrap())).unwrap();
        (measured, disturbed)
    }

    #[test]
    fn what_others_spoil_is_measured_again_but_not_for_ever() {
        assert_eq!(measured(&[false]), (0, false));
        assert_eq!(measured(&[true, false]), (1, false));
        assert_eq!(measured(&[true, true, true]), (2, true));
    }
}
