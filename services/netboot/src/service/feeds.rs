//! Reports to the services that own the records, and metrics of their feeds.

use std::time::{Duration, Instant};

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
    /// Clears scripts that are for one boot.
    pub hardware: Channel,
    /// Takes phone-home calls and scripts that ran.
    pub instance: Channel,
    /// Takes machines that boot anew.
    pub workflow: Channel,
}

/// Reports machines that boot anew to the workflow service.
pub(super) async fn note_boots(workflow: Channel, mut signs: mpsc::Receiver<String>) {
    let mut client = WorkflowServiceClient::new(workflow);
    while let Some(hardware_id) = signs.recv().await {
        if let Err(status) = client.note_boot(NoteBootRequest { hardware_id }).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }
}

/// Updates the metrics of `index`, for ever.
pub(super) async fn update_metrics(index: &Index, metrics: &Metrics) {
    let (mut tick, mut live) = (tokio::time::interval(METRICS_INTERVAL), Instant::now());
    loop {
        let now = tick.tick().await.into_std();
        let cut = index.cut();
        if cut.is_empty() {
            live = now;
        }
        metrics.feeds(index.machines(), &cut, now.saturating_duration_since(live));
    }
}
