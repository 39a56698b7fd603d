//! Tests of whole nodes over a kernel that is simulated.

mod calls;
mod collection;
mod containers;
mod counts;
mod crash;
mod creation;
mod deletion;
mod fake;
mod load;
mod model;
mod recovery;
pub(crate) mod requests;

use std::sync::Arc;

use runtime::clock::Clock;
use tempfile::TempDir;

pub(crate) use crash::{CrashPoint, pass};
pub(crate) use fake::FakeKernel;

use crate::kernel::Kernel;
use crate::{Node, NodeOptions};

/// A journal in a directory of its own, and a kernel. Both survive nodes.
pub(crate) struct Bench {
    pub(crate) kernel: Arc<FakeKernel>,
    pub(crate) options: NodeOptions,
    _dir: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        // In memory if possible: the tests write a lot of small batches.
        let shared_memory = std::path::Path::new("/dev/shm");
        let dir = match shared_memory.is_dir() {
            true => tempfile::tempdir_in(shared_memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let options = NodeOptions::new(dir.path().join("journal"));
        Self { kernel: Arc::default(), options, _dir: dir }
    }

    pub(crate) async fn open(&self) -> Node {
        let kernel = Kernel { storage: self.kernel.clone(), containers: self.kernel.clone() };
        Node::open(self.options.clone(), kernel, Clock::system()).await.unwrap()
    }

    /// Opens the node after the end of an earlier one, whose journal may still be open for a moment.
    pub(crate) async fn reopen(&self) -> Node {
        loop {
            let kernel = Kernel { storage: self.kernel.clone(), containers: self.kernel.clone() };
            match Node::open(self.options.clone(), kernel, Clock::system()).await {
                Ok(node) => return node,
                Err(crate::OpenError::InUse(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
