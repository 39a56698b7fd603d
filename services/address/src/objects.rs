//! The addresses that objects of other services have: reservations of machines, and addresses of instances.
//!
//! ```text
//! owner      claim what is new ──▶ store the object ──▶ release what it no longer has, or what was new if it was not stored
//! claim      address/claim/<block>: the holder, and further holders of the same machine
//! ```
//!
//! An object is stored with an address only while it holds the claim. A release names the revision of the claim as it was read before
//! the object was stored, and each call that claims an address writes the claim again. So a late release does not take an address from an
//! object that claimed it again meanwhile. What an owner that crashed leaves claimed, it releases later, when it compares the claims
//! with its objects.

mod batches;

use std::time::{Duration, SystemTime};

use runtime::Clock;
use tinwright::address::v1 as pb;

use self::batches::ClaimBatches;
use crate::Error;
use crate::attempts::Turns;
use crate::block::Block;
use crate::claims::Claims;
use crate::grants::Grants;

/// The age of a claim from which it is taken over from an object that has ended. A request that claims addresses has stored its
/// object by then.
pub const TAKE_OVER_AGE: Duration = Duration::from_secs(30);

/// The claims of objects.
#[derive(Clone, Debug)]
pub struct ObjectClaims {
    claims: Claims,
    batches: ClaimBatches,
    turns: Turns,
    clock: Clock,
}

impl ObjectClaims {
    /// The claims of objects beside `grants`.
    pub fn new(grants: &Grants) -> Self {
        let (claims, clock) = (grants.claims.clone(), grants.clock.clone());
        let batches = ClaimBatches::new(claims.clone());
        Self { claims, batches, turns: grants.turns.clone(), clock }
    }

    /// Claims all of `addresses` for `holder`, or none. Those of `ended` objects, which have its noun, are taken over.
    pub async fn claim(
        &self,
        holder: &pb::ClaimHolder,
        addresses: &[Block],
        ended: &[String],
    ) -> Result<Vec<pb::ClaimedAddress>, Error> {
        if let Some(claimed) = self.claim_free(holder, addresses).await {
            return Ok(claimed);
        }
        let mut claimed = Vec::new();
        for block in addresses {
            match self.claim_one(holder, *block, ended).await {
                Ok(one) => claimed.push(one),
                Err(error) => {
                    claimed.retain(|it: &pb::ClaimedAddress| it.is_new);
                    self.release(&holder.noun, &holder.object_id, &claimed).await?;
                    return Err(error);
                }
            }
        }
        Ok(claimed)
    }

    /// Releases those of `addresses` that the object holds and whose claims have the revisions still.
    pub async fn release(
        &self,
        noun: &str,
        id: &str,
        addresses: &[pb::ClaimedAddress],
    ) -> Result<(), Error> {
        for pb::ClaimedAddress { address, revision, .. } in addresses {
            let Ok(block) = address.parse() else { continue };
            self.turns.repeat(|| self.try_release(noun, id, block, *revision)).await?;
        }
        Ok(())
    }

    /// Returns the claims of exactly these addresses.
    pub async fn of(&self, addresses: &[Block]) -> Result<Vec<pb::Claim>, Error> {
        let mut claims = Vec::new();
        for block in addresses {
            claims.extend(self.claims.records.get(&block.key()).await?);
        }
        Ok(claims)
    }

    /// Claims all of `addresses` for `holder`, together with other requests. Returns none if one may be
    /// taken, or if the commit failed.
    async fn claim_free(
        &self,
        holder: &pb::ClaimHolder,
        addresses: &[Block],
    ) -> Option<Vec<pb::ClaimedAddress>> {
        let now = self.clock.wall();
        let claims = addresses.iter().map(|block| (*block, new_claim(*block, holder, now)));
        let revision = self.batches.add(claims.collect()).await?;
        let claimed = |block: &Block| {
            let address = block.address().to_string();
            pb::ClaimedAddress { address, revision, is_new: true }
        };
        Some(addresses.iter().map(claimed).collect())
    }

    async fn claim_one(
        &self,
        holder: &pb::ClaimHolder,
        block: Block,
        ended: &[String],
    ) -> Result<pb::ClaimedAddress, Error> {
        self.turns.repeat(|| self.try_claim(holder, block, ended)).await
    }

