//! Grants by location: from the ranges and subnets that are bound to it.

use std::time::Duration;

use nouns::Noun as _;
use store::records;
use tinwright::address::v1 as pb;
use tinwright::address::v1::AddressFamily;
use tinwright::status::Violations;

use super::Grants;
use super::plan::Plan;
use crate::Error;
use crate::block::Family;
use crate::ranges::span;

/// The counts of places without a free block.
#[derive(Default)]
struct Exhausted {
    taken: u128,
    total: u128,
    /// The shortest time after which a block is free.
    delay: Option<Duration>,
}

impl Grants {
    /// Returns a plan for a free block of the location that `wanted` names: of its ranges, and then of its subnets.
    pub(super) async fn plan_located(&self, wanted: &pb::Grant) -> Result<Plan, Error> {
        let location = Violations::parse("grant.location_id", &wanted.location_id)?;
        let bindings = &self.bindings;
        let binding = bindings.in_force(location, &wanted.tenant, &wanted.group).await?;
        let mut exhausted = Exhausted::default();
        for place in self.places(&binding, wanted).await? {
            match self.plan_free(&place).await {
                Err(Error::Exhausted { taken, total, delay, .. }) => {
                    exhausted.add(taken, total, delay)
                }
                // It is being deleted, or was deleted meanwhile.
                Err(
                    Error::Precondition { reason: "DRAINING", .. }
                    | Error::Records(records::Error::Missing { .. }),
                ) => {}
                plan => return plan,
            }
        }
        let Exhausted { taken, total, delay } = exhausted;
        if total == 0 {
            let text = "has no static range of the requested family that is bound to it";
            return Err(Violations::single("grant.location_id", text).into());
        }
        let name = format!("location {}", wanted.location_id);
        Err(Error::Exhausted { name, taken, total, delay })
    }

    /// Returns the grant `wanted` by each range of the requested family that `binding` has, or has by its subnets.
    async fn places(
        &self,
        binding: &pb::LocationBinding,
        wanted: &pb::Grant,
    ) -> Result<Vec<pb::Grant>, Error> {
        let mut ranges = Vec::new();
        for id in &binding.range_ids {
            // A bound range may be deleted.
            ranges.extend(self.ranges.records().get(id).await?);
        }
        for id in &binding.subnet_ids {
            ranges.extend(self.ranges.of_subnet(id).await?);
        }
        let mut places: Vec<pb::Grant> = Vec::new();
        for range in ranges {
            let family = span(&range)?.family();
            let is_known = places.iter().any(|place| place.range_id == range.id);
            let is_static = range.kind() == pb::RangeKind::Static;
            if is_static && !is_known && is_of(family, wanted.family()) {
                places.push(pb::Grant { range_id: range.id, ..wanted.clone() });
            }
        }
        Ok(places)
    }
}

/// True if addresses of `family` are `wanted`.
fn is_of(family: Family, wanted: AddressFamily) -> bool {
    match wanted {
        AddressFamily::Unspecified => true,
        AddressFamily::Ipv4 => family == Family::V4,
        AddressFamily::Ipv6 => family == Family::V6,
    }
}

impl Exhausted {
    fn add(&mut self, taken: u128, total: u128, delay: Option<Duration>) {
        self.taken += taken;
        self.total += total;
        self.delay = match (self.delay, delay) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}
