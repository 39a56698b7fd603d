//! Reports new boots to the workflow service, and updates the metrics of the feeds.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use tinwright::workflow::v1::NoteBootRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::machine_view::Index;
use crate::metrics::Metrics;

/// The time between two updates of the metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// The services that netboot reports to.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The hardware service, which removes one-shot scripts.
    pub hardware: Channel,
    /// The instance service, which takes phone-home calls and the scripts that ran.
    pub instance: Channel,
    /// The workflow service, which takes new boots.
    pub workflow: Channel,
}

/// Reports new boots to the workflow service.
pub(super) async fn note_boots(workflow: Channel, mut signs: mpsc::Receiver<String>) {
    let mut client = WorkflowServiceClient::new(workflow);
    while let Some(hardware_id) = signs.recv().await {
        if let Err(status) = client.note_boot(NoteBootRequest { hardware_id }).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }
}

/// Updates the metrics of `index` once a second. Never resolves.
pub(super) async fn update_metrics(index: Arc<Index>, metrics: Metrics, clock: Clock) {
    let (mut tick, mut live) = (tokio::time::interval(METRICS_INTERVAL), clock.monotonic());
    loop {
        tick.tick().await;
        let (now, disconnected) = (clock.monotonic(), index.disconnected_feeds());
        if disconnected.is_empty() {
            live = now;
        }
        metrics.feeds(
            index.read().machines().len(),
            &disconnected,
            now.saturating_duration_since(live),
        );
    }
}
