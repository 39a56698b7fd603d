//! One holder per block of addresses. The module [`crate`] says how the keys keep two holders apart.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::str::FromStr;

use store::records::{self, Change, Records};
use store::{Commit, Expect, ScopedStore, Store as _, Write};
use tinwright::address::v1 as pb;

use crate::Error;
use crate::block::{Block, Span};
use crate::chunk::{Chunk, ChunkId};

store::kind!(
    /// The kind of the claims.
    pub ClaimKind: pb::Claim, ClaimId, "claim"
);

/// The id of a claim: [`Block::key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimId(String);

/// The text is not the id of a claim.
#[derive(Debug, thiserror::Error)]
#[error("no id of a claim")]
pub struct InvalidClaimId;

impl FromStr for ClaimId {
    type Err = InvalidClaimId;

    fn from_str(text: &str) -> Result<Self, InvalidClaimId> {
        let is_valid = text.starts_with(['4', '6']) && text.contains('-');
        is_valid.then(|| Self(text.to_owned())).ok_or(InvalidClaimId)
    }
}

impl std::fmt::Display for ClaimId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object that holds blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its noun.
    pub noun: &'static str,
    /// Its id.
    pub id: String,
    /// Its tenant; empty for the site.
    pub tenant: String,
}

impl Holder {
    /// The noun of grants.
    pub const GRANT: &'static str = "grant";
    /// The noun of subnets, which have their gateways.
    pub const SUBNET: &'static str = "subnet";
    /// The noun of machines, which have their reservations.
    pub const HARDWARE: &'static str = "hardware";
    /// The noun of instances.
    pub const INSTANCE: &'static str = "instance";

    fn claim(&self, block: Block) -> pb::Claim {
        pb::Claim {
            id: block.key(),
            block: block.to_string(),
            noun: self.noun.into(),
            object_id: self.id.clone(),
            tenant: self.tenant.clone(),
            ..pb::Claim::default()
        }
    }
}

/// Claims that are read at a time.
const PAGE_RECORDS: usize = 500;

/// The claims in the store.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The underlying records.
    pub records: Records<ClaimKind>,
}

impl Claims {
    /// The claims in `store`, whose keys are the address service's.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Returns the change by which `holder` gets `block`. Fails if a part of it is taken, and names who has it.
    pub async fn to_claim(&self, block: Block, holder: &Holder) -> Result<Change, Error> {
        self.to_exchange(None, Some(block), holder).await
    }

    /// Returns the change by which the holder of exactly `block` gives it back. Changes nothing if nobody holds it.
    pub async fn to_free(&self, block: Block, holder: &Holder) -> Result<Change, Error> {
        self.to_exchange(Some(block), None, holder).await
    }

    /// Returns the change by which `holder` gives back the block `freed`, if it has it, and gets the block `wanted`.
    pub async fn to_exchange(
        &self,
        freed: Option<Block>,
        wanted: Option<Block>,
        holder: &Holder,
    ) -> Result<Change, Error> {
        let (mut edits, mut records) = (Edits::new(self.records.store()), Change::default());
        if let Some(block) = freed
            && let Some(claim) = self.records.get(&block.key()).await?
            && claim.object_id == holder.id
        {
            edits.free(block).await?;
            records = records.and(self.records.to_delete(&claim));
        }
        if let Some(block) = wanted {
            if !edits.hold(block).await? {
                return Err(self.taken(block).await?);
            }
            records = records.and(self.records.to_create(&holder.claim(block)));
        }
        Ok(edits.into_change().and(records))
    }

    /// Returns the change that adds `claim`, which is of `block`. Fails if a part of that is taken, and names who has it.
    pub(crate) async fn to_add(&self, block: Block, claim: &pb::Claim) -> Result<Change, Error> {
        let mut edits = Edits::new(self.records.store());
        if !edits.hold(block).await? {
            return Err(self.taken(block).await?);
        }
        Ok(edits.into_change().and(self.records.to_create(claim)))
    }

    /// Returns the change that adds the claims of each of `requests`, and for each request if it is
    /// part of the change. A request of which an address is taken is not.
    pub(crate) async fn to_add_free(
        &self,
        requests: &[Vec<(Block, pb::Claim)>],
    ) -> Result<(Change, Vec<bool>), store::Error> {
        let mut edits = Edits::new(self.records.store());
        let mut records = Change::default();
        let mut added = Vec::with_capacity(requests.len());
        for claims in requests {
            let is_free = edits.hold_all(claims.iter().map(|(block, _)| *block)).await?;
            for (_, claim) in claims.iter().filter(|_| is_free) {
                records = records.and(self.records.to_create(claim));
            }
            added.push(is_free);
        }
        Ok((edits.into_change().and(records), added))
    }

    /// Returns the change that removes `claim`, which is of `block`.
    pub(crate) async fn to_remove(
        &self,
        block: Block,
        claim: &pb::Claim,
    ) -> Result<Change, store::Error> {
        let mut edits = Edits::new(self.records.store());
        edits.free(block).await?;
        Ok(edits.into_change().and(self.records.to_delete(claim)))
    }

