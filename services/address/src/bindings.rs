//! The bindings of locations in the store: the subnets and ranges from which addresses of a location are granted.
//!
//! ```text
//! address/binding/<id>                                    the record
//! address/binding-place/<location>/<tenant>/<group>       ─▶ id; the group in hexadecimal digits
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use nouns::{Delete, Edit, Noun, Served, Viewer};
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Change, Index, Kind, Records};
use tinwright::address::v1 as pb;
use tinwright::status::Violations;
use tinwright::{LocationBindingId, LocationId, RangeId, SubnetId, TenantName, check};

use crate::Error;
use crate::ranges::RangeKind;
use crate::subnets::SubnetKind;

/// The index of bindings by location, tenant and group.
pub const PLACE_INDEX: &str = "binding-place";
const MAX_SUBNETS: usize = 16;
const MAX_RANGES: usize = 64;
/// The longest group.
pub(crate) const MAX_GROUP_BYTES: usize = 128;
const MAX_CONFIGURATION_BYTES: usize = 16 * 1024;
const MAX_CONFIGURATION_DEPTH: usize = 16;

/// The kind of these records.
#[derive(Debug)]
pub enum BindingKind {}

impl Kind for BindingKind {
    type Record = pb::LocationBinding;
    type Id = LocationBindingId;
    const KIND: &'static str = "binding";
    const INDEXES: &'static [&'static str] = &[PLACE_INDEX];

    fn indexes(binding: &pb::LocationBinding) -> Vec<Index> {
        let pb::LocationBinding { location_id, tenant, group, .. } = binding;
        vec![Index::unique(PLACE_INDEX, place(location_id, tenant, group))]
    }

    /// Returns no tenant: the events are the site's.
    fn tenant(_: &pb::LocationBinding) -> &str {
        ""
    }
}

impl Served for BindingKind {
    /// Hides the site's labels from callers with a tenant.
    fn show(viewer: &Viewer, mut binding: pb::LocationBinding) -> pb::LocationBinding {
        if viewer.tenant.is_some() {
            binding.labels.clear();
        }
        binding
    }
}

/// Returns the value of a binding in the index.
fn place(location: &str, tenant: &str, group: &str) -> String {
    let mut place = format!("{location}/{tenant}/");
    for byte in group.bytes() {
        // Writing to a string does not fail.
        let _ = write!(place, "{byte:02x}");
    }
    place
}

/// The bindings of locations.
#[derive(Clone, Debug)]
pub struct Bindings {
    records: Records<BindingKind>,
    subnets: Records<SubnetKind>,
    ranges: Records<RangeKind>,
    clock: Clock,
}

impl Bindings {
    /// The bindings in `store`, whose keys are the address service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let (subnets, ranges) = (Records::new(store.clone()), Records::new(store.clone()));
        Self { records: Records::new(store), subnets, ranges, clock }
    }

    /// Returns the binding in force for a group of a tenant: its own, else the tenant's, else the one for all.
    pub async fn in_force(
        &self,
        location: LocationId,
        tenant: &str,
        group: &str,
    ) -> Result<pb::LocationBinding, Error> {
        let location = location.to_string();
        let places = [(tenant, group), (tenant, ""), ("", "")];
        for (tenant, group) in places {
            let place = place(&location, tenant, group);
            if let Some(found) = self.records.find(PLACE_INDEX, &place).await? {
                return Ok(found);
            }
        }
        let name = format!("of location {location}");
        Err(records::Error::Missing { noun: BindingKind::NOUN, name }.into())
    }

    /// Passes if the subnets and ranges that `new` has and `old` has not exist, and the ranges are not for leases.
    async fn check_bound(
        &self,
        old: &pb::LocationBinding,
        new: &pb::LocationBinding,
    ) -> Result<(), Error> {
        for id in new.subnet_ids.iter().filter(|id| !old.subnet_ids.contains(*id)) {
            self.subnets.require(id).await?;
        }
        for id in new.range_ids.iter().filter(|id| !old.range_ids.contains(*id)) {
            let range = self.ranges.require(id).await?;
            if range.kind() == pb::RangeKind::Dynamic {
                let text = format!("range {} is for leases", range.name);
                return Err(Violations::single("location_binding.range_ids", text).into());
            }
        }
        Ok(())
    }
}

impl Noun for Bindings {
    type Kind = BindingKind;
    type Error = Error;

    fn records(&self) -> &Records<BindingKind> {
        &self.records
    }
}

impl Edit for Bindings {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Counts the versions of what is bound.
    fn checked(
        &self,
        binding: pb::LocationBinding,
        old: Option<&pb::LocationBinding>,
    ) -> Result<pb::LocationBinding, Violations> {
        let mut binding = checked(binding)?;
        let content = |it: &pb::LocationBinding| {
            (it.subnet_ids.clone(), it.range_ids.clone(), it.configuration.clone())
        };
        binding.version =
            old.map_or(1, |old| old.version + i64::from(content(old) != content(&binding)));
        Ok(binding)
    }

    async fn before_create(&self, binding: &mut pb::LocationBinding) -> Result<Change, Error> {
        self.check_bound(&pb::LocationBinding::default(), binding).await?;
        Ok(Change::default())
    }

    async fn before_update(
        &self,
        old: &pb::LocationBinding,
        new: &pb::LocationBinding,
    ) -> Result<Change, Error> {
        self.check_bound(old, new).await?;
        Ok(Change::default())
    }
}

impl Delete for Bindings {}

/// Returns `binding` in its stored form, if its fields are valid by themselves.
fn checked(mut binding: pb::LocationBinding) -> Result<pb::LocationBinding, Violations> {
    let mut wrong = Violations::default();
    let field = |name: &str| format!("location_binding.{name}");
    wrong.take(field("labels"), check::labels(&binding.labels));
    wrong.normalize(field("location_id"), &mut binding.location_id, str::parse::<LocationId>);
    wrong.normalize_optional(field("tenant"), &mut binding.tenant, str::parse::<TenantName>);
    wrong.take(field("group"), check::length(&binding.group, MAX_GROUP_BYTES));
    if !binding.group.is_empty() && binding.tenant.is_empty() {
        wrong.add(field("group"), "is set without a tenant");
    }
    let mut listed = BTreeSet::new();
    let mut is_new = |id: &str, wrong: &mut Violations| {
        if !listed.insert(id.to_owned()) {
            wrong.add("", format!("{id} is listed twice"));
        }
    };
    wrong.each(&field("subnet_ids"), &mut binding.subnet_ids, MAX_SUBNETS, |id, wrong| {
        wrong.normalize("", id, str::parse::<SubnetId>);
        is_new(id, wrong);
    });
    wrong.each(&field("range_ids"), &mut binding.range_ids, MAX_RANGES, |id, wrong| {
        wrong.normalize("", id, str::parse::<RangeId>);
        is_new(id, wrong);
    });
    let configuration = &binding.configuration;
    wrong.take(field("configuration"), check::length(configuration, MAX_CONFIGURATION_BYTES));
    if !configuration.is_empty() {
        let json = check::json_object(configuration.as_bytes(), MAX_CONFIGURATION_DEPTH);
        wrong.take(field("configuration"), json);
    }
    wrong.into_result(binding)
}

#[cfg(test)]
mod tests;