    async fn try_claim(
        &self,
        holder: &pb::ClaimHolder,
        block: Block,
        ended: &[String],
    ) -> Result<pb::ClaimedAddress, Error> {
        let (records, now) = (&self.claims.records, self.clock.wall());
        let (change, is_new) = match records.get(&block.key()).await? {
            None => {
                let add = self.claims.to_add(block, &new_claim(block, holder, now)).await;
                // It was claimed after it was read above, perhaps by somebody who may share it.
                let is_late = |error: &Error| matches!(error, Error::Taken { by, .. } if by.id == block.key());
                let add = add.map_err(|error| if is_late(&error) { Error::Busy } else { error });
                (add?, true)
            }
            Some(old) => {
                let (holders, is_new) =
                    joined(&old, holder, ended, now).map_err(|by| Error::taken(block, *by))?;
                let new = with_holders(old.clone(), holders, now).unwrap_or_default();
                (records.to_replace(&old, &new), is_new)
            }
        };
        let revision = records.commit(change).await?.0.cast_signed();
        Ok(pb::ClaimedAddress { address: block.address().to_string(), revision, is_new })
    }

    async fn try_release(
        &self,
        noun: &str,
        id: &str,
        block: Block,
        revision: i64,
    ) -> Result<(), Error> {
        let records = &self.claims.records;
        let found = records.get(&block.key()).await?;
        let Some(old) = found.filter(|claim| claim.revision == revision) else { return Ok(()) };
        let mut rest = holders(&old);
        rest.retain(|it| !is_object(it, noun, id));
        if rest.len() == holders(&old).len() {
            return Ok(());
        }
        let change = match with_holders(old.clone(), rest, self.clock.wall()) {
            Some(new) => records.to_replace(&old, &new),
            None => self.claims.to_remove(block, &old).await?,
        };
        records.commit(change).await?;
        Ok(())
    }
}

/// True if an object of this noun holds `claim`.
pub fn is_held_by(claim: &pb::Claim, noun: &str) -> bool {
    claim.noun == noun || claim.sharers.iter().any(|it| it.noun == noun)
}

fn is_object(holder: &pb::ClaimHolder, noun: &str, id: &str) -> bool {
    holder.noun == noun && holder.object_id == id
}

/// Returns all holders of a claim.
fn holders(claim: &pb::Claim) -> Vec<pb::ClaimHolder> {
    let pb::Claim { noun, object_id, tenant, hardware_id, sharers, .. } = claim.clone();
    let first = pb::ClaimHolder { noun, object_id, tenant, hardware_id };
    [first].into_iter().chain(sharers).collect()
}

/// Returns the claim of `block`, which only `holder` has, claimed at `now`.
fn new_claim(block: Block, holder: &pb::ClaimHolder, now: SystemTime) -> pb::Claim {
    let pb::ClaimHolder { noun, object_id, tenant, hardware_id } = holder.clone();
    pb::Claim {
        id: block.key(),
        block: block.to_string(),
        noun,
        object_id,
        tenant,
        hardware_id,
        update_time: Some(now.into()),
        ..pb::Claim::default()
    }
}

/// Returns `claim` with these holders in place of its own, claimed at `now`; none without holders.
fn with_holders(
    claim: pb::Claim,
    mut holders: Vec<pb::ClaimHolder>,
    now: SystemTime,
) -> Option<pb::Claim> {
    if holders.is_empty() {
        return None;
    }
    let sharers = holders.split_off(1);
    let pb::ClaimHolder { noun, object_id, tenant, hardware_id } = holders.pop()?;
    let update_time = Some(now.into());
    Some(pb::Claim { noun, object_id, tenant, hardware_id, sharers, update_time, ..claim })
}

/// Returns the holders of `claim` once `holder` is one of them, and whether it was none before. An error is the claim of another holder
/// that is in the way.
fn joined(
    claim: &pb::Claim,
    holder: &pb::ClaimHolder,
    ended: &[String],
    now: SystemTime,
) -> Result<(Vec<pb::ClaimHolder>, bool), Box<pb::Claim>> {
    let mut others = holders(claim);
    let before = others.len();
    others.retain(|it| !is_object(it, &holder.noun, &holder.object_id));
    let is_new = others.len() == before;
    let is_old = claim.update_time.is_some_and(|at| {
        let at = SystemTime::try_from(at).unwrap_or(SystemTime::UNIX_EPOCH);
        now.duration_since(at).is_ok_and(|age| age >= TAKE_OVER_AGE)
    });
    others.retain(|it| !(is_old && it.noun == holder.noun && ended.contains(&it.object_id)));
    let may_share = |it: &pb::ClaimHolder| {
        it.noun != holder.noun && !it.hardware_id.is_empty() && it.hardware_id == holder.hardware_id
    };
    if let Some(other) = others.iter().find(|it| !may_share(it)) {
        let pb::ClaimHolder { noun, object_id, tenant, hardware_id } = other.clone();
        let by = pb::Claim { noun, object_id, tenant, hardware_id, ..claim.clone() };
        return Err(Box::new(by));
    }
    others.push(holder.clone());
    Ok((others, is_new))
}

#[cfg(test)]
mod tests;
