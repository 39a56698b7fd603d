//! Follows the services that own the records.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use prost::Message;
use runtime::Channel;
use runtime::feed::{self, FeedEvent};
use store::feed_cache::FeedCache;
use tinwright::common::v1::View;
use tinwright::hardware::v1::WatchHardwareRequest;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1::WatchInstancesRequest;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::netboot::v1::WatchLeasesRequest;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tinwright::watch::WatchResponse;
use tinwright::workflow::v1::WatchWorkflowsRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, Streaming};

use crate::cache::FleetCache;
use crate::fleet::Fleet;

/// Channels to the services whose records are followed.
#[derive(Clone, Debug)]
pub struct FleetFeeds {
    /// The hardware service.
    pub hardware: Channel,
    /// The instance service.
    pub instance: Channel,
    /// The workflow service, if an edge uses workflows.
    pub workflow: Option<Channel>,
    /// The lease service, if an edge uses leases and the site has pools.
    pub leases: Option<Channel>,
}

impl Fleet {
    /// Follows `feeds` until `stop`. With a `cache`, starts from its records and keeps it up to date.
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
            cache.restore(&self, feeds.workflow.is_some(), feeds.leases.is_some()).await?;
        }
        let follower = Follower { fleet: &self, cache: cache.as_ref(), stop: &stop };
        let write = cache.as_ref().map(|cache| cache.run(stop.clone()));
        tokio::join!(follower.follow_all(feeds), OptionFuture::from(write));
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Follower<'a> {
    fleet: &'a Fleet,
    cache: Option<&'a FleetCache>,
    stop: &'a CancellationToken,
}

impl Follower<'_> {
    async fn follow_all(self, feeds: FleetFeeds) {
        let watch_hardware = |channel| async move {
            let request = WatchHardwareRequest { view: View::Full.into(), ..Default::default() };
            HardwareServiceClient::new(channel).watch_hardware(request).await
        };
        let watch_instance = |channel| async move {
            let request = WatchInstancesRequest { view: View::Full.into(), ..Default::default() };
            InstanceServiceClient::new(channel).watch_instances(request).await
        };
        let watch_workflow = |channel| async move {
            let request = WatchWorkflowsRequest { only_live: true, ..Default::default() };
            WorkflowServiceClient::new(channel).watch_workflows(request).await
        };
        let watch_leases = |channel| async move {
            LeaseServiceClient::new(channel).watch_leases(WatchLeasesRequest::default()).await
        };
        let FleetFeeds { hardware, instance, workflow, leases } = feeds;
        let (hardware, instance) = (Some(hardware), Some(instance));
        tokio::join!(
            self.follow("hardware", hardware, watch_hardware, |all| &all.hardware, Fleet::hardware),
            self.follow("instance", instance, watch_instance, |all| &all.instance, Fleet::instance),
            self.follow("workflow", workflow, watch_workflow, |all| &all.workflow, Fleet::workflow),
            self.follow("lease", leases, watch_leases, |all| &all.lease, Fleet::lease),
        );
    }

    /// Opens a watch of the service at `channel`, if there is one, and passes its events to the cache and to `take`.
    async fn follow<W: WatchResponse, F>(
        self,
        noun: &'static str,
        channel: Option<Channel>,
        watch: impl Fn(Channel) -> F,
        cache: fn(&FleetCache) -> &FeedCache<W::Object>,
        take: fn(&Fleet, FeedEvent<W::Object>),
    ) where
        W::Object: Message + Default,
        F: Future<Output = Result<Response<Streaming<W>>, Status>>,
    {
        let Some(channel) = channel else { return };
        let open = || {
            let stream = watch(channel.clone());
            async { Ok(stream.await?.into_inner()) }
        };
        let take = |event| {
            self.cache.inspect(|all| cache(all).record(&event, self.fleet.clock.wall()));
            take(self.fleet, event);
        };
        Box::pin(feed::follow(noun, open, take, self.stop.clone())).await;
    }
}
