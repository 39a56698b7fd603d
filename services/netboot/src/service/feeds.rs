//! Following the services that own what netboot answers from, and telling them of new boots.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runtime::feed;
use tinwright::common::v1::View;
use tinwright::hardware::v1::{
    WatchHardwareRequest, hardware_service_client::HardwareServiceClient,
};
use tinwright::instance::v1::{
    WatchInstancesRequest, instance_service_client::InstanceServiceClient,
};
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tinwright::workflow::v1::{NoteBootRequest, WatchWorkflowsRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::Tasks;
use crate::bootscripts::BootScripts;
use crate::copies::Told;
use crate::index::Index;
use crate::metrics::Metrics;

/// How often what is known is counted.
const COUNTING: Duration = Duration::from_secs(1);

/// The services netboot is told by.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Of hardware.
    pub hardware: Channel,
    /// Of instances.
    pub instance: Channel,
    /// Of workflows; told of new boots, too.
    pub workflow: Channel,
}

/// Keeps `all` told by `sources` until `stop`; `boots` notes who called home, and forgets who is gone.
pub(super) fn follow(
    sources: &Sources,
    all: &Told,
    boots: Arc<BootScripts>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) {
    let view = View::Full.into();
    let (client, told, until) =
        (HardwareServiceClient::new(sources.hardware.clone()), all.clone(), stop.clone());
    let noted = boots.clone();
    tasks.spawn(async move {
        let open = || {
            let (mut client, request) =
                (client.clone(), WatchHardwareRequest { view, ..Default::default() });
            async move { Ok(client.watch_hardware(request).await?.into_inner()) }
        };
        let tell = |news| {
            noted.evict(&news);
            told.hardware(news);
        };
        feed::follow("hardware", open, tell, until).await;
        Ok(())
    });
    let (client, told, until) =
        (InstanceServiceClient::new(sources.instance.clone()), all.clone(), stop.clone());
    tasks.spawn(async move {
        let open = || {
            let (mut client, request) =
                (client.clone(), WatchInstancesRequest { view, ..Default::default() });
            async move { Ok(client.watch_instances(request).await?.into_inner()) }
        };
        let tell = |news| {
            boots.record_phone_home(&news, SystemTime::now());
            told.instance(news);
        };
        feed::follow("instance", open, tell, until).await;
        Ok(())
    });
    let (client, told, until) =
        (WorkflowServiceClient::new(sources.workflow.clone()), all.clone(), stop.clone());
    tasks.spawn(async move {
        let open = || {
            let (mut client, request) = (client.clone(), WatchWorkflowsRequest::default());
            async move { Ok(client.watch_workflows(request).await?.into_inner()) }
        };
        feed::follow("workflow", open, |news| told.workflow(news), until).await;
        Ok(())
    });
}

/// Tells the workflow service which machines show themselves in a new boot.
pub(super) async fn note_boots(workflow: Channel, mut signs: mpsc::Receiver<String>) {
    let mut client = WorkflowServiceClient::new(workflow);
    while let Some(hardware_id) = signs.recv().await {
        if let Err(status) = client.note_boot(NoteBootRequest { hardware_id }).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }
}

/// Counts what `index` knows, for ever.
pub(super) async fn count(index: &Index, metrics: &Metrics) {
    let (mut tick, mut live) = (tokio::time::interval(COUNTING), Instant::now());
    loop {
        let now = tick.tick().await.into_std();
        let cut = index.cut();
        if cut.is_empty() {
            live = now;
        }
        metrics.feeds(index.machines(), &cut, now.saturating_duration_since(live));
    }
}
