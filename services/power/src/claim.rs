//! Claims: of several processes, one carries out a machine's jobs.
//!
//! ```text
//! free ──claim──▶ held ──renew, with every commit──▶ held ──release──▶ free
//!                  └──not renewed for a whole term, by the clock of another process──▶ claimed by that process
//! ```
//!
//! A claim is part of the machine's queue: its holder, and a number that changes with every renewal. Clocks of processes are
//! never compared: a process takes over a claim that has not changed for the term since the process first read it. A holder
//! that lost its claim notices before its next request to the BMC, because each request is first committed to the queue,
//! which has changed meanwhile.

use std::time::{Duration, Instant};

use crate::stored::Claim;

/// The claim on one machine as this process sees it.
#[derive(Debug, Default)]
pub struct ClaimView {
    /// The claim of another process, and the time since which it is unchanged.
    other: Option<(Claim, Instant)>,
}

/// The owner of a machine's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOwner {
    /// This process.
    ThisProcess,
    /// No process: it may be claimed.
    Nobody,
    /// Another process.
    OtherProcess,
}

impl ClaimView {
    /// Returns the owner at `now` of a queue with `claim`. `process` is the name of this process.
    pub fn owner(
        &mut self,
        claim: Option<&Claim>,
        process: &str,
        term: Duration,
        now: Instant,
    ) -> ClaimOwner {
        let Some(claim) = claim else { return ClaimOwner::Nobody };
        if claim.holder == process {
            return ClaimOwner::ThisProcess;
        }
        if !self.other.as_ref().is_some_and(|(other, _)| other == claim) {
            self.other = Some((claim.clone(), now));
        }
        match self.other {
            Some((_, since)) if now.saturating_duration_since(since) >= term => ClaimOwner::Nobody,
            Some(_) | None => ClaimOwner::OtherProcess,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Queue;

    const TERM: Duration = Duration::from_secs(60);

    fn claim(holder: &str, revision: i64) -> Claim {
        Claim::new(holder, &Queue { revision, ..Queue::default() })
    }

    #[test]
    fn another_process_claim_lapses_only_after_a_whole_term_without_renewal() {
        let (mut view, start) = (ClaimView::default(), Instant::now());
        for minute in 0..10 {
            let (claim, now) = (claim("a", minute.into()), start + TERM * minute);
            assert_eq!(view.owner(Some(&claim), "b", TERM, now), ClaimOwner::OtherProcess);
            let almost = now + TERM - Duration::from_millis(1);
            assert_eq!(view.owner(Some(&claim), "b", TERM, almost), ClaimOwner::OtherProcess);
        }
        let (claim, last) = (claim("a", 10), start + TERM * 20);
        assert_eq!(view.owner(Some(&claim), "b", TERM, last), ClaimOwner::OtherProcess);
        assert_eq!(view.owner(Some(&claim), "b", TERM, last + TERM), ClaimOwner::Nobody);
    }

    #[test]
    fn an_own_claim_and_a_free_queue_are_recognized_at_once() {
        let (mut view, now) = (ClaimView::default(), Instant::now());
        assert_eq!(view.owner(Some(&claim("a", 1)), "a", TERM, now), ClaimOwner::ThisProcess);
        assert_eq!(view.owner(None, "a", TERM, now), ClaimOwner::Nobody);
    }
}
