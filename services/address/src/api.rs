//! The gRPC services of addresses.

mod bindings;
mod claims;
mod grants;
mod subnets;

use std::sync::Arc;

use runtime::tenants::TenantDirectory;
use runtime::{Channel, Clock};
use store::mirror::Mirror;
use store::records::{self, CheckReport};
use store::{ScopedStore, Store, serving};
use tinwright::address::v1::claim_service_server::ClaimServiceServer;
use tinwright::address::v1::grant_service_server::GrantServiceServer;
use tinwright::address::v1::location_binding_service_server::LocationBindingServiceServer;
use tinwright::address::v1::subnet_service_server::SubnetServiceServer;
use tokio_util::sync::CancellationToken;

use self::claims::Conflicts;
use crate::bindings::BindingKind;
use crate::grants::{GrantKind, Grants};
use crate::leases::Leases;
use crate::machines::InterfaceDirectory;
use crate::objects::ObjectClaims;
use crate::ranges::{RangeKind, Ranges};
use crate::subnets::{SubnetKind, Subnets};

/// Serves subnets, ranges and grants over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    subnets: Subnets,
    ranges: Ranges,
    grants: Grants,
    objects: ObjectClaims,
    conflicts: Conflicts,
    leases: Leases,
    tenants: TenantDirectory,
    machines: InterfaceDirectory,
    mirrors: (Mirror<SubnetKind>, Mirror<RangeKind>, Mirror<GrantKind>),
    binding_mirror: Mirror<BindingKind>,
    stop: CancellationToken,
}

impl Api {
    /// Serves the addresses in `store`. They are granted to tenants that exist at the service behind `identity`, and attached to
    /// interfaces of `machines`. The times in records are those of `clock`. Watches end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        identity: Channel,
        machines: InterfaceDirectory,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let grants = Grants::new(ScopedStore::new(store, "address"), clock);
        let (subnets, ranges) = (grants.subnets().clone(), grants.ranges().clone());
        let tenants = TenantDirectory::new(identity);
        let mirrors = (
            Mirror::new(subnets.records().clone()),
            Mirror::new(ranges.records().clone()),
            Mirror::new(grants.records().clone()),
        );
        let binding_mirror = Mirror::new(grants.bindings().records().clone());
        let (objects, conflicts) = (ObjectClaims::new(&grants), Conflicts::default());
        let leases = Leases::default();
        Self {
            subnets,
            ranges,
            grants,
            objects,
            conflicts,
            leases,
            tenants,
            machines,
            mirrors,
            binding_mirror,
            stop,
        }
    }

    /// Claims no address that a client has among `leases`.
    pub fn with_leases(self, leases: Leases) -> Self {
        Self { leases, ..self }
    }

    /// Returns the service of subnets and ranges for a tonic router.
    pub fn subnet_service(&self) -> SubnetServiceServer<Self> {
        SubnetServiceServer::new(self.clone())
    }

    /// Returns the service of grants for a tonic router.
    pub fn grant_service(&self) -> GrantServiceServer<Self> {
        GrantServiceServer::new(self.clone())
    }

    /// Returns the service of claims for a tonic router.
    pub fn claim_service(&self) -> ClaimServiceServer<Self> {
        ClaimServiceServer::new(self.clone())
    }

    /// Returns the service of bindings of locations for a tonic router.
    pub fn location_binding_service(&self) -> LocationBindingServiceServer<Self> {
        LocationBindingServiceServer::new(self.clone())
    }

    /// Returns the grants, with subnets and ranges.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Resolves once watches can be served.
    pub async fn ready(&self) {
        let (subnets, ranges, grants) = &self.mirrors;
        let bindings = &self.binding_mirror;
        tokio::join!(subnets.ready(), ranges.ready(), grants.ready(), bindings.ready());
    }

    /// Checks that records and indexes agree; with `repair`, corrects the indexes.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, records::Error> {
        let subnets = self.subnets.records().check(repair).await?;
        let ranges = self.ranges.records().check(repair).await?;
        let grants = self.grants.records().check(repair).await?;
        let claims = self.grants.claims().records().check(repair).await?;
        let bindings = self.grants.bindings().records().check(repair).await?;
        Ok(subnets.and(ranges).and(grants).and(claims).and(bindings))
    }

    /// Follows the records, and frees grants in time, until `stop`, which must come after the end of the watches.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (subnets, ranges, grants) = self.mirrors.clone();
        let bindings = self.binding_mirror.clone();
        let (served, (), (), (), _) = tokio::join!(
            serving::run(subnets, stop.clone()),
            ranges.run(stop.clone()),
            grants.run(stop.clone()),
            bindings.run(stop.clone()),
            stop.run_until_cancelled(self.grants.keep_ending_due()),
        );
        served
    }
}
