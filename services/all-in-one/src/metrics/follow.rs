//! Follows the watches of the services whose objects are counted.

use futures_util::future::OptionFuture;
use runtime::feed::{self, FeedEvent};
use runtime::telemetry::MachineNames;
use runtime::{Channel, Clock};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{Hardware, WatchHardwareRequest};
use tinwright::instance::v1::WatchInstancesRequest;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::power::v1::WatchPowerJobsRequest;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::watch::WatchResponse;
use tinwright::workflow::v1::WatchWorkflowsRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, Streaming};

use super::ObjectMetrics;
use super::objects::{Noun, Observed};

/// Channels to the followed services; none for those of other processes.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFeeds {
    pub(crate) hardware: Option<Channel>,
    pub(crate) workflow: Option<Channel>,
    pub(crate) instance: Option<Channel>,
    pub(crate) power: Option<Channel>,
}

impl ObjectMetrics {
    /// Follows `feeds` until `stop`, and keeps the `names` of machines.
    pub(crate) async fn run(
        self,
        feeds: ObjectFeeds,
        names: MachineNames,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let ObjectFeeds { hardware, workflow, instance, power } = feeds;
        let hardware = hardware.map(|channel| {
            let open = move || {
                let mut client = HardwareServiceClient::new(channel.clone());
                async move { client.watch_hardware(WatchHardwareRequest::default()).await }
            };
            let rename = move |event: &FeedEvent<Hardware>| take_names(&names, event);
            self.follow(Noun::Hardware, "hardware", open, rename, &stop)
        });
        let workflows = workflow.map(|channel| {
            let open = move || {
                let mut client = WorkflowServiceClient::new(channel.clone());
                let live = WatchWorkflowsRequest { only_live: true, ..Default::default() };
                async move { client.watch_workflows(live).await }
            };
            self.follow(Noun::Workflow, "workflow", open, |_| {}, &stop)
        });
        let instances = instance.map(|channel| {
            let open = move || {
                let mut client = InstanceServiceClient::new(channel.clone());
                async move { client.watch_instances(WatchInstancesRequest::default()).await }
            };
            self.follow(Noun::Instance, "instance", open, |_| {}, &stop)
        });
        let power_jobs = power.map(|channel| {
            let open = move || {
                let mut client = PowerServiceClient::new(channel.clone());
                async move { client.watch_power_jobs(WatchPowerJobsRequest::default()).await }
            };
            self.follow(Noun::PowerJob, "power job", open, |_| {}, &stop)
        });
        tokio::join!(
            OptionFuture::from(hardware),
            OptionFuture::from(workflows),
            OptionFuture::from(instances),
            OptionFuture::from(power_jobs)
        );
        stop.cancelled().await;
        Ok(())
    }

    async fn follow<W: WatchResponse, F>(
        &self,
        noun: Noun,
        name: &'static str,
        open: impl Fn() -> F,
        look: impl Fn(&FeedEvent<W::Object>),
        stop: &CancellationToken,
    ) where
        W::Object: Observed,
        F: Future<Output = Result<Response<Streaming<W>>, Status>>,
    {
        let open = || {
            let response = open();
            async { Ok(response.await?.into_inner()) }
        };
        let take = |event: FeedEvent<W::Object>| {
            look(&event);
            self.take(noun, event, Clock::system().wall());
        };
        feed::follow(name, open, take, stop.clone()).await;
    }
}

/// Takes the names of machines from `event`.
fn take_names(names: &MachineNames, event: &FeedEvent<Hardware>) {
    match event {
        FeedEvent::Snapshot(all) => names.replace(all.iter().map(|it| (&*it.id, &*it.name))),
        FeedEvent::Put(machine) => names.set(&machine.id, &machine.name),
        FeedEvent::Deleted(id) => names.set(id, ""),
        FeedEvent::Disconnected => {}
    }
}
