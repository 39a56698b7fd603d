//! Changes of objects at an address service that counts its calls.

use std::sync::{Arc, Mutex};

use tinwright::address::v1::claim_service_server::{ClaimService, ClaimServiceServer};
use tonic::service::Routes;
use tonic::{Request, Response};

use super::*;

/// Addresses and their claims: the object, and the revision.
type Table = BTreeMap<String, (String, i64)>;

#[derive(Clone, Default)]
struct Fake {
    claims: Arc<Mutex<Table>>,
    alarms: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn claims(&self) -> AddressClaims {
        let routes = Routes::new(ClaimServiceServer::new(self.clone()));
        AddressClaims::new("hardware", Channel::to(routes))
    }

    fn holders(&self) -> Vec<(String, String)> {
        let table = self.claims.lock().unwrap();
        table.iter().map(|(address, (id, _))| (address.clone(), id.clone())).collect()
    }
}

impl ClaimService for Fake {
    async fn claim_addresses(
        &self,
        request: Request<pb::ClaimAddressesRequest>,
    ) -> Result<Response<pb::ClaimAddressesResponse>, Status> {
        let request = request.into_inner();
        let id = request.holder.unwrap().object_id;
        let mut table = self.claims.lock().unwrap();
        let mut addresses = Vec::new();
        for address in request.addresses {
            let old = table.get(&address).cloned();
            let free = |by: &String| *by == id || request.ended_object_ids.contains(by);
            if let Some((by, _)) = old.clone().filter(|(by, _)| !free(by)) {
                if request.stored {
                    self.alarms.lock().unwrap().push(format!("{id} {address}"));
                }
                let (noun, text) = ("hardware".into(), format!("{address} is of {by}"));
                let used = AddressInUse { address, noun, id: by, text, ..Default::default() };
                return Err(used.into());
            }
            let revision = old.as_ref().map_or(1, |(_, revision)| revision + 1);
            let is_new = old.is_none_or(|(by, _)| by != id);
            table.insert(address.clone(), (id.clone(), revision));
            addresses.push(pb::ClaimedAddress { address, revision, is_new });
        }
        Ok(Response::new(pb::ClaimAddressesResponse { addresses }))
    }

    async fn release_addresses(
        &self,
        request: Request<pb::ReleaseAddressesRequest>,
    ) -> Result<Response<pb::ReleaseAddressesResponse>, Status> {
        let pb::ReleaseAddressesRequest { object_id, addresses, .. } = request.into_inner();
        let mut table = self.claims.lock().unwrap();
        for it in addresses {
            if table.get(&it.address) == Some(&(object_id.clone(), it.revision)) {
                table.remove(&it.address);
            }
        }
        Ok(Response::new(pb::ReleaseAddressesResponse {}))
    }

    async fn list_claims(
        &self,
        request: Request<pb::ListClaimsRequest>,
    ) -> Result<Response<pb::ListClaimsResponse>, Status> {
        let wanted = request.into_inner().addresses;
        let table = self.claims.lock().unwrap();
        let found = table.iter().filter(|(it, _)| wanted.is_empty() || wanted.contains(it));
        let claim = |(address, (id, revision)): (&String, &(String, i64))| pb::Claim {
            block: format!("{address}/32"),
            noun: "hardware".into(),
            object_id: id.clone(),
            revision: *revision,
            update_time: Some(SystemTime::UNIX_EPOCH.into()),
            ..pb::Claim::default()
        };
        let claims = found.map(claim).collect();
        Ok(Response::new(pb::ListClaimsResponse { claims, ..Default::default() }))
    }
}

/// The stored objects.
struct Stored(Vec<Holding>);

impl HoldingSource for Stored {
    async fn holding(&self, id: &str) -> Result<Option<Holding>, BoxError> {
        Ok(self.0.iter().find(|it| it.id == id).cloned())
    }

    async fn holdings(&self, _after: &str) -> Result<(Vec<Holding>, bool), BoxError> {
        Ok((self.0.clone(), false))
    }
}

fn machine(id: &str, addresses: &[&str]) -> Holding {
    let addresses = addresses.iter().map(|it| (*it).to_owned()).collect();
    Holding { id: id.into(), hardware_id: id.into(), addresses, ..Holding::default() }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(address, id)| ((*address).into(), (*id).into())).collect()
}

#[tokio::test]
async fn a_change_claims_what_is_new_and_releases_what_is_gone_once_it_is_stored() {
    let (fake, none) = (Fake::default(), Stored(Vec::new()));
    let claims = fake.claims();
    let (old, new) =
        (machine("m", &["192.0.2.1", "192.0.2.2"]), machine("m", &["192.0.2.2", "192.0.2.3"]));
    let created = claims.begin(None, Some(&old), &none).await.unwrap();
    claims.finish(created).await;
    let update = claims.begin(Some(&old), Some(&new), &none).await.unwrap();
    assert_eq!(fake.holders().len(), 3);
    claims.finish(update).await;
    assert_eq!(fake.holders(), owned(&[("192.0.2.2", "m"), ("192.0.2.3", "m")]));
    let deletion = claims.begin(Some(&new), None, &none).await.unwrap();
    claims.finish(deletion).await;
    assert_eq!(fake.holders(), []);
}