    /// Returns a claim of an object `noun` that has an address of `span`, if there is one.
    pub async fn find_in(
        &self,
        span: Span,
        noun: &str,
    ) -> Result<Option<pb::Claim>, records::Error> {
        let (first, last) = span.bounds();
        let from = Block::around(span.family(), first, span.family().width());
        for block in from.supernets() {
            if let Some(claim) = self.records.get(&block.key()).await?.filter(|it| it.noun == noun)
            {
                return Ok(Some(claim));
            }
        }
        let prefix = format!("claim/{}", span.family().digit());
        let mut after = format!("claim/{}", from.base_key());
        loop {
            let page = self.records.store().list(&prefix, &after, PAGE_RECORDS).await?;
            for (key, _) in page.pairs {
                let id = key.strip_prefix("claim/").unwrap_or_default();
                let Some(claim) = self.records.get(id).await? else { continue };
                let Ok(block) = claim.block.parse::<Block>() else { continue };
                if block.base() > last {
                    return Ok(None);
                }
                if claim.noun == noun {
                    return Ok(Some(claim));
                }
                after = key;
            }
            if !page.more {
                return Ok(None);
            }
        }
    }

    /// Returns a claim that has an address of `block`, if there is one.
    pub async fn find(&self, block: Block) -> Result<Option<pb::Claim>, records::Error> {
        // The claims of the block and inside of it are the first ones after its base, in key order.
        let prefix = format!("claim/{}{}", block.family().digit(), ChunkId::of(block).hex());
        let after = format!("claim/{}", block.base_key());
        let page = self.records.store().list(&prefix, &after, 1).await?;
        for (key, _) in page.pairs {
            let id = key.strip_prefix("claim/").unwrap_or_default();
            let claim = self.records.get(id).await?;
            let is_inside = |claim: &pb::Claim| {
                claim.block.parse().is_ok_and(|it: Block| it.span().overlaps(block.span()))
            };
            if let Some(claim) = claim.filter(is_inside) {
                return Ok(Some(claim));
            }
        }
        for larger in block.supernets() {
            if let Some(claim) = self.records.get(&larger.key()).await? {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// Returns the error for `block`, of which a part is taken.
    async fn taken(&self, block: Block) -> Result<Error, records::Error> {
        Ok(match self.find(block).await? {
            Some(by) => Error::taken(block, by),
            // Given back since.
            None => Error::Busy,
        })
    }
}

/// Chunks that are read and changed for one commit.
struct Edits<'a> {
    store: &'a ScopedStore,
    chunks: BTreeMap<ChunkId, (Expect, Chunk)>,
}

impl<'a> Edits<'a> {
    fn new(store: &'a ScopedStore) -> Self {
        Self { store, chunks: BTreeMap::new() }
    }

    /// Reads a chunk. Changes of it are committed if it is still as read.
    async fn read(&mut self, id: ChunkId) -> Result<&mut Chunk, store::Error> {
        let (_, chunk) = match self.chunks.entry(id) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(fetch(self.store, id).await?),
        };
        Ok(chunk)
    }

    /// Marks the slots of `block` as held. False if a part of it is taken.
    async fn hold(&mut self, block: Block) -> Result<bool, store::Error> {
        let mut id = ChunkId::of(block);
        let chunk = self.read(id).await?;
        let mut is_new = chunk.is_empty();
        if !chunk.is_free(id.slots(block)) {
            return Ok(false);
        }
        chunk.set_held(id.slots(block), true);
        while is_new && let Some((above, slot)) = id.parent() {
            let chunk = self.read(above).await?;
            is_new = chunk.is_empty();
            if chunk.is_held(slot) {
                return Ok(false);
            }
            chunk.set_split(slot, true);
            id = above;
        }
        Ok(true)
    }

    /// Marks the slots of all `blocks` as held. Changes nothing and returns false if a part is taken.
    async fn hold_all(
        &mut self,
        blocks: impl Iterator<Item = Block>,
    ) -> Result<bool, store::Error> {
        let before = self.chunks.clone();
        for block in blocks {
            if !self.hold(block).await? {
                self.chunks = before;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Marks the slots of `block`, which is held, as free.
    async fn free(&mut self, block: Block) -> Result<(), store::Error> {
        let mut id = ChunkId::of(block);
        let chunk = self.read(id).await?;
        chunk.set_held(id.slots(block), false);
        let mut is_empty = chunk.is_empty();
        while is_empty && let Some((above, slot)) = id.parent() {
            let chunk = self.read(above).await?;
            chunk.set_split(slot, false);
            is_empty = chunk.is_empty();
            id = above;
        }
        Ok(())
    }

    fn into_change(self) -> Change {
        let mut commit = Commit::default();
        for (expect, chunk) in self.chunks.into_values() {
            let key = expect.key().to_owned();
            commit.expect.push(expect);
            commit.writes.push(match chunk.is_empty() {
                true => Write::Delete(key),
                false => Write::Put(key, chunk.encode().into()),
            });
        }
        commit.into()
    }
}

/// Reads a chunk, and returns it with the expectation that it stays so.
async fn fetch(store: &ScopedStore, id: ChunkId) -> Result<(Expect, Chunk), store::Error> {
    let key = id.key();
    let Some(found) = store.get(&key).await? else {
        return Ok((Expect::Absent(key), Chunk::default()));
    };
    let chunk = Chunk::decode(&found.value);
    let chunk = chunk.ok_or_else(|| store::Error::Corrupt(key.clone()))?;
    Ok((Expect::At(key, found.revision), chunk))
}

#[cfg(test)]
mod tests;
