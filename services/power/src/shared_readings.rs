//! Readings for callers: one at a time of each key, with one result for all who wait for it.
//!
//! A BMC allows few sessions. So a reading is a task of its own, which logs out even if its callers are gone, and calls that
//! come in quick succession cause one reading a second.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// The pause between two readings of a key.
const READING_INTERVAL: Duration = Duration::from_secs(1);

/// The readings that are running or have just ended; none: no result yet.
type Readings<K, T> = HashMap<K, watch::Receiver<Option<T>>>;

/// Readings of the keys `K`, with results `T`.
#[derive(Clone, Debug)]
pub(crate) struct SharedReadings<K, T> {
    readings: Arc<Mutex<Readings<K, T>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl<K, T> SharedReadings<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// No readings. After `stop` there are no pauses.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { readings: Arc::default(), tasks: TaskTracker::new(), stop }
    }

    /// Returns the result of the running reading of `key`, or of `read`, which begins when the pause after the previous reading
    /// is over. Returns none if the reading panicked.
    pub(crate) async fn get<F>(&self, key: &K, read: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        loop {
            let mut reading = self.current(key, &read);
            if reading.borrow().is_none() {
                return reading.wait_for(Option::is_some).await.ok()?.clone();
            }
            // This reading ended before the call, which may have followed a change. Its sender is dropped after the pause.
            while reading.changed().await.is_ok() {}
        }
    }

    /// Waits for the running readings.
    pub(crate) async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns the latest reading of `key`, or starts one if that and its pause are over.
    fn current<F>(&self, key: &K, read: impl Fn() -> F) -> watch::Receiver<Option<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut readings = lock(&self.readings);
        // An error means that the sender is gone: the task panicked.
        if let Some(reading) = readings.get(key).filter(|reading| reading.has_changed().is_ok()) {
            return reading.clone();
        }
        let (sender, reading) = watch::channel(None);
        readings.insert(key.clone(), reading.clone());
        let (result, key, shared) = (read(), key.clone(), self.clone());
        let task = async move {
            sender.send_replace(Some(result.await));
            shared.stop.run_until_cancelled(tokio::time::sleep(READING_INTERVAL)).await;
            lock(&shared.readings).remove(&key);
        };
        self.tasks.spawn(task.in_current_span());
        reading
    }
}

// The map is consistent between any two statements that use it, so a panic elsewhere does not damage it.
fn lock<K, T>(readings: &Mutex<Readings<K, T>>) -> MutexGuard<'_, Readings<K, T>> {
    readings.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::time::{Instant, sleep, timeout};

    /// The duration of a reading in these tests.
    const READING: Duration = Duration::from_secs(5);

    /// Readings, each with the seconds since the start at which it began as its result.
    struct Rig {
        readings: SharedReadings<&'static str, u64>,
        /// The results of the readings that have ended, in order.
        results: Arc<Mutex<Vec<u64>>>,
        start: Instant,
    }

    impl Rig {
        fn new() -> Self {
            let readings = SharedReadings::new(CancellationToken::new());
            Self { readings, results: Arc::default(), start: Instant::now() }
        }

        /// The result of a call for `key` that is made `delay` from now.
        async fn call(&self, key: &'static str, delay: Duration) -> Option<u64> {
            sleep(delay).await;
            let (results, start) = (self.results.clone(), self.start);
            let read = || {
                let results = results.clone();
                async move {
                    let began = start.elapsed().as_secs();
                    sleep(READING).await;
                    assert!(key != "panics" || began > 0, "on purpose");
                    results.lock().unwrap().push(began);
                    began
                }
            };
            self.readings.get(&key, read).await
        }

        fn results(&self) -> Vec<u64> {
            self.results.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_share_a_reading_and_the_next_one_begins_a_second_after_its_end() {
        let rig = Rig::new();
        let calls = [0, 4_900, 5_100, 10_000].map(Duration::from_millis);
        let [a, b, c, d] = calls.map(|delay| rig.call("a", delay));
        assert_eq!(tokio::join!(a, b, c, d), (Some(0), Some(0), Some(6), Some(6)));
        assert_eq!(rig.results(), [0, 6]);
        sleep(2 * READING_INTERVAL).await;
        assert!(lock(&rig.readings.readings).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_ends_without_its_callers_and_delays_no_other_key() {
        let rig = Rig::new();
        timeout(READING / 2, rig.call("a", Duration::ZERO)).await.unwrap_err();
        assert_eq!(rig.call("b", Duration::ZERO).await, Some(2));
        assert_eq!(rig.call("a", Duration::ZERO).await, Some(7));
        rig.readings.stop.cancel();
        rig.readings.drain().await;
        assert_eq!(rig.results(), [0, 2, 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_panics_has_no_result_and_does_not_prevent_the_next() {
        let rig = Rig::new();
        assert_eq!(rig.call("panics", Duration::ZERO).await, None);
        assert_eq!(rig.call("panics", Duration::ZERO).await, Some(5));
    }
}
