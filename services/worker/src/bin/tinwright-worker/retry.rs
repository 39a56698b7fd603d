//! When to try again: soon at first, then every few seconds, for as long as it takes.
//!
//! The control plane may be killed and come back, and the machine has nothing better to do than to wait for it. Only an
//! answer that will not change by asking again ends the asking.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tonic::{Code, Status};

/// Before the second try; doubled before each one after it.
const FIRST: Duration = Duration::from_millis(250);
/// Between two tries at most: well inside a lease, so that a server that is back hears of us before it gives up on us.
const LONGEST: Duration = Duration::from_secs(8);
/// Of how many failures in a row one is said aloud.
const ALOUD: u32 = 10;
/// Between two tries at what has been refused, or between two times of saying so.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// What an error's code asks us to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask again: the server is away, busy, or being mended.
    Later,
    /// Do not: the answer will be the same.
    Never,
}

/// What to do about `code`. What is not a clear refusal may pass: giving up would lose work, asking costs nothing.
pub(crate) fn verdict(code: Code) -> Verdict {
    match code {
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Verdict::Later,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange => Verdict::Never,
    }
}

/// The pauses between tries that fail.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Waits until it is time for the next try. `error` is said aloud at first, and then about once a minute.
    pub(crate) async fn wait(&mut self, doing: &str, error: &(dyn std::error::Error + 'static)) {
        let failures = self.failures;
        if failures.is_multiple_of(ALOUD) {
            tracing::warn!(
                doing,
                error,
                failures,
                "no success; trying again for as long as it takes"
            );
        } else {
            tracing::debug!(doing, error, failures, "no success yet");
        }
        // A fresh hasher has keys of its own: chance enough for this.
        let [draw, ..] = RandomState::new().hash_one(self.failures).to_le_bytes();
        tokio::time::sleep(pause(self.failures, draw)).await;
        self.failures = self.failures.saturating_add(1);
    }

    /// It worked: the next failure is a first one.
    pub(crate) fn healed(&mut self, doing: &str) {
        if self.failures > 0 {
            tracing::info!(doing, failures = self.failures, "done at last");
        }
        self.failures = 0;
    }
}

/// The pause after so many failures in a row. `draw` takes away up to half of it, so that a rack of machines does not
/// come back to a server in one moment.
fn pause(failures: u32, draw: u8) -> Duration {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST);
    doubled.mul_f64(1.0 - f64::from(draw) / 512.0)
}

/// Makes `call` until it is answered, or refused for good.
pub(crate) async fn answered<T>(
    doing: &str,
    mut call: impl AsyncFnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Err(status) if verdict(status.code()) == Verdict::Later => {
                backoff.wait(doing, &status).await;
            }
            answer => {
                backoff.healed(doing);
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_chance_halves_them_at_most() {
        let pauses: Vec<_> = (0..8).map(|failures| pause(failures, 0).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert!(pause(u32::MAX, u8::MAX) >= LONGEST / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_made_until_the_server_is_back() {
        let mut tries = 0;
        let answer = answered("test", async || {
            tries += 1;
            if tries < 50 { Err(Status::unavailable("away")) } else { Ok(tries) }
        });
        assert_eq!(answer.await.unwrap(), 50);
    }

    #[tokio::test]
    async fn a_refusal_ends_the_asking() {
        let mut tries = 0;
        let answer: Result<(), _> = answered("test", async || {
            tries += 1;
            Err(Status::permission_denied("no"))
        })
        .await;
        assert_eq!((answer.unwrap_err().code(), tries), (Code::PermissionDenied, 1));
    }
}
