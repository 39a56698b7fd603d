//! The services of this process, whichever they are: [`HostedService`] without its type.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runtime::overdue_metric::OverdueMetric;
use runtime::supervise::Tier;
use runtime::telemetry::MachineNames;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::{CheckReport, Error, Kind, Records};
use tinwright::Bounded;
use tonic::service::RoutesBuilder;

use crate::metrics::ObjectMetrics;
use crate::overdue;

/// A service of this process.
pub(crate) trait Hosted: Send + Sync {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Adds its gRPC services to `routes`.
    fn add_routes(&self, routes: &mut RoutesBuilder);

    /// Returns what it serves over plain HTTP.
    fn http_routes(&self) -> Option<axum::Router>;

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

    /// Returns the kinds of its records.
    #[cfg(test)]
    fn kinds(&self) -> Vec<HostedKind>;
}

impl<S: HostedService> Hosted for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        HostedService::add_routes(self, routes);
    }

    fn http_routes(&self) -> Option<axum::Router> {
        HostedService::http_routes(self)
    }

    fn start(&self, tier: &mut Tier) {
        tier.spawn(self.clone().run(tier.stop.clone()));
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

    #[cfg(test)]
    fn kinds(&self) -> Vec<HostedKind> {
        let mut kinds = tests::Kinds::new(S::NAME);
        self.visit(&mut kinds);
        kinds.0
    }
}

/// Starts what follows the records of all services: metrics, the names of machines, and alarms.
pub(crate) struct Followers<'a> {
    pub(crate) objects: &'a ObjectMetrics,
    pub(crate) names: &'a MachineNames,
    pub(crate) overdue: &'a OverdueMetric,
    pub(crate) tier: &'a mut Tier,
}

impl RecordVisitor for Followers<'_> {
    fn records<K: Kind>(&mut self, _: &Records<K>) {}

    fn mirror<K: Kind>(&mut self, mirror: &Mirror<K>) {
        self.objects.follow(mirror, self.names, self.tier);
    }

    fn bounded<K: Kind<Record: Bounded>>(&mut self, mirror: &Mirror<K>) {
        overdue::follow(mirror, self.overdue, self.tier);
        self.mirror(mirror);
    }
}

#[cfg(test)]
pub(crate) use self::tests::HostedKind;
#[cfg(test)]
mod tests;
