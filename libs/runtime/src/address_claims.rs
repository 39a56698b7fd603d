//! Claims of addresses, for services whose objects have some. The address service keeps each address unique.
//!
//! ```text
//! change       claim what is new ── store the object ── release what it no longer has, or what was new if it was not stored
//! reconcile    claim what stored objects have, release what they do not have
//! ```
//!
//! An object is stored with a new address only after it was claimed. A release names the revision of the claim as it was before the object
//! was stored: each call that claims an address changes that, so a late release takes nothing from a later change. What a process that
//! ended left claimed is released by the next comparison. Removing addresses works without the address service, adding does not.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tinwright::address::v1 as pb;
use tinwright::client::{self, Call, Grpc};
use tinwright::status::AddressInUse;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{Channel, Clock};

/// The interval between two comparisons of claims with objects.
const INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The interval after a comparison that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The age from which the claim of an address that its object does not have is released: the request that claimed it has ended.
const LEFT_AGE: Duration = Duration::from_secs(60);
/// Claims of a page.
const PAGE_SIZE: i32 = 1000;

/// An object, and the addresses that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its id.
    pub id: String,
    /// Its tenant; empty for the site.
    pub tenant: String,
    /// Its machine.
    pub hardware_id: String,
    /// The addresses, in their normal form.
    pub addresses: Vec<String>,
    /// The MACs of the machine, if they are known.
    pub macs: Vec<String>,
}

/// The stored objects of one noun.
pub trait HoldingSource: Send + Sync {
    /// Returns the object `id`, if it is stored.
    fn holding(&self, id: &str) -> impl Future<Output = Result<Option<Holding>, BoxError>> + Send;

