//! The subnets in the store, and the rules for them.
//!
//! ```text
//! address/subnet/<id>             the record
//! address/subnet-name/<name>      ─▶ id
//! address/subnets                 written by each creation of a subnet, so that no two that overlap are created at the same time
//! ```
//!
//! A range is created in a commit that writes its subnet's record again, and a grant in one that expects it unchanged. So a subnet that
//! is being deleted, and was marked as draining, gets neither.

use std::net::IpAddr;
use std::time::Duration;

use nouns::{Delete, Edit, Noun, Served};
use runtime::Clock;
use store::records::{self, Change, Index, Kind, Records};
use store::{Commit, Expect, ScopedStore, Store as _, Write};
use tinwright::address::v1 as pb;
use tinwright::status::Violations;
use tinwright::{SubnetId, TenantName, check};

use crate::Error;
use crate::block::{Block, Family, InvalidBlock, Span, bits};
use crate::claims::{Claims, Holder};
use crate::ranges::RangeKind;

/// The index of subnets by name.
const NAME_INDEX: &str = "subnet-name";
/// The index of ranges by subnet.
pub(crate) const RANGE_INDEX: &str = "range-subnet";
/// The index of grants by subnet.
pub(crate) const GRANT_INDEX: &str = "grant-subnet";
/// The key that each creation of a subnet writes.
const TABLE: &str = "subnets";

/// The time for which a released address is held back, if its subnet does not say.
pub const DEFAULT_HOLD: Duration = Duration::from_secs(10 * 60);
const MAX_EXCLUDED: usize = 64;
/// The most tenants with a quota of their own.
pub(crate) const MAX_TENANT_QUOTAS: usize = 1000;
const PAGE_RECORDS: usize = 500;

/// The kind of these records.
#[derive(Debug)]
pub enum SubnetKind {}

impl Kind for SubnetKind {
    type Record = pb::Subnet;
    type Id = SubnetId;
    const KIND: &'static str = "subnet";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn indexes(subnet: &pb::Subnet) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &subnet.name)]
    }
}

impl Served for SubnetKind {
    const NAME_INDEX: &'static str = NAME_INDEX;

    fn indexed_name(name: String) -> Result<String, String> {
        Ok(name)
    }
}

/// The subnets.
#[derive(Clone, Debug)]
pub struct Subnets {
    records: Records<SubnetKind>,
    claims: Claims,
    clock: Clock,
}

impl Subnets {
    /// The subnets in `store`, whose keys are the address service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store.clone()), claims: Claims::new(store), clock }
    }

    /// Returns the subnet `id` if something may be created in it.
    pub(crate) async fn usable(&self, field: &str, id: &str) -> Result<pb::Subnet, Error> {
        let id: SubnetId = Violations::parse(field, id)?;
        let subnet = self.records.require(&id.to_string()).await?;
        if subnet.draining {
            return Err(Error::Precondition {
                reason: "DRAINING",
                subject: format!("subnet/{}", subnet.id),
                text: format!("subnet {} is being deleted", subnet.name),
            });
        }
        Ok(subnet)
    }

    /// Returns a subnet that has an address of `span`.
    pub(crate) async fn overlapping(&self, span: Span) -> Result<Option<pb::Subnet>, Error> {
        let mut after = String::new();
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or_else(String::new, |last| last.id.clone());
            for subnet in page {
                if network(&subnet)?.span().overlaps(span) {
                    return Ok(Some(subnet));
                }
            }
            if !more {
                return Ok(None);
            }
        }
    }

    /// Fails if `subnet` has ranges or grants.
    async fn check_unused(&self, subnet: &pb::Subnet) -> Result<(), Error> {
        for (index, noun) in [(RANGE_INDEX, "range"), (GRANT_INDEX, "grant")] {
            let prefix = format!("{index}/{}/", subnet.id);
            let found = self.records.store().list(&prefix, "", 1).await?;
            if let Some((key, _)) = found.pairs.first() {
                let id = key.strip_prefix(&prefix).unwrap_or_default();
                let title =
                    if index == RANGE_INDEX { self.range_title(id).await? } else { id.to_owned() };
                return Err(Error::Precondition {
                    reason: "SUBNET_IN_USE",
                    subject: format!("{noun}/{id}"),
                    text: format!("subnet {} has {noun} {title}", subnet.name),
                });
            }
        }
        Ok(())
    }

    /// Returns the name of the range `id`; its id if it was deleted meanwhile.
    async fn range_title(&self, id: &str) -> Result<String, Error> {
        let ranges = Records::<RangeKind>::new(self.records.store().clone());
        Ok(ranges.get(id).await?.map_or_else(|| id.to_owned(), |range| range.name))
    }

    /// Returns the change by which no other subnet is created meanwhile.
    async fn to_write_table(&self) -> Result<Change, Error> {
        let found = self.records.store().get(TABLE).await?;
        let expect = match found {
            None => Expect::Absent(TABLE.into()),
            Some(found) => Expect::At(TABLE.into(), found.revision),
        };
        let write = Write::Put(TABLE.into(), Vec::new().into());
        Ok(Commit { expect: vec![expect], writes: vec![write] }.into())
    }

    async fn to_claim_gateway(&self, subnet: &pb::Subnet) -> Result<Change, Error> {
        self.claims.to_exchange(None, claimed_gateway(subnet)?, &holder(subnet)).await
    }
}

