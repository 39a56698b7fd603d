//! The grants in the store: created, confirmed, released, and freed in time.
//!
//! ```text
//! pending ──confirmed or attached──▶ active ──released──▶ released ──hold is over──▶ gone
//!    ├────────────────────────released────────────────────────▲
//!    └──neither within ten minutes──▶ gone, as if it had never been
//!
//! address/grant/<id>                        the record
//! address/grant-subnet/<subnet>/<id>        ─▶ id
//! address/grant-due/<seconds>/<id>          ─▶ id; the end of its state
//! address/grant-instance/<instance>/<id>    ─▶ id; the grants that are attached to an instance
//! address/grant-primary/<instance>.<mac>    ─▶ id; the address that DHCP gives an interface
//! address/key/<tenant>/<key>                ─▶ id; stays for ever, unless the grant was never active
//! address/retired/<id>                      ─▶ tenant; a grant that is gone: its release may be repeated for ever
//! address/usage/<subnet>/<tenant>           the number of grants of the tenant that are not released
//! ```
//!
//! A grant is created in one commit with its claim. If the process dies between the commit and its answer, the caller repeats the
//! request with the same key and gets the same grant. If the caller is gone too, the grant is freed after ten minutes.
//!
//! A commit that another writer came before is repeated with what is stored now. A first attempt is made at once; repeated ones of
//! a process wait for each other, so that many writers of one chunk or of one tenant do not all lose again.

pub mod attach;
mod change;
mod expiry;
mod located;
mod plan;

use std::time::Duration;

use nouns::Served;
use runtime::Clock;
use store::records::{Index, Kind, Records};
use store::{ScopedStore, Store as _};
use tinwright::Stored as _;
use tinwright::address::v1 as pb;
use tinwright::status::Violations;
use tinwright::{GrantId, TenantName, check};

use crate::Error;
use crate::attempts::Turns;
use crate::bindings::{Bindings, MAX_GROUP_BYTES};
use crate::block::Block;
use crate::claims::{Claims, Holder};
use crate::ranges::Ranges;
use crate::subnets::{GRANT_INDEX, Subnets};

/// The time within which a grant has to be confirmed or attached.
pub const PENDING_TIME: Duration = Duration::from_secs(10 * 60);
/// The index of grants by the end of their state.
const DUE_INDEX: &str = "grant-due";
/// The index of grants by the instance that they are attached to.
const INSTANCE_INDEX: &str = "grant-instance";
/// The index of grants by the interface to which DHCP gives their address.
const PRIMARY_INDEX: &str = "grant-primary";
const MAX_KEY_BYTES: usize = 128;

/// The kind of these records.
#[derive(Debug)]
pub enum GrantKind {}

impl Kind for GrantKind {
    type Record = pb::Grant;
    type Id = GrantId;
    const KIND: &'static str = "grant";
    const INDEXES: &'static [&'static str] =
        &[GRANT_INDEX, DUE_INDEX, INSTANCE_INDEX, PRIMARY_INDEX];

    fn name(grant: &pb::Grant) -> &str {
        &grant.block
    }

    fn indexes(grant: &pb::Grant) -> Vec<Index> {
        let due =
            grant.due_time.map(|due| Index::shared(DUE_INDEX, format!("{:020}", due.seconds)));
        let subnet = Index::shared(GRANT_INDEX, &grant.subnet_id);
        let attached = grant.attachment.as_ref();
        let instance = attached.map(|it| Index::shared(INSTANCE_INDEX, &it.instance_id));
        let interface = |it: &pb::Attachment| format!("{}.{}", it.instance_id, it.mac);
        let primary = attached.filter(|it| it.primary);
        let primary = primary.map(|it| Index::unique(PRIMARY_INDEX, interface(it)));
        [Some(subnet), due, instance, primary].into_iter().flatten().collect()
    }

    fn changed_fields(old: &pb::Grant, new: &pb::Grant) -> Vec<String> {
        let is_attached = old.attachment != new.attachment;
        is_attached.then(|| "attachment".to_owned()).into_iter().collect()
    }
}

impl Served for GrantKind {}

/// The grants.
#[derive(Clone, Debug)]
pub struct Grants {
    /// The underlying records.
    pub records: Records<GrantKind>,
    /// The claims of all objects.
    pub claims: Claims,
    /// The subnets.
    pub subnets: Subnets,
    /// The ranges.
    pub ranges: Ranges,
    /// The bindings of locations.
    pub bindings: Bindings,
    /// The clock that gives the times of states.
    pub(crate) clock: Clock,
    /// The turns of repeated commits.
    pub(crate) turns: Turns,
}

