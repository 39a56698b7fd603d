//! Content that machines found to be wrong: it is read soon.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Maximum number of digests that wait.
const MAX_SUSPECTS: usize = 1000;

/// Content that a machine found to be wrong, until it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    waiting: Arc<Mutex<BTreeSet<String>>>,
    added: Arc<Notify>,
}

impl Suspects {
    /// Has the content `digest` read soon.
    pub(crate) fn add(&self, digest: &str) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_SUSPECTS {
            waiting.insert(digest.to_owned());
            self.added.notify_one();
        }
    }

    /// Returns the next content to read.
    pub(crate) fn take(&self) -> Option<String> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }

    /// Waits until there is content to read.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}
