//! The gRPC API of leases.

use std::sync::Arc;

use store::serving;
use tinwright::Mac;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::lease_service_server::{LeaseService, LeaseServiceServer};
use tinwright::status::{self, Violations};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{Leases, record};
use crate::machine_view::Index;
use crate::pool::State;

/// Serves [`Leases`].
#[derive(Clone, Debug)]
pub struct Api {
    /// The leases.
    pub leases: Leases,
    /// The machines.
    pub index: Arc<Index>,
    /// Ends watches.
    pub stop: CancellationToken,
}

impl Api {
    /// Returns the service for a tonic router.
    pub fn into_service(self) -> LeaseServiceServer<Self> {
        LeaseServiceServer::new(self)
    }

    /// Returns `lease` as of now, with the machine of its client; expiry is not stored.
    fn current(&self, mut lease: pb::Lease) -> pb::Lease {
        let machine = lease.mac.parse().ok().and_then(|mac| self.index.by_mac(mac));
        lease.hardware_id = machine.map_or_else(String::new, |it| it.hardware.id.clone());
        let now = self.leases.clock.wall();
        let bound = record::read(&lease).filter(|(_, lease)| lease.state == State::Bound);
        if bound.is_some_and(|(_, lease)| lease.ends <= now) {
            lease.set_state(pb::lease::State::Expired);
        }
        lease
    }
}

#[tonic::async_trait]
impl LeaseService for Api {
    #[tracing::instrument(skip_all)]
    async fn list_leases(
        &self,
        request: Request<pb::ListLeasesRequest>,
    ) -> Result<Response<pb::ListLeasesResponse>, Status> {
        let pb::ListLeasesRequest { page_size, page_token } = request.into_inner();
        let (leases, show) = (&self.leases.mirror, |lease| self.current(lease));
        let (leases, next_page_token) =
            serving::list(leases, page_size, &page_token, |_| true, show).await?;
        Ok(Response::new(pb::ListLeasesResponse { leases, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_lease(
        &self,
        request: Request<pb::GetLeaseRequest>,
    ) -> Result<Response<pb::GetLeaseResponse>, Status> {
        use pb::get_lease_request::By;
        let address = match request.into_inner().by {
            None => return Err(Violations::single("by", "is missing: give address or mac").into()),
            Some(By::Address(text)) => address(&text)?,
            Some(By::Mac(text)) => {
                let mac: Mac = Violations::parse("mac", &text)?;
                let own = self.leases.addresses(mac).into_iter().next();
                own.ok_or_else(|| status::not_found("lease", &mac.to_string()))?
            }
        };
        let lease = self.current(self.leases.records.require(&address.to_string()).await?);
        Ok(Response::new(pb::GetLeaseResponse { lease: Some(lease) }))
    }

    #[tracing::instrument(skip_all, fields(lease.addr = request.get_ref().address))]
    async fn delete_lease(
        &self,
        request: Request<pb::DeleteLeaseRequest>,
    ) -> Result<Response<pb::DeleteLeaseResponse>, Status> {
        let pb::DeleteLeaseRequest { address: text, revision } = request.into_inner();
        let address = address(&text)?;
        let old = self.leases.records.at(&address.to_string(), revision).await?;
        self.leases.remove(address, &old).await?;
        Ok(Response::new(pb::DeleteLeaseResponse {}))
    }

    type WatchLeasesStream = serving::Events<pb::WatchLeasesResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_leases(
        &self,
        request: Request<pb::WatchLeasesRequest>,
    ) -> Result<Response<Self::WatchLeasesStream>, Status> {
        let pb::WatchLeasesRequest { address: text } = request.into_inner();
        let (mirror, api) = (&self.leases.mirror, self.clone());
        let watcher = match text.as_str() {
            "" => mirror.watch(),
            text => mirror.watch_one(&address(text)?.to_string()),
        };
        let events = serving::watch(watcher, self.stop.clone(), move |lease| api.current(lease));
        Ok(Response::new(Box::pin(events)))
    }
}

fn address(text: &str) -> Result<std::net::Ipv4Addr, Violations> {
    text.parse().map_err(|_| Violations::single("address", "is no IPv4 address"))
}