impl Grants {
    /// The grants in `store`, whose keys are the address service's. `clock` gives the times of states.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let subnets = Subnets::new(store.clone(), clock.clone());
        let ranges = Ranges::new(store.clone(), subnets.clone(), clock.clone());
        let bindings = Bindings::new(store.clone(), clock.clone());
        let (records, claims) = (Records::new(store.clone()), Claims::new(store));
        Self { records, claims, subnets, ranges, bindings, clock, turns: Turns::default() }
    }

    /// Grants a block as `wanted` says, or returns the grant that has its key.
    pub async fn create(&self, wanted: pb::Grant) -> Result<pb::Grant, Error> {
        let wanted = checked(wanted)?;
        self.turns.repeat(|| self.try_create(&wanted)).await
    }

    /// Confirms a grant that `tenant` may see; if it is `use_only`, only makes it active.
    pub async fn confirm(
        &self,
        id: GrantId,
        use_only: bool,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        self.turns.repeat(|| self.try_confirm(id, use_only, tenant)).await
    }

    /// Releases a grant that `tenant` may see. `revision` 0 is any.
    pub async fn release(
        &self,
        id: GrantId,
        revision: i64,
        tenant: Option<&TenantName>,
    ) -> Result<(), Error> {
        let release = || self.try_release(id, revision, tenant);
        if revision == 0 { self.turns.repeat(release).await } else { release().await }
    }

    /// Returns the grant `id`, if `tenant` may see it.
    pub async fn get(&self, id: &str, tenant: Option<&TenantName>) -> Result<pb::Grant, Error> {
        let found = self.records.get(id).await?.filter(|it| it.is_visible_to(tenant));
        Ok(found.ok_or_else(|| missing(id))?)
    }

    /// Returns the grant with this key of a tenant.
    pub async fn by_key(&self, tenant: &str, key: &str) -> Result<pb::Grant, Error> {
        let found = self.records.store().get(&key_entry(tenant, key)).await?;
        let id = found.map(|found| String::from_utf8_lossy(&found.value).into_owned());
        let grant = match id {
            Some(id) => self.records.get(&id).await?,
            None => None,
        };
        Ok(grant.ok_or_else(|| missing(key))?)
    }

    /// Returns the grant of exactly `block`, if `tenant` may see it.
    pub async fn by_block(
        &self,
        block: Block,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        let claim = self.claims.records.get(&block.key()).await?;
        match claim.filter(|claim| claim.noun == Holder::GRANT) {
            Some(claim) => {
                let found = self.records.get(&claim.object_id).await?;
                let found = found.filter(|it| it.is_visible_to(tenant));
                Ok(found.ok_or_else(|| missing(&block.to_string()))?)
            }
            None => Err(missing(&block.to_string()).into()),
        }
    }
}

fn missing(name: &str) -> store::records::Error {
    store::records::Error::Missing { noun: "grant", name: name.to_owned() }
}

/// Returns the key under which the caller's `key` is stored. No name of a tenant has a slash.
fn key_entry(tenant: &str, key: &str) -> String {
    format!("key/{tenant}/{key}")
}

/// Returns `grant` as the holder of its block.
fn holder(grant: &pb::Grant) -> Holder {
    Holder { noun: Holder::GRANT, id: grant.id.clone(), tenant: grant.tenant.clone() }
}

/// Returns the block of a stored grant.
pub(crate) fn block(grant: &pb::Grant) -> Result<Block, store::Error> {
    let corrupt = |_| store::Error::Corrupt(format!("grant/{}", grant.id));
    grant.block.parse().map_err(corrupt)
}

/// Returns the wanted grant in its stored form, if its fields are valid by themselves.
fn checked(mut grant: pb::Grant) -> Result<pb::Grant, Violations> {
    let mut wrong = Violations::default();
    if !grant.tenant.is_empty() {
        wrong.take("grant.tenant", grant.tenant.parse::<TenantName>());
    }
    wrong.take("grant.labels", check::labels(&grant.labels));
    wrong.take("grant.key", check::length(&grant.key, MAX_KEY_BYTES));
    if grant.key.chars().any(char::is_control) {
        wrong.add("grant.key", "has control characters");
    }
    wrong.normalize_optional("grant.block", &mut grant.block, str::parse::<Block>);
    let parse = str::parse::<tinwright::SubnetId>;
    wrong.normalize_optional("grant.subnet_id", &mut grant.subnet_id, parse);
    let parse = str::parse::<tinwright::RangeId>;
    wrong.normalize_optional("grant.range_id", &mut grant.range_id, parse);
    let parse = str::parse::<tinwright::LocationId>;
    wrong.normalize_optional("grant.location_id", &mut grant.location_id, parse);
    let names_block =
        !(grant.subnet_id.is_empty() && grant.range_id.is_empty() && grant.block.is_empty());
    match (grant.location_id.is_empty(), names_block) {
        (true, false) => {
            wrong.add(
                "grant.subnet_id",
                "is missing: give a subnet, a range, a block or a location",
            );
        }
        (false, true) => {
            wrong.add("grant.location_id", "is set beside a subnet, a range or a block");
        }
        (true, true) | (false, false) => {}
    }
    check_location(&grant, &mut wrong);
    wrong.into_result(grant)
}

/// Checks the fields that go with a location.
fn check_location(grant: &pb::Grant, wrong: &mut Violations) {
    wrong.take("grant.group", check::length(&grant.group, MAX_GROUP_BYTES));
    if pb::AddressFamily::try_from(grant.family).is_err() {
        wrong.add("grant.family", "is not a value of its enum");
    }
    if grant.location_id.is_empty() {
        if !grant.group.is_empty() {
            wrong.add("grant.group", "is set without location_id");
        }
        if grant.family() != pb::AddressFamily::Unspecified {
            wrong.add("grant.family", "is set without location_id");
        }
    }
}

#[cfg(test)]
mod tests;
