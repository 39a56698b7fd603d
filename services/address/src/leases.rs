//! Leases of netboot: an address that a client leases is not claimed, and a claimed one is not leased.
//!
//! Netboot withholds a claimed address for ten minutes, by a commit on its lease record. After that it knows the object that has the address:
//! machines, instances and grants are feeds of netboot.

use runtime::Channel;
use tinwright::netboot::v1::WithholdAddressesRequest;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tinwright::status::AddressInUse;

use crate::Error;
use crate::block::Block;

/// A client of the service that leases addresses, if the site has one that this process can call.
#[derive(Clone, Debug, Default)]
pub struct Leases(Option<LeaseServiceClient<Channel>>);

impl Leases {
    /// A client for the channel `netboot`.
    pub fn new(netboot: Option<Channel>) -> Self {
        Self(netboot.map(LeaseServiceClient::new))
    }

    /// True if no service can be called: then no address is leased, as far as is known.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Has `blocks` withheld from clients for `holder`. Fails if a client leases an address of them, unless it is one of `macs`.
    pub async fn withhold(
        &self,
        holder: String,
        blocks: &[Block],
        macs: Vec<String>,
    ) -> Result<(), Error> {
        let Some(mut client) = self.0.clone() else { return Ok(()) };
        let blocks = blocks.iter().map(Block::to_string).collect();
        let request = WithholdAddressesRequest { blocks, macs, holder };
        match runtime::response(client.withhold_addresses(request)).await {
            Ok(_) => Ok(()),
            Err(status) => Err(match AddressInUse::from_status(&status) {
                Some(used) => Error::Leased(Box::new(used)),
                None => Error::Unavailable { service: "netboot", status: Box::new(status) },
            }),
        }
    }
}
