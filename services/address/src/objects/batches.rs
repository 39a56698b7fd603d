//! Claims of several requests in one commit.
//!
//! The machines of a network have addresses in the same chunk of the tree. Concurrent claims of
//! them would conflict with each other, and wait for one commit after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tinwright::address::v1 as pb;
use tokio::sync::oneshot;

use crate::block::Block;
use crate::claims::Claims;

/// Maximum number of addresses in a commit. Each has a claim, and at most 3 new chunks for IPv4, or
/// 15 for IPv6. A commit with too many writes is refused, and its requests are made alone.
const MAX_ADDRESSES: usize = 16;

/// The claims of one request.
type Request = Vec<(Block, pb::Claim)>;

/// Claims that wait for the commit before theirs. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ClaimBatches {
    claims: Claims,
    shared: Arc<BatchQueue>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    waiting: Mutex<Vec<Waiting>>,
    /// Locked during a commit.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    /// Gets the revision of the commit.
    added: oneshot::Sender<i64>,
}

impl ClaimBatches {
    /// Adds to `claims`.
    pub(super) fn new(claims: Claims) -> Self {
        Self { claims, shared: Arc::default() }
    }

    /// Adds all claims of `request`, if their addresses are free. Returns the revision of the commit;
    /// none if an address may be taken, or if the commit failed.
    pub(super) async fn add(&self, request: Request) -> Option<i64> {
        if request.len() > MAX_ADDRESSES {
            return None;
        }
        let (added, revision) = oneshot::channel();
        self.waiting().push(Waiting { request, added });
        let batches = self.clone();
        // A task of its own: a caller that goes away does not take the claims of others with it.
        tokio::spawn(async move { batches.commit_next().await });
        revision.await.ok()
    }

    /// Commits the next batch once its turn comes. Each request starts one commit, so none is left.
    async fn commit_next(&self) {
        let _turn = self.shared.turn.lock().await;
        let batch = take_batch(&mut self.waiting());
        let (requests, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|it| (it.request, it.added)).unzip();
        if requests.is_empty() {
            return;
        }
        // Dropping the senders tells the requests that nothing was added.
        let Ok((change, added)) = self.claims.to_add_free(&requests).await else { return };
        let Ok(revision) = self.claims.records.commit(change).await else { return };
        for (waiting, _) in waiting.into_iter().zip(added).filter(|(_, added)| *added) {
            // A caller that went away leaves its claims, as a process that ended does.
            let _gone = waiting.send(revision.0.cast_signed());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the oldest requests out of `waiting`, as many as fit in a commit.
fn take_batch(waiting: &mut Vec<Waiting>) -> Vec<Waiting> {
    let mut addresses = 0;
    let fits = |it: &&Waiting| {
        addresses += it.request.len();
        addresses <= MAX_ADDRESSES
    };
    let count = waiting.iter().take_while(fits).count();
    waiting.drain(..count).collect()
}
