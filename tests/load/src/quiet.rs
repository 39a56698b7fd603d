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
    /// Whether others had our cores, as often as it was tried.
    pub disturbed: bool,
}

/// Measures until others have left us our cores meanwhile, three times at the most.
pub fn quiet<T>(mut measure: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Quiet<T>> {
    until_quiet(|| {
        let (before, start) = (stolen()?, Instant::now());
        let measured = measure()?;
        let taken = stolen()?.saturating_sub(before);
        Ok((measured, taken.div_duration_f64(start.elapsed())))
    })
}

/// The same; `attempt` tells beside what it measured what part of a core was others'.
fn until_quiet<T>(
    mut attempt: impl FnMut() -> anyhow::Result<(T, f64)>,
) -> anyhow::Result<Quiet<T>> {
    let mut tries = 0;
    loop {
        let (measured, taken) = attempt()?;
        tries += 1;
        let disturbed = taken > MOST;
        if !disturbed || tries >= TRIES {
            return Ok(Quiet { measured, disturbed });
        }
    }
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

    /// What is measured where others have these parts of a core, one attempt after the other.
    fn measured(taken: &[f64]) -> (usize, bool) {
        let mut taken = taken.iter().copied().enumerate();
        let Quiet { measured, disturbed } = until_quiet(|| Ok(taken.next().unwrap())).unwrap();
        (measured, disturbed)
    }

    #[test]
    fn what_others_spoil_is_measured_again_but_not_for_ever() {
        assert_eq!(measured(&[0.0]), (0, false));
        assert_eq!(measured(&[0.2, 0.01]), (1, false));
        assert_eq!(measured(&[0.2, 0.3, 0.2]), (2, true));
    }
}
