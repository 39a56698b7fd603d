//! The loop: input after input, watching for what must never happen.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::hex;
use crate::spoil::Spoiler;
use crate::{Codec, Target};

/// How much memory may be added once a third of the time is over, in KiB. Until then what is bounded fills up.
pub const GROWTH: u64 = 8 * 1024;
/// How long one input may take. It is microseconds; this is for what never ends.
const HANGS: Duration = Duration::from_secs(20);
/// How many inputs pass between two looks at the clock.
const STRIDE: u64 = 64;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Which.
    pub codec: Codec,
    /// From what the inputs came.
    pub seed: u64,
    /// How many were taken.
    pub inputs: u64,
    /// Resident memory when a third of the time was over, in KiB.
    pub before: u64,
    /// The same at the end.
    pub after: u64,
}

impl fmt::Display for Fed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codec, seed, inputs, before, after } = self;
        write!(f, "{codec}: seed {seed}, {inputs} inputs, {before} KiB, at the end {after} KiB")
    }
}

/// Feeds `codec` for `time` with what comes of `seed`.
pub fn feed(codec: Codec, seed: u64, time: Duration) -> anyhow::Result<Fed> {
    let mut target = codec.target()?;
    let spoiler = Spoiler::new(seed, target.corpus(), target.words());
    let (number, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| watch(codec, &spoiler, &number, &ended));
        let fed = run(target.as_mut(), &spoiler, &number, time);
        ended.store(true, Ordering::Relaxed);
        let (before, after) = fed.with_context(|| format!("{codec}: seed {seed}"))?;
        let fed = Fed { codec, seed, inputs: number.load(Ordering::Relaxed), before, after };
        anyhow::ensure!(after <= before + GROWTH, "memory grows by more than {GROWTH} KiB: {fed}");
        Ok(fed)
    })
}

/// Gives `input` to a fresh target of `codec`.
pub fn replay(codec: Codec, input: &[u8]) -> anyhow::Result<()> {
    take(codec.target()?.as_mut(), input)
}

/// Resident memory when a third of `time` was over, and at its end.
fn run(
    target: &mut dyn Target,
    spoiler: &Spoiler,
    number: &AtomicU64,
    time: Duration,
) -> anyhow::Result<(u64, u64)> {
    let (began, mut before) = (Instant::now(), None);
    loop {
        for _ in 0..STRIDE {
            let now = number.load(Ordering::Relaxed);
            let input = spoiler.input(now);
            take(target, &input).with_context(|| told(now, &input))?;
            number.store(now + 1, Ordering::Relaxed);
        }
        if before.is_none() && began.elapsed() >= time / 3 {
            before = Some(resident()?);
        }
        if let Some(before) = before.filter(|_| began.elapsed() >= time) {
            return Ok((before, resident()?));
        }
    }
}

/// Gives `input` to `target`, a panic being a failure like any.
fn take(target: &mut dyn Target, input: &[u8]) -> anyhow::Result<()> {
    let taken = catch_unwind(AssertUnwindSafe(|| target.take(input)));
    taken.unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", said(panic.as_ref()))))
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("no message")
}

fn told(number: u64, input: &[u8]) -> String {
    format!("input {number}, to be given again with --input {}", hex::written(input))
}

/// Ends the process when one input takes too long: nothing else ends a loop without end.
fn watch(codec: Codec, spoiler: &Spoiler, number: &AtomicU64, ended: &AtomicBool) {
    let (mut last, mut since) = (None, Instant::now());
    while !ended.load(Ordering::Relaxed) {
        let now = number.load(Ordering::Relaxed);
        if last.replace(now) != Some(now) {
            since = Instant::now();
        } else if since.elapsed() >= HANGS {
            eprintln!("{codec} hangs: {}", told(now, &spoiler.input(now)));
            std::process::exit(1);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    size.context("/proc/self/status has no VmRSS")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics, fails or takes more and more memory where it is told to.
    #[derive(Default)]
    struct Bad {
        hoard: Vec<Vec<u8>>,
    }

    impl Target for Bad {
        fn corpus(&self) -> Vec<Vec<u8>> {
            vec![b"good".to_vec()]
        }

        fn words(&self) -> Vec<Vec<u8>> {
            Vec::new()
        }

        fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
            self.hoard.push(vec![1; 4096]);
            assert!(!input.starts_with(b"panic"), "as told");
            anyhow::ensure!(!input.starts_with(b"fail"), "broken");
            Ok(())
        }
    }

    #[test]
    fn a_panic_and_a_broken_rule_are_told() {
        let mut bad = Bad::default();
        assert!(take(&mut bad, b"good").is_ok());
        assert_eq!(take(&mut bad, b"panic").unwrap_err().to_string(), "panicked: as told");
        assert_eq!(take(&mut bad, b"fail").unwrap_err().to_string(), "broken");
    }

    #[test]
    fn what_fails_names_the_input() {
        let spoiler = Spoiler::new(1, vec![b"fail".to_vec()], Vec::new());
        let (number, time) = (AtomicU64::new(0), Duration::ZERO);
        let failed = run(&mut Bad::default(), &spoiler, &number, time).unwrap_err();
        let at = number.load(Ordering::Relaxed);
        let told = format!("{failed:#}");
        assert!(told.contains(&format!("input {at},")), "{told}");
        assert!(told.contains(&hex::written(&spoiler.input(at))), "{told}");
    }

    #[test]
    fn a_hoard_shows() {
        let spoiler = Spoiler::new(1, vec![b"good".to_vec()], Vec::new());
        let (mut bad, number) = (Bad::default(), AtomicU64::new(0));
        let before = resident().unwrap();
        (0..100).for_each(|_| {
            run(&mut bad, &spoiler, &number, Duration::ZERO).unwrap();
        });
        assert!(resident().unwrap() > before + GROWTH);
    }
}
