//! Limits on log lines that strangers can cause: one line a second, with the number of events since the last one.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::rate_limit::{Rate, TokenBucket};

/// Limits the lines about one kind of event, so that a flood of them neither fills the disk nor hides other lines.
#[derive(Debug)]
pub struct LimitedLog(Mutex<Events>);

#[derive(Debug)]
struct Events {
    lines: TokenBucket,
    /// The number since the last line.
    count: u64,
}

impl Default for LimitedLog {
    fn default() -> Self {
        Self(Mutex::new(Events { lines: TokenBucket::new(Rate::per_second(1)), count: 0 }))
    }
}

impl LimitedLog {
    /// Counts an event at `now`. Returns the number of events since the last line, this one included, if a line is to be written.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.count += 1;
        events.lines.take(now).is_ok().then(|| std::mem::take(&mut events.count))
    }
}

/// Returns the beginning of a text of a stranger: at most `max_bytes` of it.
pub fn beginning(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn there_is_one_line_a_second_with_the_number_of_events_since_the_last() {
        let (log, start) = (LimitedLog::default(), Instant::now());
        let at = |millis| log.count(start + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(0), at(999), at(1000), at(1500), at(9000)],
            [Some(1), None, None, Some(3), None, Some(2)]
        );
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((beginning("aä", 2), beginning("aä", 3), beginning("aä", 9)), ("a", "aä", "aä"));
    }
}
