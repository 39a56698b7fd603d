//! Which of several processes carries a machine's jobs out.
//!
//! ```text
//! nobody's ──take──▶ ours ──renew, with every commit──▶ ours ──leave──▶ nobody's
//!                     └──not renewed for its whole term, as another sees it──▶ another's
//! ```
//!
//! A claim lies in the machine's queue: its holder, and a mark that is another with every renewal. No clock is compared with
//! another: whoever finds a claim takes the machine over once the mark has stood still for the term, by its own clock, since
//! it first saw it. A holder that lost its claim finds out before its next question to the BMC, because what it is about to
//! ask is committed on the queue that another has written meanwhile.

use std::time::{Duration, Instant};

use crate::stored::{Claim, Queue};

/// What one process knows of the claim on one machine.
#[derive(Debug, Default)]
pub struct Sight {
    /// Another's claim, and since when it has stood still.
    other: Option<(Claim, Instant)>,
}

/// Whose a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This process carries its jobs out.
    Ours,
    /// Whoever takes it.
    Nobodys,
    /// Another process does.
    Anothers,
}

impl Sight {
    /// Whose the machine is at `now`, where its queue has `claim` and `us` is what this process is called.
    pub fn look(&mut self, claim: Option<&Claim>, us: &str, term: Duration, now: Instant) -> Whose {
        let Some(claim) = claim else { return Whose::Nobodys };
        if claim.holder == us {
            return Whose::Ours;
        }
        match &self.other {
            Some((seen, since)) if seen == claim => {
                let still = now.saturating_duration_since(*since);
                if still < term { Whose::Anothers } else { Whose::Nobodys }
            }
            _ => {
                self.other = Some((claim.clone(), now));
                Whose::Anothers
            }
        }
    }
}

impl Claim {
    /// That of the process `us`, in the place of what `queue` says.
    pub fn of(us: &str, queue: &Queue) -> Self {
        Self { holder: us.to_owned(), replaced: queue.revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(60);

    fn claim(holder: &str, revision: i64) -> Claim {
        Claim::of(holder, &Queue { revision, ..Queue::default() })
    }

    #[test]
    fn a_claim_that_is_renewed_is_never_taken_and_one_that_stands_still_is() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        for minute in 0..10 {
            let (claim, now) = (claim("a", minute.into()), start + TERM * minute);
            assert_eq!(sight.look(Some(&claim), "b", TERM, now), Whose::Anothers);
            let almost = now + TERM - Duration::from_millis(1);
            assert_eq!(sight.look(Some(&claim), "b", TERM, almost), Whose::Anothers);
        }
        let (claim, last) = (claim("a", 10), start + TERM * 20);
        assert_eq!(sight.look(Some(&claim), "b", TERM, last), Whose::Anothers);
        assert_eq!(sight.look(Some(&claim), "b", TERM, last + TERM), Whose::Nobodys);
    }

    #[test]
    fn who_has_it_goes_on_at_once_and_what_nobody_has_is_anybodys() {
        let (mut sight, now) = (Sight::default(), Instant::now());
        assert_eq!(sight.look(Some(&claim("a", 1)), "a", TERM, now), Whose::Ours);
        assert_eq!(sight.look(None, "a", TERM, now), Whose::Nobodys);
    }
}
