//! Following the services that own the records.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::OptionFuture;
use runtime::feed;
use tinwright::common::v1::View;
use tinwright::hardware::v1::WatchHardwareRequest;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1::WatchInstancesRequest;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::netboot::v1::WatchLeasesRequest;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tinwright::workflow::v1::WatchWorkflowsRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::cache::FleetCache;
use crate::fleet::Fleet;

/// The services whose records are followed.
#[derive(Clone, Debug)]
pub struct FleetFeeds {
    /// Of hardware.
    pub hardware: Channel,
    /// Of instances.
    pub instance: Channel,
    /// Of workflows, if an edge uses them.
    pub workflow: Option<Channel>,
    /// Of leases, if an edge uses them and somebody leases addresses.
    pub leases: Option<Channel>,
}

impl Fleet {
    /// Follows `feeds` until `stop`. If there is a `cache`, begins with it and keeps it up to date.
    pub async fn run(
        self: Arc<Self>,
        feeds: FleetFeeds,
        cache: Option<FleetCache>,
        stop: CancellationToken,
    ) -> Result<(), store::Error> {
        if feeds.leases.is_some() {
            self.expect_leases();
        }
        if let Some(cache) = &cache {
            cache.restore(&self, feeds.workflow.is_some()).await?;
            if feeds.leases.is_some() {
                cache.restore_leases(&self).await?;
            }
        }
        let FleetFeeds { hardware, instance, workflow, leases } = feeds;
        let (fleet, cache) = (&*self, cache.as_ref());
        tokio::join!(
            Box::pin(fleet.follow_hardware(hardware, cache, stop.clone())),
            Box::pin(fleet.follow_instances(instance, cache, stop.clone())),
            optional(workflow.map(|channel| fleet.follow_workflows(channel, cache, stop.clone()))),
            optional(leases.map(|channel| fleet.follow_leases(channel, cache, stop.clone()))),
            optional(cache.map(|cache| cache.run(stop.clone()))),
        );
        Ok(())
    }

    async fn follow_hardware(
        &self,
        channel: Channel,
        cache: Option<&FleetCache>,
        stop: CancellationToken,
    ) {
        let client = HardwareServiceClient::new(channel);
        let open = || {
            let request = WatchHardwareRequest { id: String::new(), view: View::Full.into() };
            let mut client = client.clone();
            async move { Ok(client.watch_hardware(request).await?.into_inner()) }
        };
        let take = |event| {
            cache.into_iter().for_each(|cache| cache.hardware(&event));
            self.hardware(event);
        };
        feed::follow("hardware", open, take, stop).await;
    }

    async fn follow_instances(
        &self,
        channel: Channel,
        cache: Option<&FleetCache>,
        stop: CancellationToken,
    ) {
        let client = InstanceServiceClient::new(channel);
        let open = || {
            let request = WatchInstancesRequest { id: String::new(), view: View::Full.into() };
            let mut client = client.clone();
            async move { Ok(client.watch_instances(request).await?.into_inner()) }
        };
        let take = |event| {
            cache.into_iter().for_each(|cache| cache.instance(&event));
            self.instance(event);
        };
        feed::follow("instance", open, take, stop).await;
    }

    async fn follow_workflows(
        &self,
        channel: Channel,
        cache: Option<&FleetCache>,
        stop: CancellationToken,
    ) {
        let client = WorkflowServiceClient::new(channel);
        let open = || {
            let mut client = client.clone();
            async move {
                Ok(client.watch_workflows(WatchWorkflowsRequest::default()).await?.into_inner())
            }
        };
        let take = |event| {
            cache.into_iter().for_each(|cache| cache.workflow(&event));
            self.workflow(event);
        };
        feed::follow("workflow", open, take, stop).await;
    }

    async fn follow_leases(
        &self,
        channel: Channel,
        cache: Option<&FleetCache>,
        stop: CancellationToken,
    ) {
        let client = LeaseServiceClient::new(channel);
        let open = || {
            let mut client = client.clone();
            async move { Ok(client.watch_leases(WatchLeasesRequest::default()).await?.into_inner()) }
        };
        let take = |event| {
            cache.into_iter().for_each(|cache| cache.lease(&event));
            self.lease(event);
        };
        feed::follow("lease", open, take, stop).await;
    }
}

/// Runs `work` if there is any.
fn optional<F: Future>(work: Option<F>) -> OptionFuture<std::pin::Pin<Box<F>>> {
    work.map(Box::pin).into()
}
