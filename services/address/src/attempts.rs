//! Repeated attempts of a commit that other writers precede.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::Error;

/// Attempts of a commit while others come first.
const MAX_ATTEMPTS: usize = 200;

/// The turns of the changes of a process that are repeated, one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<()>>);

impl Turns {
    /// Makes `change`, and repeats it in its turn while other writers precede it.
    pub(crate) async fn repeat<T, F>(&self, change: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (mut turn, mut attempts) = (None, 1);
        loop {
            match change().await {
                Err(error) if error.is_conflict() && attempts < MAX_ATTEMPTS => attempts += 1,
                outcome => return outcome,
            }
            if turn.is_none() {
                turn = Some(self.0.lock().await);
            }
        }
    }
}
