//! The locations in the store, the rules for them, and their machines.
//!
//! ```text
//! hardware/location/<id>             the record
//! hardware/location-name/<name>      ─▶ id
//! ```
//!
//! A machine is put into a location or a zone in a commit that expects the location's record unchanged. A removed location or zone is
//! first marked as draining in that record; only then all machines are read, and if none is there, it is removed. So what is put
//! there meanwhile is found, or finds the mark. No index leads from a location to its machines: removals are rare, and a machine with all of
//! its parts already takes as many writes as a commit has.

use std::collections::BTreeSet;

use nouns::{Delete, Edit, Noun};
use runtime::Clock;
use store::ScopedStore;
use store::records::Records;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;
use tinwright::{LocationId, check};

use crate::error::Error;
use crate::place::LocationKind;
use crate::records::HardwareKind;

/// The most zones of a location.
const MAX_ZONES: usize = 64;
/// The longest description.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 1024;
/// The longest text of a geography.
const MAX_TEXT_BYTES: usize = 255;
/// Machines that are read at once.
const PAGE_RECORDS: usize = 500;

/// The locations.
#[derive(Clone, Debug)]
pub struct Locations {
    records: Records<LocationKind>,
    machines: Records<HardwareKind>,
    clock: Clock,
}

impl Locations {
    /// The locations in `store`, whose keys are the hardware service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store.clone()), machines: Records::new(store), clock }
    }

    /// Replaces `old` by `marked`, in which what is to be `removed` is marked as draining, and returns it as stored. Fails if a machine
    /// is there; then the marks are taken back.
    async fn drain(
        &self,
        old: &pb::Location,
        marked: pb::Location,
        removed: &Removed<'_>,
    ) -> Result<pb::Location, Error> {
        self.check_unused(removed).await?;
        let marked = self.records.replace(old, marked).await?;
        if let Err(used) = self.check_unused(removed).await {
            self.records.replace(&marked, without_marks(marked.clone())).await?;
            return Err(used);
        }
        Ok(marked)
    }

    /// Passes if no machine is in what is to be `removed`.
    async fn check_unused(&self, removed: &Removed<'_>) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let (page, more) = self.machines.page("", &after, PAGE_RECORDS).await?;
            if let Some(machine) = page.iter().find(|machine| removed.has(machine)) {
                return Err(removed.in_use(machine));
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.id),
                None => return Ok(()),
            }
        }
    }
}

impl Noun for Locations {
    type Kind = LocationKind;
    type Error = Error;

    fn records(&self) -> &Records<LocationKind> {
        &self.records
    }
}

impl Edit for Locations {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Removes marks that an interrupted removal left.
    fn checked(
        &self,
        location: pb::Location,
        _: Option<&pb::Location>,
    ) -> Result<pb::Location, Violations> {
        checked(location).map(without_marks)
    }

    /// Replaces the record in two commits if zones are removed. A zone with machines is not removed.
    async fn replace(&self, old: pb::Location, new: pb::Location) -> Result<pb::Location, Error> {
        let removed = Removed::zones(&old, &new);
        if removed.is_empty() {
            return Ok(self.records.replace(&old, new).await?);
        }
        let draining_zones = removed.zones.iter().map(|zone| (*zone).to_owned()).collect();
        let marked = pb::Location { draining_zones, ..without_marks(old.clone()) };
        let marked = self.drain(&old, marked, &removed).await?;
        Ok(self.records.replace(&marked, new).await?)
    }
}

impl Delete for Locations {
    /// Deletes a location without machines.
    async fn delete(&self, id: LocationId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let marked = pb::Location { draining: true, ..old.clone() };
        let marked = self.drain(&old, marked, &Removed::whole(&old)).await?;
        self.records.commit(self.records.to_delete(&marked)).await?;
        Ok(())
    }
}

/// What a change removes of a location.
struct Removed<'a> {
    location: &'a pb::Location,
    /// The zones; if there are none, the whole location.
    zones: BTreeSet<&'a str>,
    is_whole: bool,
}

impl<'a> Removed<'a> {
    /// The whole location.
    fn whole(location: &'a pb::Location) -> Self {
        Self { location, zones: BTreeSet::new(), is_whole: true }
    }

    /// The zones of `old` that `new` does not have.
    fn zones(old: &'a pb::Location, new: &pb::Location) -> Self {
        let is_removed = |zone: &&str| !new.zones.iter().any(|it| it.name == **zone);
        let zones = old.zones.iter().map(|zone| zone.name.as_str()).filter(is_removed).collect();
        Self { location: old, zones, is_whole: false }
    }

    fn is_empty(&self) -> bool {
        !self.is_whole && self.zones.is_empty()
    }

    /// True if `machine` is there.
    fn has(&self, machine: &pb::Hardware) -> bool {
        machine.location_id == self.location.id
            && (self.is_whole || self.zones.contains(machine.zone.as_str()))
    }

    /// Returns the error for a removal while `machine` is there.
    fn in_use(&self, machine: &pb::Hardware) -> Error {
        let (location, zone) = (&self.location.name, &machine.zone);
        let machine = match machine.name.as_str() {
            "" => &machine.id,
            name => name,
        };
        let (reason, text) = if self.is_whole {
            ("LOCATION_IN_USE", format!("location {location} has machines, such as {machine}"))
        } else {
            let zone = format!("zone {zone} of location {location}");
            ("ZONE_IN_USE", format!("{zone} has machines, such as {machine}"))
        };
        Error::Precondition { reason, subject: format!("location/{}", self.location.id), text }
    }
}

/// Returns `location` with nothing marked as draining.
fn without_marks(location: pb::Location) -> pb::Location {
    pb::Location { draining: false, draining_zones: Vec::new(), ..location }
}

/// Returns `location` in its stored form, if its fields are valid.
fn checked(mut location: pb::Location) -> Result<pb::Location, Violations> {
    let mut wrong = Violations::default();
    wrong.normalize("location.name", &mut location.name, check::label);
    wrong.take("location.labels", check::labels(&location.labels));
    let mut names = BTreeSet::new();
    wrong.each("location.zones", &mut location.zones, MAX_ZONES, |zone, wrong| {
        wrong.normalize("name", &mut zone.name, check::label);
        wrong.take("description", check::length(&zone.description, MAX_DESCRIPTION_BYTES));
        if !names.insert(zone.name.clone()) {
            wrong.add("name", format!("{:?} is listed twice", zone.name));
        }
    });
    wrong.nest("location.geography", &mut location.geography, normalize_geography);
    if !location.boot_url.is_empty() {
        wrong.take("location.boot_url", check::boot_url(&location.boot_url));
    }
    wrong.take("location.annotations", check::annotations(&location.annotations));
    wrong.into_result(location)
}

fn normalize_geography(geography: &mut pb::Geography, wrong: &mut Violations) {
    let pb::Geography { country, state, city, region, latitude, longitude } = geography;
    wrong.normalize_optional("country", country, |text| {
        let is_code = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
        is_code
            .then(|| text.to_ascii_uppercase())
            .ok_or("is not a code of two letters (ISO 3166-1)")
    });
    for (field, text) in [("state", state), ("city", city), ("region", region)] {
        wrong.take(field, check::length(text.as_str(), MAX_TEXT_BYTES));
        if text.contains(char::is_control) {
            wrong.add(field, "contains a control character");
        }
    }
    for (field, degrees, max) in [("latitude", *latitude, 90.0), ("longitude", *longitude, 180.0)] {
        if !(-max..=max).contains(&degrees) {
            wrong.add(field, format!("{degrees} is not between -{max} and {max}"));
        }
    }
}

#[cfg(test)]
mod tests;
