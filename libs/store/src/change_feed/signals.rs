//! Wakes the followers of a kind of key.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// A signal for each kind that somebody follows; none once the feed has ended. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct KindSignals(Arc<Mutex<Option<Signals>>>);

type Signals = HashMap<String, watch::Sender<()>>;

impl Default for KindSignals {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Signals::default()))))
    }
}

impl KindSignals {
    /// Returns the signal of `kind`, which is given after each commit from now on that writes such
    /// a key. Returns none if the feed has ended.
    pub(super) fn of(&self, kind: &str) -> Option<watch::Receiver<()>> {
        let mut signals = self.lock();
        let signals = signals.as_mut()?;
        let signal = signals.entry(kind.to_owned()).or_insert_with(|| watch::Sender::new(()));
        Some(signal.subscribe())
    }

    /// Wakes the followers of `kinds`.
    pub(super) fn wake(&self, kinds: &BTreeSet<&str>) {
        let signals = self.lock();
        let Some(signals) = &*signals else { return };
        kinds
            .iter()
            .filter_map(|kind| signals.get(*kind))
            .for_each(|signal| signal.send_replace(()));
    }

    /// Wakes all followers.
    pub(super) fn wake_all(&self) {
        self.lock().iter().flat_map(HashMap::values).for_each(|signal| signal.send_replace(()));
    }

    /// Ends the signals: followers that wait get an error.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Signals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
