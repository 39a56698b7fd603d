//! The block that a new grant gets, and what it depends on.

use nouns::Noun as _;
use store::Store as _;
use store::records::{Change, Kind as _};
use tinwright::GrantId;
use tinwright::address::v1 as pb;
use tinwright::status::Violations;

use super::Grants;
use crate::Error;
use crate::block::{Block, Family, Span};
use crate::ranges::span;
use crate::search::{Found, Search};
use crate::subnets::{SubnetKind, network};

/// A block that is free, as far as was read.
pub(super) struct Plan {
    pub(super) block: Block,
    pub(super) subnet: pb::Subnet,
    pub(super) range: Option<pb::Range>,
}

impl Plan {
    /// Returns the change that fails if the subnet or the range was changed since.
    pub(super) fn unchanged(&self, grants: &Grants) -> Change {
        let subnet = grants.subnets.records().unchanged(&self.subnet);
        match &self.range {
            Some(range) => subnet.and(grants.ranges.records().unchanged(range)),
            None => subnet,
        }
    }
}

impl Grants {
    /// Returns a block for `wanted`.
    pub(super) async fn plan(&self, wanted: &pb::Grant) -> Result<Plan, Error> {
        if !wanted.location_id.is_empty() {
            return self.plan_located(wanted).await;
        }
        match wanted.block.parse() {
            Ok(block) => self.plan_block(wanted, block).await,
            Err(_) => self.plan_free(wanted).await,
        }
    }

    /// Returns the plan for the wanted `block`.
    async fn plan_block(&self, wanted: &pb::Grant, block: Block) -> Result<Plan, Error> {
        let invalid = |text: String| Error::from(Violations::single("grant.block", text));
        let found = self.subnets.overlapping(block.span()).await?;
        let is_inside = |subnet: &pb::Subnet| {
            network(subnet).is_ok_and(|network| network.span().contains(block.span()))
        };
        let Some(subnet) = found.filter(is_inside) else {
            return Err(invalid(format!("{block} is in no subnet")));
        };
        let subnet = self.subnets.usable("grant.subnet_id", &subnet.id).await?;
        if !wanted.subnet_id.is_empty() && wanted.subnet_id != subnet.id {
            return Err(invalid(format!("{block} is not in the wanted subnet")));
        }
        if let Some(reason) = not_grantable(&subnet, block)? {
            return Err(invalid(format!("{block} {reason}")));
        }
        let mut in_range = None;
        for range in self.ranges.of_subnet(&subnet.id).await? {
            let addresses = span(&range)?;
            if !addresses.overlaps(block.span()) {
                continue;
            }
            if range.kind() == pb::RangeKind::Dynamic {
                return Err(invalid(format!("{block} is for leases, in range {}", range.name)));
            }
            if addresses.contains(block.span()) && range.prefix_length == block.length() {
                in_range = Some(range);
            }
        }
        let is_wanted = |range: &pb::Range| range.id == wanted.range_id;
        if !wanted.range_id.is_empty() && !in_range.as_ref().is_some_and(is_wanted) {
            return Err(invalid(format!("{block} is not a block of the requested range")));
        }
        Ok(Plan { block, subnet, range: in_range })
    }

