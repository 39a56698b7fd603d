//! Commits that other writers precede.

use store::records;

use crate::Error;

/// The repetitions of a commit that another writer preceded.
pub(crate) const MAX_REPETITIONS: usize = 16;

/// Repeats `attempt`, which reads what it changes, while other writers come first.
pub(crate) async fn retry<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    use records::Error::{Changed, Exists};
    for _ in 0..MAX_REPETITIONS {
        match attempt().await {
            Err(Error::Records(Changed { .. } | Exists { .. })) => {}
            result => return result,
        }
    }
    attempt().await
}
