//! Follows the services that own the records.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use prost::Message;
use runtime::Channel;
use runtime::feed::{self, FeedEvent};
use store::feed_cache::FeedCache;
use tinwright::client::Call;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as inst;
use tinwright::netboot::v1 as nb;
use tinwright::watch::WatchResponse;
use tinwright::workflow::v1 as wf;
use tokio_util::sync::CancellationToken;

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
        let FleetFeeds { hardware, instance, workflow, leases } = feeds;
        let (hardware, instance) = (Some(hardware), Some(instance));
        let view = View::Full.into();
        let machines = hw::WatchHardwareRequest { view, ..Default::default() };
        let instances = inst::WatchInstancesRequest { view, ..Default::default() };
        let workflows = wf::WatchWorkflowsRequest { only_live: true, ..Default::default() };
        let own_leases = nb::WatchLeasesRequest { address: String::new() };
        tokio::join!(
            self.follow("hardware", hardware, machines, |all| &all.hardware, Fleet::hardware),
            self.follow("instance", instance, instances, |all| &all.instance, Fleet::instance),
            self.follow("workflow", workflow, workflows, |all| &all.workflow, Fleet::workflow),
            self.follow("lease", leases, own_leases, |all| &all.lease, Fleet::lease),
        );
    }

    /// Opens the watch of `request` at the service behind `channel`, if there is one, and passes its events to the cache and to `take`.
    async fn follow<R, W, T>(
        self,
        noun: &'static str,
        channel: Option<Channel>,
        request: R,
        cache: fn(&FleetCache) -> &FeedCache<T>,
        take: fn(&Fleet, FeedEvent<T>),
    ) where
        R: Call<Response = W> + Clone,
        W: WatchResponse<Object = T>,
        T: Message + Default,
    {
        let Some(channel) = channel else { return };
        let take = |event| {
            self.cache.inspect(|all| cache(all).record(&event, self.fleet.clock.wall()));
            take(self.fleet, event);
        };
        Box::pin(feed::follow_at(noun, &channel, request, take, self.stop.clone())).await;
    }
}
