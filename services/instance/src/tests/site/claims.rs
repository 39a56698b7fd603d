//! The claims of addresses at the test site.

use tinwright::address::v1 as addr;
use tinwright::address::v1::claim_service_server::ClaimService;
use tinwright::status::AddressInUse;
use tonic::{Request, Response, Status};

use super::Site;

impl ClaimService for Site {
    async fn claim_addresses(
        &self,
        request: Request<addr::ClaimAddressesRequest>,
    ) -> Result<Response<addr::ClaimAddressesResponse>, Status> {
        let addr::ClaimAddressesRequest { holder, addresses, .. } = request.into_inner();
        let holder = holder.unwrap_or_default();
        let mut state = self.state();
        if !state.call()? {
            return Err(Status::unavailable("lost"));
        }
        let mut claimed = Vec::new();
        for address in addresses {
            let before = state.claims.get(&address).cloned();
            if let Some(by) = before.clone().filter(|by| by.object_id != holder.object_id) {
                let text = format!("{address} is held by {} {}", by.noun, by.object_id);
                let addr::ClaimHolder { noun, object_id: id, tenant, .. } = by;
                return Err(AddressInUse { address, noun, id, tenant, text }.into());
            }
            state.claims.insert(address.clone(), holder.clone());
            let is_new = before.is_none();
            claimed.push(addr::ClaimedAddress { address, revision: 1, is_new });
        }
        Ok(Response::new(addr::ClaimAddressesResponse { addresses: claimed }))
    }

    async fn release_addresses(
        &self,
        request: Request<addr::ReleaseAddressesRequest>,
    ) -> Result<Response<addr::ReleaseAddressesResponse>, Status> {
        let addr::ReleaseAddressesRequest { object_id, addresses, .. } = request.into_inner();
        let mut state = self.state();
        for it in addresses {
            if state.claims.get(&it.address).is_some_and(|by| by.object_id == object_id) {
                state.claims.remove(&it.address);
            }
        }
        Ok(Response::new(addr::ReleaseAddressesResponse {}))
    }

    async fn list_claims(
        &self,
        request: Request<addr::ListClaimsRequest>,
    ) -> Result<Response<addr::ListClaimsResponse>, Status> {
        let wanted = request.into_inner().addresses;
        let state = self.state();
        let found = state.claims.iter().filter(|(it, _)| wanted.is_empty() || wanted.contains(it));
        let claims = found.map(|(address, by)| addr::Claim {
            block: format!("{address}/32"),
            revision: 1,
            noun: by.noun.clone(),
            object_id: by.object_id.clone(),
            ..addr::Claim::default()
        });
        let claims = claims.collect();
        Ok(Response::new(addr::ListClaimsResponse { claims, ..Default::default() }))
    }
}