    /// Returns a plan for any free block of the wanted range, or of the wanted subnet.
    pub(super) async fn plan_free(&self, wanted: &pb::Grant) -> Result<Plan, Error> {
        let (subnet, ranges) = match wanted.range_id.as_str() {
            "" => {
                let subnet = self.subnets.usable("grant.subnet_id", &wanted.subnet_id).await?;
                let ranges = self.ranges.of_subnet(&subnet.id).await?;
                let is_static = |range: &pb::Range| range.kind() == pb::RangeKind::Static;
                (subnet, ranges.into_iter().filter(is_static).collect())
            }
            id => {
                let range = self.ranges.records().require(id).await?;
                let subnet = self.subnets.usable("grant.subnet_id", &range.subnet_id).await?;
                if !wanted.subnet_id.is_empty() && wanted.subnet_id != subnet.id {
                    let text = "is not that of the wanted range";
                    return Err(Violations::single("grant.subnet_id", text).into());
                }
                (subnet, vec![range])
            }
        };
        let mut name = format!("{} {}", SubnetKind::NOUN, subnet.name);
        let (mut taken, mut total) = (0, 0);
        for range in ranges {
            if range.kind() == pb::RangeKind::Dynamic {
                let text = format!("range {} is for leases", range.name);
                return Err(Violations::single("grant.range_id", text).into());
            }
            match self.search(&subnet, &range).await? {
                Found::Block(block) => return Ok(Plan { block, subnet, range: Some(range) }),
                Found::Exhausted { taken: more, total: all } => {
                    (taken, total) = (taken + more, total + all);
                }
            }
            if !wanted.range_id.is_empty() {
                name = format!("range {}", range.name);
            }
        }
        let delay = self.time_until_free(&subnet.id, &wanted.range_id).await?;
        Err(Error::Exhausted { name, taken, total, delay })
    }

    async fn search(&self, subnet: &pb::Subnet, range: &pb::Range) -> Result<Found, Error> {
        let store = self.records.store();
        let gateway: Option<Block> = subnet.gateway.parse().ok();
        let has_gateway =
            |block: Block| gateway.is_some_and(|gateway| block.span().contains(gateway.span()));
        let is_usable =
            |block| !has_gateway(block) && matches!(not_grantable(subnet, block), Ok(None));
        let search = Search::new(store, span(range)?, range.prefix_length, is_usable);
        // The last bytes of a new id are random.
        let seed = u128::from_be_bytes(GrantId::new().to_bytes());
        Ok(search.run(seed).await?)
    }

    /// Returns the number of grants of `tenant` in a subnet that are not released, and the change that sets it to another one.
    pub(super) async fn usage(
        &self,
        subnet: &str,
        tenant: &str,
    ) -> Result<(i64, impl Fn(i64) -> Change + use<>), Error> {
        use store::{Commit, Expect, Write};
        let key = format!("usage/{subnet}/{tenant}");
        let found = self.records.store().get(&key).await?;
        let count = match &found {
            None => 0,
            Some(found) => std::str::from_utf8(&found.value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| store::Error::Corrupt(key.clone()))?,
        };
        let expect = match found {
            None => Expect::Absent(key.clone()),
            Some(found) => Expect::At(key.clone(), found.revision),
        };
        let set = move |count: i64| {
            let write = match count {
                0 => Write::Delete(key.clone()),
                count => Write::Put(key.clone(), count.to_string().into()),
            };
            Change::from(Commit { expect: vec![expect.clone()], writes: vec![write] })
        };
        Ok((count, set))
    }
}

/// Returns the reason for which `block` is never granted in `subnet`, if there is one: it is excluded, or is a single address that no host
/// of the network may have.
fn not_grantable(subnet: &pb::Subnet, block: Block) -> Result<Option<String>, Error> {
    let network = network(subnet)?;
    let (first, last) = network.span().bounds();
    let has_reserved = network.family().width() - network.length() > 1;
    if block.is_single() && has_reserved {
        // RFC 4291 §2.6.1: the first address of an IPv6 network is any router of it. There is no broadcast address.
        let is_v4 = network.family() == Family::V4;
        if block.base() == first {
            let role = if is_v4 { "network address" } else { "address of any router" };
            return Ok(Some(format!("is the {role} of {network}")));
        }
        if is_v4 && block.base() == last {
            return Ok(Some(format!("is the broadcast address of {network}")));
        }
    }
    let excluded = subnet.excluded.iter().filter_map(|text| text.parse::<Span>().ok());
    let is_excluded = excluded.into_iter().any(|span| span.overlaps(block.span()));
    Ok(is_excluded.then(|| "is excluded in its subnet".to_owned()))
}
