//! The calls of services that own objects with addresses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nouns::Noun as _;
use store::events::EventLog;
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::claim_service_server::ClaimService;
use tinwright::event::v1::{Event, EventKind};
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;
use crate::Error;
use crate::block::Block;
use crate::claims::Holder;
use crate::objects;

/// Addresses in a request.
const MAX_ADDRESSES: usize = 256;

impl ClaimService for Api {
    async fn claim_addresses(
        &self,
        request: Request<pb::ClaimAddressesRequest>,
    ) -> Result<Response<pb::ClaimAddressesResponse>, Status> {
        let pb::ClaimAddressesRequest { holder, addresses, ended_object_ids, stored, macs } =
            request.into_inner();
        let holder = checked(Violations::require("holder", holder)?)?;
        let blocks = blocks(&addresses)?;
        let claimed = self.claim(&holder, &blocks, &ended_object_ids, macs).await;
        let claimed = self.named(claimed).await;
        let events = stored.then(|| self.events());
        self.conflicts.follow(&holder, &blocks, &claimed, events).await;
        Ok(Response::new(pb::ClaimAddressesResponse { addresses: claimed? }))
    }

    async fn release_addresses(
        &self,
        request: Request<pb::ReleaseAddressesRequest>,
    ) -> Result<Response<pb::ReleaseAddressesResponse>, Status> {
        let pb::ReleaseAddressesRequest { noun, object_id, addresses } = request.into_inner();
        blocks(&addresses.iter().map(|it| it.address.clone()).collect::<Vec<_>>())?;
        self.objects.release(&noun, &object_id, &addresses).await?;
        Ok(Response::new(pb::ReleaseAddressesResponse {}))
    }

    async fn list_claims(
        &self,
        request: Request<pb::ListClaimsRequest>,
    ) -> Result<Response<pb::ListClaimsResponse>, Status> {
        let pb::ListClaimsRequest { page_size, page_token, noun, addresses } = request.into_inner();
        let keep = |claim: &pb::Claim| noun.is_empty() || objects::is_held_by(claim, &noun);
        if !addresses.is_empty() {
            let mut claims = self.objects.of(&blocks(&addresses)?).await?;
            claims.retain(keep);
            return Ok(Response::new(pb::ListClaimsResponse { claims, ..Default::default() }));
        }
        let records = &self.grants.claims.records;
        let found = records.list(&page_token, serving::page_size(page_size)?, keep).await?;
        let next_page_token = found.next.unwrap_or_default();
        Ok(Response::new(pb::ListClaimsResponse { claims: found.records, next_page_token }))
    }
}

impl Api {
    /// Claims `blocks` for `holder`, unless clients lease them that are not its machine, whose `macs` may be given.
    async fn claim(
        &self,
        holder: &pb::ClaimHolder,
        blocks: &[Block],
        ended: &[String],
        macs: Vec<String>,
    ) -> Result<Vec<pb::ClaimedAddress>, Error> {
        let mut claimed = self.objects.claim(holder, blocks, ended).await?;
        if let Err(refused) = self.withhold(holder, blocks, macs).await {
            claimed.retain(|it| it.is_new);
            self.objects.release(&holder.noun, &holder.object_id, &claimed).await?;
            return Err(refused);
        }
        Ok(claimed)
    }

    async fn withhold(
        &self,
        holder: &pb::ClaimHolder,
        blocks: &[Block],
        mut macs: Vec<String>,
    ) -> Result<(), Error> {
        if self.leases.is_none() {
            return Ok(());
        }
        if macs.is_empty() && !holder.hardware_id.is_empty() {
            macs = self.machines.machine_macs(&holder.hardware_id).await?;
        }
        let name = format!("{} {}", holder.noun, holder.object_id);
        self.leases.withhold(name, blocks, macs).await
    }