#[tokio::test]
async fn a_change_that_is_not_made_leaves_the_claims_as_they_were() {
    let (fake, none) = (Fake::default(), Stored(Vec::new()));
    let claims = fake.claims();
    let (old, new) = (machine("m", &["192.0.2.1"]), machine("m", &["192.0.2.3"]));
    let created = claims.begin(None, Some(&old), &none).await.unwrap();
    claims.finish(created).await;
    let update = claims.begin(Some(&old), Some(&new), &none).await.unwrap();
    claims.undo(update).await;
    assert_eq!(fake.holders(), owned(&[("192.0.2.1", "m")]));
}

#[tokio::test]
async fn a_late_release_takes_nothing_from_an_object_that_claimed_the_address_again() {
    let (fake, none) = (Fake::default(), Stored(Vec::new()));
    let claims = fake.claims();
    let (with, without) = (machine("m", &["192.0.2.1"]), machine("m", &[]));
    let created = claims.begin(None, Some(&with), &none).await.unwrap();
    claims.finish(created).await;
    let removal = claims.begin(Some(&with), Some(&without), &none).await.unwrap();
    let again = claims.begin(Some(&without), Some(&with), &none).await.unwrap();
    claims.finish(removal).await;
    claims.finish(again).await;
    assert_eq!(fake.holders(), owned(&[("192.0.2.1", "m")]));
}

#[tokio::test]
async fn an_address_of_a_stored_object_is_refused_and_one_of_an_ended_object_taken_over() {
    let fake = Fake::default();
    let claims = fake.claims();
    let (first, second) = (machine("m", &["192.0.2.1"]), machine("n", &["192.0.2.1"]));
    let none = Stored(Vec::new());
    let created = claims.begin(None, Some(&first), &none).await.unwrap();
    claims.finish(created).await;
    let refused = claims.begin(None, Some(&second), &Stored(vec![first])).await.unwrap_err();
    assert_eq!(refused.to_string(), "192.0.2.1 is of m");
    let taken = claims.begin(None, Some(&second), &none).await.unwrap();
    claims.finish(taken).await;
    assert_eq!(fake.holders(), owned(&[("192.0.2.1", "n")]));
}

#[tokio::test]
async fn an_object_that_has_another_one_of_the_addresses_is_not_taken_for_an_ended_one() {
    let fake = Fake::default();
    let claims = fake.claims();
    for (address, revision) in [("192.0.2.1", 1), ("192.0.2.2", 1)] {
        fake.claims.lock().unwrap().insert(address.into(), ("m".into(), revision));
    }
    // The claim of the first address is left over.
    let stored = Stored(vec![machine("m", &["192.0.2.2"])]);
    let wanted = machine("n", &["192.0.2.1", "192.0.2.2"]);
    let refused = claims.begin(None, Some(&wanted), &stored).await.unwrap_err();
    assert_eq!(refused.to_string(), "192.0.2.2 is of hardware m");
    assert_eq!(fake.holders(), owned(&[("192.0.2.1", "m"), ("192.0.2.2", "m")]));
}

#[tokio::test]
async fn without_the_address_service_addresses_are_removed_but_not_added() {
    let claims = AddressClaims::new("hardware", Channel::unconnected());
    let none = Stored(Vec::new());
    let (old, new) = (machine("m", &["192.0.2.1"]), machine("m", &[]));
    claims.finish(claims.begin(Some(&old), Some(&old), &none).await.unwrap()).await;
    claims.finish(claims.begin(Some(&old), Some(&new), &none).await.unwrap()).await;
    let refused = claims.begin(Some(&new), Some(&old), &none).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
}

#[tokio::test]
async fn a_comparison_claims_what_is_stored_releases_what_is_left_and_reports_conflicts() {
    let fake = Fake::default();
    let claims = fake.claims();
    for (address, id) in [("192.0.2.8", "gone"), ("192.0.2.9", "m"), ("192.0.2.2", "n")] {
        fake.claims.lock().unwrap().insert(address.into(), (id.into(), 1));
    }
    let stored = Stored(vec![
        machine("m", &["192.0.2.1", "192.0.2.2"]),
        machine("n", &["192.0.2.2", "192.0.2.3"]),
    ]);
    claims.compare(&stored, &Clock::system()).await.unwrap();
    let expected = [("192.0.2.1", "m"), ("192.0.2.2", "n"), ("192.0.2.3", "n")];
    assert_eq!(fake.holders(), owned(&expected));
    assert_eq!(*fake.alarms.lock().unwrap(), ["m 192.0.2.2"]);
}
