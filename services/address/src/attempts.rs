//! Repeated attempts of a commit that other writers precede.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Error;

/// Attempts of a commit while others come first.
const MAX_ATTEMPTS: usize = 200;

/// The turns of the changes of a process that are repeated, one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<()>>);

/// The attempts of one change.
pub(crate) struct Attempts {
    turns: Turns,
    /// The turn of this change among those that are repeated.
    turn: Option<OwnedMutexGuard<()>>,
    count: usize,
}

impl Attempts {
    /// The first attempt.
    pub(crate) fn new(turns: &Turns) -> Self {
        Self { turns: turns.clone(), turn: None, count: 1 }
    }

    /// True if the change, which failed with `error`, is to be tried again. Waits for its turn.
    pub(crate) async fn may_repeat(&mut self, error: &Error) -> bool {
        if !error.is_conflict() || self.count >= MAX_ATTEMPTS {
            return false;
        }
        self.count += 1;
        if self.turn.is_none() {
            self.turn = Some(self.turns.0.clone().lock_owned().await);
        }
        true
    }
}
