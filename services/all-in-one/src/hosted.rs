//! The services of this process, whichever they are: [`HostedService`] without its type.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runtime::overdue_metric::OverdueMetric;
use runtime::supervise::Tier;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::overdue::Bounded;
use store::records::{CheckReport, Error, Kind, Records};
use tonic::service::RoutesBuilder;

use crate::overdue;

/// A service of this process.
pub(crate) trait Hosted: Send + Sync {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Adds its gRPC services to `routes`.
    fn add_routes(&self, routes: &mut RoutesBuilder);

    /// Starts its work.
    fn start(&self, tier: &mut Tier);

    /// Starts what follows its records.
    fn start_followers(&self, followers: &mut Followers<'_>);

    /// Resolves once it can answer calls.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// Checks that its records and indexes agree; with `repair`, corrects the indexes.
    fn check(&self, repair: bool) -> BoxFuture<'_, Result<CheckReport, Error>>;

    /// Encrypts its secrets with the newest key. Returns the number of changed records.
    fn reseal(&self) -> BoxFuture<'_, anyhow::Result<usize>>;
}

impl<S: HostedService> Hosted for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        HostedService::add_routes(self, routes);
    }

    fn start(&self, tier: &mut Tier) {
        tier.tasks.spawn(self.clone().run(tier.stop.clone()));
    }

    fn start_followers(&self, followers: &mut Followers<'_>) {
        self.visit(followers);
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        HostedService::ready(self).boxed()
    }

    fn check(&self, repair: bool) -> BoxFuture<'_, Result<CheckReport, Error>> {
        hosted::check(self, repair).boxed()
    }

    fn reseal(&self) -> BoxFuture<'_, anyhow::Result<usize>> {
        HostedService::reseal(self).boxed()
    }
}

/// Starts what follows the records of all services: alarms.
pub(crate) struct Followers<'a> {
    pub(crate) overdue: &'a OverdueMetric,
    pub(crate) tier: &'a mut Tier,
}

impl RecordVisitor for Followers<'_> {
    fn records<K: Kind>(&mut self, _: &Records<K>) {}

    fn bounded<K: Bounded>(&mut self, mirror: &Mirror<K>) {
        overdue::follow(mirror, self.overdue, self.tier);
    }
}
