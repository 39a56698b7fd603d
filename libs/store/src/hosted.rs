//! A service that owns records, as the process that hosts it sees it.
//!
//! A service shows each kind of its records once ([`HostedService::visit`]). Everything that is done
//! with all kinds follows from that: the work on mirrors, readiness, checks and encryption with a
//! new key here, metrics and alarms in the process.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tinwright::Bounded;
use tokio_util::sync::CancellationToken;
use tonic::service::{Routes, RoutesBuilder};

use crate::ScopedStore;
use crate::mirror::Mirror;
use crate::records::{AnyKind, CheckReport, Error, Kind, Records, requests};

/// Looks at the records of services, one kind after the other.
pub trait RecordVisitor {
    /// Looks at records that are read from the store only.
    fn records<K: Kind>(&mut self, records: &Records<K>);

    /// Looks at records that are in memory, too.
    fn mirror<K: Kind>(&mut self, mirror: &Mirror<K>) {
        self.records(mirror.records());
    }

    /// Looks at records in memory with states that have limits.
    fn bounded<K: Kind<Record: Bounded>>(&mut self, mirror: &Mirror<K>) {
        self.mirror(mirror);
    }
}

/// A service that owns records.
pub trait HostedService: Clone + Send + Sync + 'static {
    /// The name of the service. Its keys begin with it.
    const NAME: &'static str;

    /// Adds its gRPC services to `routes`.
    fn add_routes(&self, routes: &mut RoutesBuilder);

    /// Returns what it serves over plain HTTP, at paths of the table of calls.
    fn http_routes(&self) -> Option<axum::Router> {
        None
    }

    /// Shows each kind of its records to `visitor`, once.
    fn visit(&self, visitor: &mut impl RecordVisitor);

    /// Does the work of the service until `stop`, which must come after the end of the watches.
    /// [`follow`] is a part of it.
    fn run(self, stop: CancellationToken) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Resolves once calls can be answered.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        mirrors_ready(self)
    }

    /// Encrypts all secrets with the newest key. Returns the number of changed records.
    fn reseal(&self) -> impl Future<Output = anyhow::Result<usize>> + Send {
        async { Ok(reseal(self).await?) }
    }

    /// Returns a router of its gRPC services alone.
    fn routes(&self) -> Routes {
        let mut routes = Routes::builder();
        self.add_routes(&mut routes);
        routes.routes()
    }
}

/// Returns the work that fills the mirrors of `service`, and deletes expired results of requests,
/// until `stop`.
pub fn follow(service: &impl HostedService, stop: &CancellationToken) -> BoxFuture<'static, ()> {
    let mut followers = Followers { stop: stop.clone(), mirrors: Vec::new() };
    service.visit(&mut followers);
    let store = store_of(service).into_iter();
    let expiry = store.map(async |store| requests::keep_deleting_expired(&store).await);
    let expiry = stop.clone().run_until_cancelled_owned(join_all(expiry));
    async { drop(tokio::join!(join_all(followers.mirrors), expiry)) }.boxed()
}

/// Resolves once all mirrors of `service` are filled.
pub async fn mirrors_ready(service: &impl HostedService) {
    let mut readiness = Readiness(Vec::new());
    service.visit(&mut readiness);
    join_all(readiness.0).await;
}

/// Checks that the records and indexes of `service` agree; with `repair`, corrects the indexes.
pub async fn check(service: &impl HostedService, repair: bool) -> Result<CheckReport, Error> {
    let mut report = CheckReport::default();
    for (kind, store) in Kinds::of(service) {
        report = report.and(kind.check(&store, repair).await?);
    }
    Ok(report)
}

/// Encrypts the secret fields of the records of `service`, and its results of requests, with the
/// newest key. Returns the number of changed records.
pub async fn reseal(service: &impl HostedService) -> Result<usize, Error> {
    let mut changed = 0;
    for (kind, store) in Kinds::of(service).into_iter().filter(|(kind, _)| kind.has_secrets) {
        changed += kind.reseal(&store).await?;
    }
    if let Some(store) = store_of(service) {
        requests::reseal(&store).await?;
    }
    Ok(changed)
}

/// Returns the store of `service`, which also holds its results of requests; none if it has no
/// records.
fn store_of(service: &impl HostedService) -> Option<ScopedStore> {
    Kinds::of(service).pop().map(|(_, store)| store)
}

/// The work on mirrors.
struct Followers {
    stop: CancellationToken,
    mirrors: Vec<BoxFuture<'static, ()>>,
}

impl RecordVisitor for Followers {
    fn records<K: Kind>(&mut self, _: &Records<K>) {}

    fn mirror<K: Kind>(&mut self, mirror: &Mirror<K>) {
        self.mirrors.push(mirror.run(self.stop.clone()));
    }
}

/// The readiness of each mirror.
struct Readiness(Vec<BoxFuture<'static, ()>>);

impl RecordVisitor for Readiness {
    fn records<K: Kind>(&mut self, _: &Records<K>) {}

    fn mirror<K: Kind>(&mut self, mirror: &Mirror<K>) {
        self.0.push(mirror.ready());
    }
}

/// Each kind, and the store of its records.
struct Kinds(Vec<(&'static AnyKind, ScopedStore)>);

impl Kinds {
    fn of(service: &impl HostedService) -> Vec<(&'static AnyKind, ScopedStore)> {
        let mut kinds = Self(Vec::new());
        service.visit(&mut kinds);
        kinds.0
    }
}

impl RecordVisitor for Kinds {
    fn records<K: Kind>(&mut self, records: &Records<K>) {
        self.0.push((AnyKind::of::<K>(), records.store().clone()));
    }
}
