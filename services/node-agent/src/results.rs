//! The results of calls, so that a call that is repeated with its id is done once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tinwright::node::v1::ImageResult;
use tokio::sync::watch;

use crate::journal::CallRecord;

/// The results of calls that have ended, and the calls that are under way.
#[derive(Debug)]
pub(crate) struct Results {
    ended: BTreeMap<String, ImageResult>,
    /// The ids of the calls that have ended, with the end of each in seconds since 1970: the earliest first.
    order: VecDeque<(u64, String)>,
    running: BTreeMap<String, watch::Receiver<Option<ImageResult>>>,
    max: usize,
    lifetime: Duration,
}

/// A call that is about to begin.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
#[derive(Debug)]
pub(crate) enum Begun {
    /// It was done before.
    Ended(ImageResult),
    /// It is under way; its result comes here.
    Running(watch::Receiver<Option<ImageResult>>),
    /// It is new; its result goes here.
    New(watch::Sender<Option<ImageResult>>),
}

impl Results {
    /// Returns the results of the journal. At most `max` are kept, each for `lifetime`.
    pub(crate) fn new(records: Vec<CallRecord>, max: usize, lifetime: Duration) -> Self {
        let mut order: Vec<_> =
            records.iter().map(|record| (record.ended, record.call_id.clone())).collect();
        order.sort();
        let ended = records.into_iter().filter_map(|r| Some((r.call_id, r.result?))).collect();
        Self { ended, order: order.into(), running: BTreeMap::new(), max, lifetime }
    }

    /// Returns the result of the call `call_id`, if it has ended.
    pub(crate) fn get(&self, call_id: &str) -> Option<&ImageResult> {
        self.ended.get(call_id)
    }

    /// Begins the call `call_id`.
    pub(crate) fn begin(&mut self, call_id: &str) -> Begun {
        if let Some(result) = self.ended.get(call_id) {
            return Begun::Ended(result.clone());
        }
        if let Some(running) = self.running.get(call_id) {
            return Begun::Running(running.clone());
        }
        let (sender, receiver) = watch::channel(None);
        self.running.insert(call_id.to_owned(), receiver);
        Begun::New(sender)
    }

    /// Records the result of the call `call_id`. The first one counts.
    pub(crate) fn end(&mut self, call_id: &str, result: &ImageResult, now: u64) {
        self.running.remove(call_id);
        if !self.ended.contains_key(call_id) {
            self.ended.insert(call_id.to_owned(), result.clone());
            self.order.push_back((now, call_id.to_owned()));
        }
    }

    /// Drops the results that are too many or too old, and returns the ids of their calls.
    pub(crate) fn evict(&mut self, now: u64) -> Vec<String> {
        let mut evicted = Vec::new();
        while let Some((ended, _)) = self.order.front() {
            let is_old = now.saturating_sub(*ended) > self.lifetime.as_secs();
            if self.order.len() <= self.max && !is_old {
                break;
            }
            if let Some((_, call_id)) = self.order.pop_front() {
                self.ended.remove(&call_id);
                evicted.push(call_id);
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(results: &mut Results, call_id: &str, now: u64) -> Vec<String> {
        results.begin(call_id);
        results.end(call_id, &ImageResult::default(), now);
        results.evict(now)
    }

    #[test]
    fn results_are_bounded_in_number_and_age() {
        let mut results = Results::new(Vec::new(), 2, Duration::from_secs(60));
        assert!(end(&mut results, "a", 100).is_empty());
        assert!(end(&mut results, "b", 130).is_empty());
        assert_eq!(end(&mut results, "c", 140), ["a"]);
        assert!(matches!(results.begin("a"), Begun::New(_)));
        assert!(matches!(results.begin("b"), Begun::Ended(_)));
        assert_eq!(results.evict(191), ["b"]);
        assert!(matches!(results.begin("c"), Begun::Ended(_)));
    }

    #[test]
    fn a_call_under_way_is_not_begun_again() {
        let mut results = Results::new(Vec::new(), 2, Duration::from_secs(60));
        let Begun::New(_sender) = results.begin("a") else { panic!("not new") };
        assert!(matches!(results.begin("a"), Begun::Running(_)));
    }
}
