//! Trying again: [`is_final`] says for which errors it is useless, [`Backoff`] how long to wait. [`describe_broken`]: the status of a broken connection.
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn call() -> Result<(), tonic::Status> { Ok(()) }
//! # async fn example() -> Result<(), tonic::Status> {
//! use runtime::retry::{Backoff, is_final};
//!
//! let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
//! loop {
//!     match call().await {
//!         Err(status) if !is_final(status.code()) => backoff.wait().await,
//!         answer => return answer,
//!     }
//! }
//! # }
//! ```

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tinwright::status;
use tonic::{Code, Status};

/// True if the same call will be refused again: it is not to be repeated.
///
/// | final | to be retried |
/// |---|---|
/// | `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION`, `PERMISSION_DENIED`, `UNAUTHENTICATED`, `UNIMPLEMENTED`, `OUT_OF_RANGE`, `DATA_LOSS`; and `OK` | `CANCELLED`, `UNKNOWN`, `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `ABORTED`, `INTERNAL`, `UNAVAILABLE` |
pub fn is_final(code: Code) -> bool {
    match code {
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::OutOfRange
        | Code::DataLoss => true,
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => false,
    }
}

/// Exponential backoff: the delay after the first failure, doubled with each one that follows it, up to a maximum.
///
/// [`delay_after`](Self::delay_after) is pure, for failures that are counted elsewhere, such as in a record.
/// [`next_delay`](Self::next_delay) and [`wait`](Self::wait) count failures themselves, and shorten each delay by up to half
/// of it by chance, so that clients which failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff without failures.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// The full delay after `failures` failures in a row; none after none.
    pub fn delay_after(&self, failures: u32) -> Duration {
        match failures.checked_sub(1) {
            Some(doublings) => {
                self.first.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max)
            }
            None => Duration::ZERO,
        }
    }

    /// Counts a failure, and returns the delay after it: half of the full one at least.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // A new hasher has keys of its own, which is random enough for this.
        let [random, ..] = RandomState::new().hash_one(self.failures).to_le_bytes();
        self.delay_after(self.failures).mul_f64(1.0 - f64::from(random) / 512.0)
    }

    /// Counts a failure, and waits for the delay after it.
    pub async fn wait(&mut self) {
        let delay = self.next_delay();
        tokio::time::sleep(delay).await;
    }

    /// Counts the failure `status`, and waits for the delay after it: at least the one that the server named, up to the longest delay.
    pub async fn wait_after(&mut self, status: &Status) {
        let named = status::retry_delay(status).unwrap_or_default().min(self.max);
        let delay = self.next_delay().max(named);
        tokio::time::sleep(delay).await;
    }

    /// The longest delay.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Forgets all failures, since something succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns `status`; if it is a broken connection, for which the library has no code, as `UNAVAILABLE` with the cause.
pub fn describe_broken(status: Status) -> Status {
    // Only a status that was made here has a source.
    let source = std::error::Error::source(&status).filter(|_| status.code() == Code::Unknown);
    let Some(cause) = std::iter::successors(source, |error| error.source()).last() else {
        return status;
    };
    let mut described = Status::unavailable(format!(
        "the connection to the server broke: {cause}; if the server runs, it may refuse the certificate of its caller: was it revoked?"
    ));
    described.set_source(Arc::new(status));
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays = [0, 1, 2, 3, 5, 6, 7, u32::MAX].map(|n| BACKOFF.delay_after(n).as_secs());
        assert_eq!(delays, [0, 1, 2, 4, 16, 30, 30, 30]);
    }

    #[test]
    fn chance_takes_away_half_of_a_delay_at_most() {
        let mut backoff = BACKOFF;
        for failures in 1..1000 {
            let (full, delay) = (BACKOFF.delay_after(failures), backoff.next_delay());
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
        assert_eq!(backoff.failures(), 999);
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_that_the_server_named_is_waited_for_up_to_the_longest_one() {
        for (named, least, most) in [(0, 0, 1), (20, 20, 20), (3600, 30, 30)] {
            let status = status::overloaded("too many", Duration::from_secs(named));
            let (mut backoff, started) = (BACKOFF, tokio::time::Instant::now());
            backoff.wait_after(&status).await;
            let waited = started.elapsed();
            assert!((least..=most).contains(&waited.as_secs()), "{waited:?} of {named} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_reset_the_first_delay_comes_again() {
        let (mut backoff, started) = (BACKOFF, tokio::time::Instant::now());
        for _ in 0..9 {
            backoff.wait().await;
        }
        assert!(started.elapsed() > Duration::from_secs(60));
        backoff.reset();
        let started = tokio::time::Instant::now();
        backoff.wait().await;
        assert!(started.elapsed() <= Duration::from_secs(2));
    }

    #[test]
    fn a_broken_connection_is_unavailable_with_its_cause_and_an_answer_stays() {
        let cause = std::io::Error::other("the peer closed it");
        let broken = describe_broken(Status::from_error(Box::new(cause)));
        assert_eq!(broken.code(), Code::Unavailable);
        let expected = "the connection to the server broke: the peer closed it; ";
        assert!(broken.message().starts_with(expected), "{broken}");
        for answer in [Status::unknown("odd"), Status::not_found("x")] {
            assert_eq!(describe_broken(answer.clone()).message(), answer.message());
        }
    }
}