impl Noun for Subnets {
    type Kind = SubnetKind;
    type Error = Error;

    fn records(&self) -> &Records<SubnetKind> {
        &self.records
    }
}

impl Edit for Subnets {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(
        &self,
        subnet: pb::Subnet,
        old: Option<&pb::Subnet>,
    ) -> Result<pb::Subnet, Violations> {
        let draining = old.is_some_and(|old| old.draining);
        let subnet = checked(subnet, old.map_or("", |old| &old.gateway))?;
        Ok(pb::Subnet { draining, ..subnet })
    }

    /// Claims the gateway.
    async fn before_create(&self, subnet: &mut pb::Subnet) -> Result<Change, Error> {
        let table = self.to_write_table().await?;
        if let Some(other) = self.overlapping(network(subnet)?.span()).await? {
            return Err(Error::Overlaps {
                text: format!("{} overlaps {} of subnet {}", subnet.cidr, other.cidr, other.name),
                noun: "subnet",
                id: other.id,
            });
        }
        Ok(table.and(self.to_claim_gateway(subnet).await?))
    }

    /// Claims another gateway in place of the old one.
    async fn before_update(&self, old: &pb::Subnet, new: &pb::Subnet) -> Result<Change, Error> {
        if new.gateway == old.gateway {
            return Ok(Change::default());
        }
        let (freed, wanted) = (claimed_gateway(old)?, claimed_gateway(new)?);
        self.claims.to_exchange(freed, wanted, &holder(old)).await
    }
}

impl Delete for Subnets {
    /// Deletes a subnet without ranges and grants.
    async fn delete(&self, id: SubnetId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        if old.protect {
            return Err(Error::Precondition {
                reason: "PROTECTED",
                subject: format!("subnet/{}", old.id),
                text: format!("subnet {} is protected", old.name),
            });
        }
        if !old.draining {
            self.check_unused(&old).await?;
        }
        // What is created since expects the subnet as it was, and fails, or finds it draining.
        let draining = pb::Subnet { draining: true, ..old.clone() };
        let draining = self.records.replace(&old, draining).await?;
        if let Err(used) = self.check_unused(&draining).await {
            let restored = pb::Subnet { draining: false, ..draining.clone() };
            self.records.replace(&draining, restored).await?;
            return Err(used);
        }
        let gateway = claimed_gateway(&draining)?;
        let gateway = self.claims.to_exchange(gateway, None, &holder(&draining)).await?;
        self.records.commit(self.records.to_delete(&draining).and(gateway)).await?;
        Ok(())
    }
}

/// Returns `subnet` as the holder of its gateway.
fn holder(subnet: &pb::Subnet) -> Holder {
    Holder { noun: Holder::SUBNET, id: subnet.id.clone(), tenant: String::new() }
}

/// Returns the network of a stored subnet.
pub(crate) fn network(subnet: &pb::Subnet) -> Result<Block, records::Error> {
    let corrupt = |_| store::Error::Corrupt(format!("subnet/{}", subnet.id));
    Ok(subnet.cidr.parse().map_err(corrupt)?)
}