    /// Returns `result`. An error names the object that has the address, if it is a machine or a
    /// subnet with a name, or the exhausted location.
    pub(super) async fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let (block, by) = match result {
            Err(Error::Exhausted { name, taken, total, delay }) => {
                let name = self.with_location_name(name).await;
                return Err(Error::Exhausted { name, taken, total, delay });
            }
            Err(Error::Taken { block, by, .. }) => (block, by),
            other => return other,
        };
        let name = match by.noun.as_str() {
            Holder::HARDWARE => self.machines.machine_name(&by.object_id).await,
            Holder::SUBNET => {
                let found = self.subnets.records().get(&by.object_id).await;
                found.ok().flatten().map(|subnet| subnet.name)
            }
            _ => None,
        };
        Err(Error::Taken { block, by, name: name.unwrap_or_default() })
    }

    /// Returns `text`, which may be `location ID`, with the name of the location, if the hardware service answers.
    async fn with_location_name(&self, text: String) -> String {
        let id = text.strip_prefix("location ").and_then(|id| id.parse().ok());
        let Some(id) = id else { return text };
        match self.machines.require_location(id).await {
            Ok(name) => format!("location {name}"),
            Err(_) => text,
        }
    }

    fn events(&self) -> EventLog {
        EventLog::new(self.grants.records.store().clone(), "address")
    }
}

/// Returns `holder` if it is an object of another service.
fn checked(holder: pb::ClaimHolder) -> Result<pb::ClaimHolder, Violations> {
    let mut wrong = Violations::default();
    if !matches!(holder.noun.as_str(), Holder::HARDWARE | Holder::INSTANCE) {
        wrong.add("holder.noun", "is neither hardware nor instance");
    }
    if holder.object_id.is_empty() {
        wrong.add("holder.object_id", "is missing");
    }
    wrong.into_result(holder)
}

fn blocks(addresses: &[String]) -> Result<Vec<Block>, Violations> {
    let (mut wrong, mut blocks) = (Violations::default(), Vec::new());
    wrong.each("addresses", addresses, MAX_ADDRESSES, |text, wrong| {
        blocks.extend(wrong.take("", tinwright::check::address(text)).map(Block::single));
    });
    wrong.into_result(blocks)
}

/// Addresses of stored objects that others have: noun, id and address, and the holder. Each is an alarm once in a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Conflicts(Arc<Mutex<BTreeMap<[String; 3], String>>>);

impl Conflicts {
    /// Forgets the conflicts of `blocks` if they were `claimed` for `holder`. If they were not, and
    /// the object is stored, records an alarm in `events`.
    async fn follow<T>(
        &self,
        holder: &pb::ClaimHolder,
        blocks: &[Block],
        claimed: &Result<T, Error>,
        events: Option<EventLog>,
    ) {
        match (claimed, events) {
            (Ok(_), _) => {
                let mut all = self.all();
                for block in blocks {
                    let address = block.address().to_string();
                    all.remove(&[holder.noun.clone(), holder.object_id.clone(), address]);
                }
            }
            (Err(error), Some(events)) => self.record(&events, holder, error).await,
            (Err(_), None) => {}
        }
    }

    /// Records an alarm, unless the last one of the address was of the same holder. It is the site's, since it names objects of others.
    async fn record(&self, events: &EventLog, holder: &pb::ClaimHolder, error: &Error) {
        let (address, by) = if let Error::Taken { block, by, .. } = error {
            (block.address().to_string(), format!("{} {}", by.noun, by.object_id))
        } else if let Error::Leased(used) = error {
            (used.address.clone(), used.noun.clone())
        } else {
            return;
        };
        let (noun, object_id) = (holder.noun.clone(), holder.object_id.clone());
        let (key, text) = ([noun.clone(), object_id.clone(), address], error.to_string());
        if self.all().insert(key.clone(), by.clone()) == Some(by) {
            return;
        }
        tracing::error!(noun, object.id = object_id, text, "address conflict");
        let mut event = Event { noun, object_id, text, ..Event::default() };
        event.set_kind(EventKind::Alarm);
        if let Err(error) = events.append(event).await {
            self.all().remove(&key);
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "alarm of an address conflict not stored");
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<[String; 3], String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