    /// Returns a page of objects after the id `after`, and whether there are more.
    fn holdings(
        &self,
        after: &str,
    ) -> impl Future<Output = Result<(Vec<Holding>, bool), BoxError>> + Send;
}

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Addresses that were not claimed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another object has an address.
    #[error("{}", .0.text)]
    InUse(Box<AddressInUse>),
    /// Another request claimed an address, and has not stored its object yet.
    #[error("{0} is claimed by a request that has not ended: repeat")]
    Busy(String),
    /// The address service did not answer, or has no room.
    #[error("the address service did not answer")]
    Unavailable(#[source] Box<Status>),
    /// The stored objects could not be read.
    #[error("reading the objects that have addresses")]
    Source(#[source] BoxError),
}

impl Error {
    /// Returns the status for a caller who is limited to the objects of `tenant`, or is not limited.
    pub fn into_status(self, tenant: Option<&tinwright::TenantName>) -> Status {
        let text = self.to_string();
        match self {
            Self::InUse(used) => used.visible_to(tenant).into(),
            Self::Busy(_) => Status::aborted(text),
            Self::Unavailable(status) if status.code() == Code::ResourceExhausted => *status,
            Self::Unavailable(_) | Self::Source(_) => Status::unavailable(text),
        }
    }
}

/// A client of the address service for the objects of one noun.
#[derive(Clone, Debug)]
pub struct AddressClaims {
    noun: &'static str,
    address: Option<Channel>,
}

/// The claims that a change of an object needs.
#[derive(Debug, Default)]
#[must_use]
pub struct Exchange {
    /// Claimed for it; to be released if it is not made.
    added: Vec<pb::ClaimedAddress>,
    /// To be released once it is made.
    removed: Vec<pb::ClaimedAddress>,
    id: String,
}

impl AddressClaims {
    /// Claims addresses of the objects `noun` at the service behind `address`.
    pub fn new(noun: &'static str, address: Channel) -> Self {
        Self { noun, address: Some(address) }
    }

    /// Claims nothing: for tools that have the store only.
    pub fn none() -> Self {
        Self { noun: "", address: None }
    }

    /// Claims the addresses that `new` has and `old` has not, before the change is stored. `source` tells whether an object that has one
    /// of them is stored.
    pub async fn begin(
        &self,
        old: Option<&Holding>,
        new: Option<&Holding>,
        source: &impl HoldingSource,
    ) -> Result<Exchange, Error> {
        let Some(id) = new.or(old).map(|it| it.id.clone()) else { return Ok(Exchange::default()) };
        let mut exchange = Exchange { id, ..Exchange::default() };
        if self.address.is_none() {
            return Ok(exchange);
        }
        let added = difference(new, old);
        if let Some(new) = new.filter(|_| !added.is_empty()) {
            exchange.added = self.claim(new, added, source).await?;
            exchange.added.retain(|it| it.is_new);
        }
        let removed = difference(old, new);
        if !removed.is_empty() {
            // Without the revisions, the next comparison releases them.
            exchange.removed = self.revisions(removed).await.unwrap_or_default();
        }
        Ok(exchange)
    }

    /// Releases what the object has no longer, now that the change is stored.
    pub async fn finish(&self, exchange: Exchange) {
        self.release(&exchange.id, exchange.removed).await;
    }

    /// Releases what was claimed for a change that certainly was not made.
    pub async fn undo(&self, exchange: Exchange) {
        self.release(&exchange.id, exchange.added).await;
    }

    /// Compares the claims with the objects of `source`, repeatedly, until `stop`.
    pub async fn reconcile(
        &self,
        source: &impl HoldingSource,
        clock: &Clock,
        stop: &CancellationToken,
    ) {
        if self.address.is_none() {
            return;
        }
        loop {
            let pause = match stop.run_until_cancelled(self.compare(source, clock)).await {
                None => return,
                Some(Ok(())) => INTERVAL,
                Some(Err(error)) => {
                    let error = crate::cause(&error);
                    tracing::debug!(error, noun = self.noun, "claims of addresses not compared");
                    RETRY_INTERVAL
                }
            };
            let pause = clock.sleep_until(clock.wall() + pause);
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Claims what the objects of `source` have, and releases what they do not have.
    pub async fn compare(&self, source: &impl HoldingSource, clock: &Clock) -> Result<(), Error> {
        let mut claimed = self.claimed(clock.wall()).await?;
        let (mut after, mut more) = (String::new(), true);
        while more {
            let page;
            (page, more) = source.holdings(&after).await.map_err(Error::Source)?;
            for holding in page {
                let mut has = claimed.remove(&holding.id).unwrap_or_default();
                let is_missing = |it: &&String| !has.contains_key(*it);
                let missing: Vec<_> =
                    holding.addresses.iter().filter(is_missing).cloned().collect();
                if !missing.is_empty() {
                    self.claim_stored(&holding, missing, source).await?;
                }
                has.retain(|address, _| !holding.addresses.contains(address));
                self.release_left(&holding.id, has, source).await?;
                after.clone_from(&holding.id);
            }
        }
        for (id, left) in claimed {
            self.release_left(&id, left, source).await?;
        }
        Ok(())
    }

    /// Claims addresses of a stored object. One that another object has is an alarm, and does not prevent the others.
    async fn claim_stored(
        &self,
        holding: &Holding,
        missing: Vec<String>,
        source: &impl HoldingSource,
    ) -> Result<(), Error> {
        for address in missing {
            match self.claim(holding, vec![address.clone()], source).await {
                Ok(claimed) => {
                    // The object may have lost the address since it was read.
                    let now = source.holding(&holding.id).await.map_err(Error::Source)?;
                    if now.is_none_or(|now| !now.addresses.contains(&address)) {
                        self.release(&holding.id, claimed).await;
                    }
                }
                Err(Error::Busy(_)) => {}
                Err(Error::InUse(_)) => self.report_conflict(holding, address).await,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases the old ones of the claims in `left`, unless the object has the addresses by now.
    async fn release_left(
        &self,
        id: &str,
        left: BTreeMap<String, Claimed>,
        source: &impl HoldingSource,
    ) -> Result<(), Error> {
        let left: Vec<_> = left.into_values().filter(|it| it.is_old).map(|it| it.address).collect();
        if left.is_empty() {
            return Ok(());
        }
        let now = source.holding(id).await.map_err(Error::Source)?.unwrap_or_default();
        let left = left.into_iter().filter(|it| !now.addresses.contains(&it.address));
        self.release(id, left.collect()).await;
        Ok(())
    }

    /// Returns the claims of all objects, by object and address.
    async fn claimed(
        &self,
        now: SystemTime,
    ) -> Result<BTreeMap<String, BTreeMap<String, Claimed>>, Error> {
        let (mut all, mut page_token) = (BTreeMap::<_, BTreeMap<_, _>>::new(), String::new());
        loop {
            let noun = self.noun.to_owned();
            let request =
                pb::ListClaimsRequest { page_size: PAGE_SIZE, page_token, noun, addresses: vec![] };
            let page = self.list(request).await?;
            for claim in page.claims {
                let Some(id) = object_id(&claim, self.noun) else { continue };
                let found = Claimed::new(&claim, now);
                all.entry(id).or_default().insert(found.address.address.clone(), found);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Claims `addresses` for the object of `holding`, also if an object has them that has ended.
    async fn claim(
        &self,
        holding: &Holding,
        addresses: Vec<String>,
        source: &impl HoldingSource,
    ) -> Result<Vec<pb::ClaimedAddress>, Error> {
        let mut request = self.claim_request(holding, addresses);
        loop {
            let refused = match self.call(request.clone()).await {
                Ok(claimed) => return Ok(claimed.addresses),
                Err(status) => status,
            };
            let Some(used) = AddressInUse::from_status(&refused) else {
                return Err(Error::Unavailable(Box::new(refused)));
            };
            if used.noun != self.noun {
                return Err(Error::InUse(Box::new(used)));
            }
            let other = source.holding(&used.id).await.map_err(Error::Source)?.unwrap_or_default();
            if other.addresses.contains(&used.address) {
                return Err(Error::InUse(Box::new(used)));
            }
            // All its claims of these addresses are taken over, so it must have none of them.
            if let Some(address) = request.addresses.iter().find(|it| other.addresses.contains(it))
            {
                let text = format!("{address} is of {} {}", used.noun, used.id);
                let address = address.clone();
                return Err(Error::InUse(Box::new(AddressInUse { address, text, ..used })));
            }
            if request.ended_object_ids.contains(&used.id) {
                return Err(Error::Busy(used.address));
            }
            request.ended_object_ids.push(used.id);
        }
    }

    /// Has an alarm recorded: the object of `holding` is stored with an `address` that another one has.
    async fn report_conflict(&self, holding: &Holding, address: String) {
        let request = self.claim_request(holding, vec![address]);
        let request = pb::ClaimAddressesRequest { stored: true, ..request };
        if let Err(status) = self.call(request).await {
            tracing::debug!(reason = status.message(), "conflict reported");
        }
    }

    /// Returns the claims of `addresses`, with their revisions.
    async fn revisions(&self, addresses: Vec<String>) -> Result<Vec<pb::ClaimedAddress>, Error> {
        let request = pb::ListClaimsRequest { addresses, ..pb::ListClaimsRequest::default() };
        Ok(self.list(request).await?.claims.iter().map(claimed_address).collect())
    }

    async fn list(&self, request: pb::ListClaimsRequest) -> Result<pb::ListClaimsResponse, Error> {
        self.call(request).await.map_err(|status| Error::Unavailable(Box::new(status)))
    }

    /// Releases claims of the object `id`. If that fails, the next comparison does it.
    async fn release(&self, id: &str, addresses: Vec<pb::ClaimedAddress>) {
        if addresses.is_empty() {
            return;
        }
        let (noun, object_id) = (self.noun.to_owned(), id.to_owned());
        let request = pb::ReleaseAddressesRequest { noun, object_id, addresses };
        if let Err(status) = self.call(request).await {
            let reason = status.message();
            tracing::info!(noun = self.noun, object.id = id, reason, "addresses not released yet");
        }
    }

    /// Makes a call; the response is empty without an address service.
    async fn call<R: Call>(&self, request: R) -> Result<R::Response, Status> {
        let Some(address) = self.address.clone() else { return Ok(R::Response::default()) };
        crate::response(client::unary(&mut Grpc::new(address), request)).await
    }

    fn claim_request(&self, of: &Holding, addresses: Vec<String>) -> pb::ClaimAddressesRequest {
        let Holding { id, tenant, hardware_id, macs, .. } = of.clone();
        let holder = pb::ClaimHolder { noun: self.noun.into(), object_id: id, tenant, hardware_id };
        pb::ClaimAddressesRequest { holder: Some(holder), addresses, macs, ..Default::default() }
    }
}

/// The claim of an address.
#[derive(Debug)]
struct Claimed {
    address: pb::ClaimedAddress,
    is_old: bool,
}

impl Claimed {
    fn new(claim: &pb::Claim, now: SystemTime) -> Self {
        let at = claim.update_time.and_then(|at| SystemTime::try_from(at).ok());
        let age = at.and_then(|at| now.duration_since(at).ok());
        Self { address: claimed_address(claim), is_old: age.is_some_and(|age| age >= LEFT_AGE) }
    }
}

fn claimed_address(claim: &pb::Claim) -> pb::ClaimedAddress {
    let address = claim.block.split('/').next().unwrap_or_default().to_owned();
    pb::ClaimedAddress { address, revision: claim.revision, is_new: false }
}

/// Returns the id of the object `noun` that holds `claim`.
fn object_id(claim: &pb::Claim, noun: &str) -> Option<String> {
    if claim.noun == noun {
        return Some(claim.object_id.clone());
    }
    claim.sharers.iter().find(|it| it.noun == noun).map(|it| it.object_id.clone())
}

/// Returns the addresses that `some` has and `others` has not.
fn difference(some: Option<&Holding>, others: Option<&Holding>) -> Vec<String> {
    let Some(some) = some else { return Vec::new() };
    let is_other = |it: &&String| others.is_none_or(|others| !others.addresses.contains(*it));
    some.addresses.iter().filter(is_other).cloned().collect()
}

#[cfg(test)]
mod tests;
