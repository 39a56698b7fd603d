//! A queue of keys to be worked on, as reconcilers need it.
//!
//! ```text
//! add(key) ─▶ due ─▶ running, one task for a key ─┬─ Done ────────▶ forgotten
//!              ▲                                  ├─ Again ───────▶ due at once
//!              └──────────────────────────────────┼─ After(delay) ▶ due later
//!                                                 └─ Failed ──────▶ due after a backoff, longer with each failure
//! ```
//!
//! A key that is added while it is due stays due once, at the earlier time. One that is added while it is running is due
//! again as soon as its task ends, unless that fails: then what was added meanwhile waits for the retry.
//!
//! The queue is driven by the loop that also reads what the keys come from:
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn next_change() -> String { String::new() }
//! # async fn reconcile(id: String) -> runtime::work_queue::Outcome { runtime::work_queue::Outcome::Done }
//! # async fn example(stop: tokio_util::sync::CancellationToken) {
//! use runtime::retry::Backoff;
//! use runtime::work_queue::WorkQueue;
//!
//! let mut queue = WorkQueue::new(Backoff::new(Duration::from_secs(1), Duration::from_secs(60)), 32);
//! loop {
//!     tokio::select! {
//!         () = stop.cancelled() => break,
//!         id = next_change() => queue.add(id),
//!         () = queue.drive(reconcile) => {}
//!     }
//! }
//! queue.drain().await; // or abort(), where the next start finds what was left
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use tokio::task::{Id, JoinError, JoinSet};

use crate::clock::{Clock, sleep_until};
use crate::retry::Backoff;

/// The result of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until the key is added again.
    Done,
    /// There is more to do at once.
    Again,
    /// The key is to be worked on after this time at the latest.
    After(Duration),
    /// The task failed, and is to be repeated after a backoff. The task has logged the reason.
    Failed,
}

/// Keys and the tasks that work on them.
#[derive(Debug)]
pub struct WorkQueue<K> {
    schedule: Schedule<K>,
    tasks: JoinSet<Outcome>,
    running: HashMap<Id, K>,
    max_tasks: usize,
}

impl<K: Ord + Clone + Debug> WorkQueue<K> {
    /// An empty queue that retries with `backoff`, and works on at most `max_tasks` keys at a time.
    pub fn new(backoff: Backoff, max_tasks: usize) -> Self {
        let (tasks, running) = Default::default();
        Self { schedule: Schedule::new(backoff), tasks, running, max_tasks }
    }

    /// Adds `key`, due at once.
    pub fn add(&mut self, key: K) {
        self.add_after(key, Duration::ZERO);
    }

    /// Adds `key`, due after `delay`, unless it is due earlier already.
    pub fn add_after(&mut self, key: K, delay: Duration) {
        self.schedule.add(key, Clock::system().monotonic() + delay);
    }

    /// Starts `work` for each key that is due, collects results, and waits for more of both. Resolves never; it may be
    /// dropped at any point and called again, which starts what was added in between.
    pub async fn drive<F>(&mut self, mut work: impl FnMut(K) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        loop {
            while self.tasks.len() < self.max_tasks
                && let Some(key) = self.schedule.take(Clock::system().monotonic())
            {
                let task = self.tasks.spawn(work(key.clone()));
                self.running.insert(task.id(), key);
            }
            let due = self.schedule.next_due().filter(|_| self.tasks.len() < self.max_tasks);
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.finish(ended),
                () = sleep_until(due) => {}
            }
        }
    }

    /// Waits for the tasks that are running. Starts no other.
    pub async fn drain(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.finish(ended);
        }
    }

    /// Aborts the tasks that are running.
    pub async fn abort(&mut self) {
        self.tasks.shutdown().await;
        self.running.clear();
    }

    fn finish(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (task, outcome) = ended.unwrap_or_else(|error| {
            // A panic is a bug; it is repeated like any failure, so that one key cannot end the work on all others.
            tracing::error!(error = crate::cause(&error), "a task panicked or was aborted");
            (error.id(), Outcome::Failed)
        });
        if let Some(key) = self.running.remove(&task) {
            self.schedule.finish(key, outcome, Clock::system().monotonic());
        }
    }
}

/// The keys that are due, and those that are being worked on; pure.
#[derive(Debug)]
struct Schedule<K> {
    backoff: Backoff,
    entries: BTreeMap<K, Entry>,
    due: BTreeSet<(Instant, K)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// None while a task works on the key.
    due: Option<Instant>,
    /// When the key is due again that was added while a task works on it.
    again: Option<Instant>,
    failures: u32,
}

impl<K: Ord + Clone> Schedule<K> {
    fn new(backoff: Backoff) -> Self {
        let (entries, due) = Default::default();
        Self { backoff, entries, due }
    }

