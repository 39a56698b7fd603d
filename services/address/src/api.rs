//! The gRPC services of addresses.

mod bindings;
mod claims;
mod grants;
mod subnets;

use std::sync::Arc;

use nouns::Noun as _;
use runtime::tenants::TenantDirectory;
use runtime::{Channel, Clock};
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::{ScopedStore, Store};
use tinwright::address::v1::claim_service_server::ClaimServiceServer;
use tinwright::address::v1::grant_service_server::GrantServiceServer;
use tinwright::address::v1::location_binding_service_server::LocationBindingServiceServer;
use tinwright::address::v1::subnet_service_server::SubnetServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

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
        let grants = Grants::new(ScopedStore::new(store, Self::NAME), clock);
        let (subnets, ranges) = (grants.subnets.clone(), grants.ranges.clone());
        let tenants = TenantDirectory::new(identity);
        let mirrors = (
            Mirror::new(subnets.records().clone()),
            Mirror::new(ranges.records().clone()),
            Mirror::new(grants.records.clone()),
        );
        let binding_mirror = Mirror::new(grants.bindings.records().clone());
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
}

impl HostedService for Api {
    const NAME: &'static str = "address";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(SubnetServiceServer::new(self.clone()));
        routes.add_service(GrantServiceServer::new(self.clone()));
        routes.add_service(ClaimServiceServer::new(self.clone()));
        routes.add_service(LocationBindingServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        let (subnets, ranges, grants) = &self.mirrors;
        visitor.mirror(subnets);
        visitor.mirror(ranges);
        visitor.mirror(grants);
        visitor.records(&self.grants.claims.records);
        visitor.mirror(&self.binding_mirror);
    }

    /// Follows the records, and frees grants in time.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let ended = stop.run_until_cancelled(self.grants.keep_ending_due());
        tokio::join!(hosted::follow(&self, &stop), ended);
        Ok(())
    }
}