/// Returns the gateway of a stored subnet, if it is an address of the network.
fn claimed_gateway(subnet: &pb::Subnet) -> Result<Option<Block>, records::Error> {
    let gateway = subnet.gateway.parse::<Block>().ok();
    let network = network(subnet)?.span();
    Ok(gateway.filter(|gateway| network.contains(gateway.span())))
}

/// Returns the time for which a released address of `subnet` is held back.
pub(crate) fn hold(subnet: &pb::Subnet) -> Duration {
    subnet.hold.map_or(DEFAULT_HOLD, |hold| hold.try_into().unwrap_or(DEFAULT_HOLD))
}

/// Returns the most grants that `tenant` may have in `subnet`; none for any number.
pub(crate) fn quota(subnet: &pb::Subnet, tenant: &str) -> Option<i64> {
    if tenant.is_empty() {
        return None;
    }
    match subnet.tenant_quotas.get(tenant) {
        Some(quota) => Some(*quota),
        None => Some(subnet.quota).filter(|quota| *quota > 0),
    }
}

/// Parses a network, which has its number of bits.
fn with_prefix_length(text: &str) -> Result<Block, String> {
    let block: Block = text.parse().map_err(|error: InvalidBlock| error.to_string())?;
    match text.contains('/') {
        true => Ok(block),
        false => {
            let example = if text.contains(':') { "2001:db8::/64" } else { "192.0.2.0/24" };
            Err(format!("{text} has no prefix length, as {example} has"))
        }
    }
}

/// Passes if hosts of `network` can have `gateway` as their gateway. A /31 or /32 has no address for one (RFC 3021), and an IPv6 network may
/// have a link-local one: it is outside then.
fn check_gateway(network: Block, gateway: IpAddr) -> Result<(), String> {
    if network.family() != Family::of(gateway) {
        return Err(format!("{gateway} is not of the family of {network}"));
    }
    if network.family() != Family::V4 || network.length() > 30 {
        return Ok(());
    }
    let (first, last) = network.span().bounds();
    match bits(gateway) {
        outside if outside < first || outside > last => {
            Err(format!("{gateway} is outside of {network}"))
        }
        address if address == first => {
            Err(format!("{gateway} is the network address of {network}"))
        }
        address if address == last => {
            Err(format!("{gateway} is the broadcast address of {network}"))
        }
        _ => Ok(()),
    }
}

/// Returns `subnet` in its stored form, if its fields are valid. Its gateway may be the `stored` one, also of an earlier version.
fn checked(mut subnet: pb::Subnet, stored: &str) -> Result<pb::Subnet, Violations> {
    let mut wrong = Violations::default();
    wrong.take("subnet.name", subnet.name.parse::<TenantName>().map_err(|_| name_rule()));
    wrong.take("subnet.labels", check::labels(&subnet.labels));
    let network = wrong.normalize("subnet.cidr", &mut subnet.cidr, with_prefix_length);
    let gateway = wrong.normalize_optional("subnet.gateway", &mut subnet.gateway, check::address);
    if let (Some(network), Some(gateway)) = (network, gateway)
        && subnet.gateway != stored
    {
        wrong.take("subnet.gateway", check_gateway(network, gateway));
    }
    wrong.each("subnet.excluded", &mut subnet.excluded, MAX_EXCLUDED, |text, wrong| {
        let span = wrong.take("", text.parse::<Span>());
        if let (Some(network), Some(span)) = (network, span)
            && !network.span().contains(span)
        {
            wrong.add("", format!("{span} is not in {network}"));
        }
    });
    if let Some(hold) = subnet.hold
        && Duration::try_from(hold).is_err()
    {
        wrong.add("subnet.hold", "is not a duration");
    }
    wrong.take("subnet.tenant_quotas", check::count(subnet.tenant_quotas.len(), MAX_TENANT_QUOTAS));
    for (tenant, quota) in &subnet.tenant_quotas {
        let field = format!("subnet.tenant_quotas[{tenant}]");
        wrong.take(field.clone(), tenant.parse::<TenantName>());
        if *quota < 0 {
            wrong.add(field, "is negative");
        }
    }
    if subnet.quota < 0 {
        wrong.add("subnet.quota", "is negative");
    }
    wrong.into_result(subnet)
}

/// Returns the rule for names of subnets and ranges, which is that of tenants.
pub(crate) fn name_rule() -> &'static str {
    "is not a name: lower-case letters, digits and inner hyphens, at most 63"
}
