//! Feeds inputs in a loop, and detects panics, hangs, broken invariants and growing memory.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::hex;
use crate::mutate::Mutator;
use crate::{Codec, Target};

/// Maximum growth of memory after the first third of the time, in KiB. Until then bounded buffers fill up.
pub const MAX_GROWTH_KIB: u64 = 8 * 1024;
/// Maximum time per input. Usual are microseconds.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of inputs between two reads of the clock.
const INPUTS_PER_CLOCK_READ: u64 = 64;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedResult {
    /// The codec.
    pub codec: Codec,
    /// Seed of the inputs.
    pub seed: u64,
    /// Number of processed inputs.
    pub inputs: u64,
    /// Resident memory after a third of the time, in KiB.
    pub before: u64,
    /// Resident memory at the end, in KiB.
    pub after: u64,
}

impl fmt::Display for FeedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codec, seed, inputs, before, after } = self;
        write!(f, "{codec}: seed {seed}, {inputs} inputs, {before} KiB, at the end {after} KiB")
    }
}

/// Feeds `codec` for `time` with inputs of `seed`.
pub fn feed(codec: Codec, seed: u64, time: Duration) -> anyhow::Result<FeedResult> {
    let mut target = codec.target()?;
    let mutator = Mutator::new(seed, target.corpus(), target.words());
    let (number, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| watch(codec, &mutator, &number, &ended));
        let memory = run(target.as_mut(), &mutator, &number, time);
        ended.store(true, Ordering::Relaxed);
        let (before, after) = memory.with_context(|| format!("{codec}: seed {seed}"))?;
        let result =
            FeedResult { codec, seed, inputs: number.load(Ordering::Relaxed), before, after };
        anyhow::ensure!(
            after <= before + MAX_GROWTH_KIB,
            "memory grows by more than {MAX_GROWTH_KIB} KiB: {result}"
        );
        Ok(result)
    })
}

/// Feeds `input` to a new target of `codec`.
pub fn replay(codec: Codec, input: &[u8]) -> anyhow::Result<()> {
    take(codec.target()?.as_mut(), input)
}

/// Feeds inputs for `time`. Returns the resident memory after a third of it, and at its end.
fn run(
    target: &mut dyn Target,
    mutator: &Mutator,
    number: &AtomicU64,
    time: Duration,
) -> anyhow::Result<(u64, u64)> {
    let (start, mut before) = (Instant::now(), None);
    loop {
        for _ in 0..INPUTS_PER_CLOCK_READ {
            let current = number.load(Ordering::Relaxed);
            let input = mutator.input(current);
            take(target, &input).with_context(|| describe(current, &input))?;
            number.store(current + 1, Ordering::Relaxed);
        }
        if before.is_none() && start.elapsed() >= time / 3 {
            before = Some(resident()?);
        }
        if let Some(before) = before.filter(|_| start.elapsed() >= time) {
            return Ok((before, resident()?));
        }
    }
}

/// Feeds `input` to `target`. A panic becomes an error.
fn take(target: &mut dyn Target, input: &[u8]) -> anyhow::Result<()> {
    let result = catch_unwind(AssertUnwindSafe(|| target.take(input)));
    result
        .unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", panic_message(panic.as_ref()))))
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("no message")
}

fn describe(number: u64, input: &[u8]) -> String {
    format!("input {number}, repeat it with --input {}", hex::encode(input))
}

/// Ends the process if one input takes too long: an endless loop cannot be stopped otherwise.
fn watch(codec: Codec, mutator: &Mutator, number: &AtomicU64, ended: &AtomicBool) {
    let (mut last, mut since) = (None, Instant::now());
    while !ended.load(Ordering::Relaxed) {
        let now = number.load(Ordering::Relaxed);
        if last.replace(now) != Some(now) {
            since = Instant::now();
        } else if since.elapsed() >= HANG_TIMEOUT {
            eprintln!("{codec} hangs: {}", describe(now, &mutator.input(now)));
            std::process::exit(1);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the resident memory of this process, in KiB.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    size.context("/proc/self/status has no VmRSS")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that panics or fails for certain inputs, and leaks memory.
    #[derive(Default)]
    struct FaultyTarget {
        leaked: Vec<Vec<u8>>,
    }

    impl Target for FaultyTarget {
        fn corpus(&self) -> Vec<Vec<u8>> {
            vec![b"good".to_vec()]
        }

        fn words(&self) -> Vec<Vec<u8>> {
            Vec::new()
        }

        fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
            self.leaked.push(vec![1; 4096]);
            assert!(!input.starts_with(b"panic"), "on request");
            anyhow::ensure!(!input.starts_with(b"fail"), "broken");
            Ok(())
        }
    }

    #[test]
    fn a_panic_and_a_broken_invariant_are_errors() {
        let mut target = FaultyTarget::default();
        assert!(take(&mut target, b"good").is_ok());
        assert_eq!(take(&mut target, b"panic").unwrap_err().to_string(), "panicked: on request");
        assert_eq!(take(&mut target, b"fail").unwrap_err().to_string(), "broken");
    }

    #[test]
    fn an_error_names_the_input() {
        let mutator = Mutator::new(1, vec![b"fail".to_vec()], Vec::new());
        let (number, time) = (AtomicU64::new(0), Duration::ZERO);
        let failed = run(&mut FaultyTarget::default(), &mutator, &number, time).unwrap_err();
        let at = number.load(Ordering::Relaxed);
        let message = format!("{failed:#}");
        assert!(message.contains(&format!("input {at},")), "{message}");
        assert!(message.contains(&hex::encode(&mutator.input(at))), "{message}");
    }

    #[test]
    fn leaked_memory_is_measured() {
        let mutator = Mutator::new(1, vec![b"good".to_vec()], Vec::new());
        let (mut target, number) = (FaultyTarget::default(), AtomicU64::new(0));
        let before = resident().unwrap();
        (0..100).for_each(|_| {
            run(&mut target, &mutator, &number, Duration::ZERO).unwrap();
        });
        assert!(resident().unwrap() > before + MAX_GROWTH_KIB);
    }
}
