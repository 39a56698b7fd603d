//! The gRPC API of leases.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use store::serving;
use tinwright::Mac;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::get_lease_request::By;
use tinwright::netboot::v1::lease_service_server::{LeaseService, LeaseServiceServer};
use tinwright::status::{self, AddressInUse, Violations};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{Leases, WithholdError, record};
use crate::machine_view::Index;
use crate::pool::{State, Subnet};

/// Addresses that are withheld by one call.
const MAX_WITHHELD: usize = 1024;

/// Serves [`Leases`].
#[derive(Clone, Debug)]
pub struct Api {
    /// The leases.
    pub leases: Leases,
    /// The networks with pools.
    pub subnets: Arc<[Subnet]>,
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

    /// Returns the address of the lease that is named `by` its address or its client.
    fn leased_address(&self, by: Option<By>) -> Result<Ipv4Addr, Status> {
        match by {
            None => Err(Violations::single("by", "is missing: give address or mac").into()),
            Some(By::Address(text)) => Ok(address(&text)?),
            Some(By::Mac(text)) => {
                let mac: Mac = Violations::parse("mac", &text)?;
                let own = self.leases.addresses(mac).into_iter().next();
                own.ok_or_else(|| status::not_found("lease", &mac.to_string()))
            }
        }
    }

    /// Returns the addresses of `blocks` that are in pools, and single ones that have a lease.
    fn addresses_of(&self, blocks: &[String]) -> Result<Vec<Ipv4Addr>, Violations> {
        let now = self.leases.clock.wall();
        let mut addresses = Vec::new();
        for block in blocks {
            let network = match block.parse::<IpAddr>() {
                Ok(address) => IpNet::from(address),
                Err(_) => Violations::parse("blocks", block)?,
            };
            let IpNet::V4(network) = network else { continue };
            if network.prefix_len() == 32 {
                let address = network.addr();
                let in_pool = self.subnets.iter().any(|it| it.pool_contains(address));
                // Of a client in a pool of another process, too.
                let is_leased = in_pool || self.leases.at(address, now).is_some();
                addresses.extend(is_leased.then_some(address));
                continue;
            }
            let pools = self.subnets.iter().flat_map(|subnet| subnet.addresses(0));
            addresses.extend(pools.filter(|it| network.contains(it)).take(MAX_WITHHELD + 1));
            if addresses.len() > MAX_WITHHELD {
                let text = format!("have more than {MAX_WITHHELD} addresses of pools");
                return Err(Violations::single("blocks", text));
            }
        }
        Ok(addresses)
    }
}

impl LeaseService for Api {
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

    async fn get_lease(
        &self,
        request: Request<pb::GetLeaseRequest>,
    ) -> Result<Response<pb::GetLeaseResponse>, Status> {
        let address = self.leased_address(request.into_inner().by)?;
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

    async fn withhold_addresses(
        &self,
        request: Request<pb::WithholdAddressesRequest>,
    ) -> Result<Response<pb::WithholdAddressesResponse>, Status> {
        let pb::WithholdAddressesRequest { blocks, macs, holder } = request.into_inner();
        let clients: Vec<_> = macs.iter().filter_map(|mac| mac.parse().ok()).collect();
        let addresses = self.addresses_of(&blocks)?;
        if !addresses.is_empty() && !self.leases.is_ready() {
            return Err(Status::unavailable("the leases are being read"));
        }
        for address in addresses {
            self.leases.withhold(address, &clients, &holder).await?;
        }
        Ok(Response::new(pb::WithholdAddressesResponse {}))
    }

    type WatchLeasesStream = serving::Events<pb::WatchLeasesResponse>;

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

impl From<WithholdError> for Status {
    fn from(error: WithholdError) -> Self {
        let text = error.to_string();
        let WithholdError::Leased { address, .. } = error else { return Self::unavailable(text) };
        let (address, noun) = (address.to_string(), "lease".to_owned());
        AddressInUse { id: address.clone(), address, noun, tenant: String::new(), text }.into()
    }
}

fn address(text: &str) -> Result<Ipv4Addr, Violations> {
    text.parse().map_err(|_| Violations::single("address", "is not an IPv4 address"))
}
