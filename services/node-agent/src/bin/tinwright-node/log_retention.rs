//! Removal of the logs of containers that were deleted long ago.

use std::path::{Path, PathBuf};
use std::time::Duration;

use containers::log::remove_expired;
use node_agent::Node;
use runtime::clock::Clock;
use tokio_util::sync::CancellationToken;

/// The time between two removals.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Removes logs older than `retention` from `directory`, now and in intervals, until `stop`. Those of containers stay.
pub(crate) async fn run(
    directory: PathBuf,
    retention: Duration,
    node: Node,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let (used, directory) = (logs(&node), directory.clone());
        let now = Clock::system().wall();
        let removed =
            tokio::task::spawn_blocking(move || remove_expired(&directory, now, retention, &used));
        match removed.await? {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "logs of deleted containers were removed"),
            Err(error) => tracing::warn!(%error, "old logs were not removed"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            return Ok(());
        }
    }
}

fn logs(node: &Node) -> Vec<PathBuf> {
    let containers = node.snapshot().containers.into_iter();
    containers.map(|container| Path::new(&container.logfile).to_owned()).collect()
}