    fn add(&mut self, key: K, at: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.set_due(key, at, 0);
        };
        match entry.due {
            None => entry.again = Some(entry.again.map_or(at, |earlier| earlier.min(at))),
            Some(due) if due <= at => {}
            Some(due) => {
                let failures = entry.failures;
                let old = (due, key);
                self.due.remove(&old);
                self.set_due(old.1, at, failures);
            }
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        (entry.due, entry.again) = (None, None);
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn finish(&mut self, key: K, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.remove(&key) else { return };
        let (due, failures) = match outcome {
            Outcome::Done => (entry.again, 0),
            Outcome::Again => (Some(now), 0),
            Outcome::After(delay) => {
                (Some(entry.again.map_or(now + delay, |again| again.min(now + delay))), 0)
            }
            // What was added meanwhile would fail as well: it waits with the rest.
            Outcome::Failed => {
                let failures = entry.failures.saturating_add(1);
                (Some(now + self.backoff.delay_after(failures)), failures)
            }
        };
        if let Some(due) = due {
            self.set_due(key, due, failures);
        }
    }

    fn set_due(&mut self, key: K, at: Instant, failures: u32) {
        self.due.insert((at, key.clone()));
        self.entries.insert(key, Entry { due: Some(at), again: None, failures });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BACKOFF: Backoff = Backoff::new(SECOND, Duration::from_secs(60));

    fn schedule() -> (Schedule<&'static str>, Instant) {
        let (mut schedule, now) = (Schedule::new(BACKOFF), Instant::now());
        schedule.add("a", now);
        assert_eq!(schedule.take(now), Some("a"));
        (schedule, now)
    }

    #[test]
    fn a_key_is_taken_once_and_again_if_it_was_added_meanwhile() {
        let (mut schedule, now) = schedule();
        schedule.add("a", now);
        assert_eq!(schedule.take(now), None);
        schedule.finish("a", Outcome::Done, now);
        assert_eq!(schedule.take(now), Some("a"));
        schedule.finish("a", Outcome::Done, now);
        assert_eq!((schedule.take(now), schedule.next_due()), (None, None));
        assert!(schedule.entries.is_empty());
    }

    #[test]
    fn a_waiting_key_is_due_at_the_earliest_time_it_was_added_for() {
        let (mut schedule, now) = schedule();
        schedule.finish("a", Outcome::After(9 * SECOND), now);
        assert_eq!((schedule.take(now), schedule.next_due()), (None, Some(now + 9 * SECOND)));
        schedule.add("a", now + SECOND);
        schedule.add("a", now + 5 * SECOND);
        assert_eq!(schedule.next_due(), Some(now + SECOND));
    }

    #[test]
    fn failures_delay_a_key_longer_each_time_until_one_task_succeeds() {
        let (mut schedule, mut now) = schedule();
        let mut delays = Vec::new();
        for _ in 0..8 {
            schedule.add("a", now);
            schedule.finish("a", Outcome::Failed, now);
            let next = schedule.next_due().unwrap();
            delays.push((next - now).as_secs());
            now = next;
            assert_eq!(schedule.take(now), Some("a"));
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        schedule.finish("a", Outcome::Again, now);
        assert_eq!(schedule.take(now), Some("a"));
        schedule.finish("a", Outcome::Failed, now);
        assert_eq!(schedule.next_due(), Some(now + SECOND));
    }

    /// Drives a queue of `max_tasks` for some seconds. Each task takes a second; returns when which of them began.
    async fn began(mut queue: WorkQueue<&'static str>, seconds: u32) -> Vec<(&'static str, u64)> {
        let (log, start) = (Arc::new(Mutex::new(Vec::new())), tokio::time::Instant::now());
        let work = |key| {
            log.lock().unwrap().push((key, start.elapsed().as_secs()));
            let first = log.lock().unwrap().len() == 1;
            async move {
                tokio::time::sleep(SECOND).await;
                assert!(key != "panics" || !first, "on purpose");
                Outcome::Done
            }
        };
        let _over = tokio::time::timeout(SECOND * seconds, queue.drive(work)).await;
        queue.drain().await;
        let log = log.lock().unwrap();
        log.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_keys_are_worked_on_at_a_time_than_allowed() {
        let mut queue = WorkQueue::new(BACKOFF, 2);
        ["a", "b", "c"].into_iter().for_each(|key| queue.add(key));
        queue.add_after("d", 3 * SECOND);
        assert_eq!(began(queue, 9).await, [("a", 0), ("b", 0), ("c", 1), ("d", 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_repeated_after_a_delay() {
        let mut queue = WorkQueue::new(BACKOFF, 2);
        queue.add("panics");
        assert_eq!(began(queue, 9).await, [("panics", 0), ("panics", 2)]);
    }
}
