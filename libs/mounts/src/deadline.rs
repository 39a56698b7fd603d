//! Time limits of blocking steps.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time at which a blocking function returns, whatever it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// Returns the time left; zero once the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// True if no time is left.
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}

/// Calls `probe` until it returns a value, with short pauses.
///
/// # Errors
/// Those of `probe`, and the failure of `step` at the deadline. `probe` is called at least once.
pub(crate) fn poll<T>(
    deadline: Deadline,
    step: &str,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if deadline.has_passed() {
            return Err(Error::expired(step));
        }
        thread::sleep(pause.min(deadline.remaining()));
        pause = (pause * 2).min(MAX_POLL_INTERVAL);
    }
}

/// Takes a lock that another thread may hold during a slow step.
///
/// # Errors
/// The failure of `step` at the deadline.
pub(crate) fn lock<'a, T>(
    mutex: &'a Mutex<T>,
    step: &str,
    deadline: Deadline,
) -> Result<MutexGuard<'a, T>> {
    poll(deadline, step, || match mutex.try_lock() {
        Ok(guard) => Ok(Some(guard)),
        Err(TryLockError::Poisoned(poisoned)) => Ok(Some(PoisonError::into_inner(poisoned))),
        Err(TryLockError::WouldBlock) => Ok(None),
    })
}
