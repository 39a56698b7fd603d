//! The models in the store, the rules for them, and the numbers of their machines.
//!
//! ```text
//! hardware/model/<id>             the record
//! hardware/model-name/<name>      ─▶ id
//! ```
//!
//! Whether a machine is of a model is stored nowhere: it is computed from both records whenever somebody asks.
//! `offers`: what can be ordered by model and location.

mod offers;

use std::collections::{BTreeMap, BTreeSet};

use nouns::{Delete, Edit, Noun};
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::{DiskMedium, FirmwareMode, State};
use tinwright::status::Violations;
use tinwright::{LocationId, check};

use crate::check::enum_value;
use crate::error::Error;
use crate::locations::MAX_DESCRIPTION_BYTES;
use crate::matching::matches;
use crate::place::LocationKind;
use crate::records::HardwareKind;

pub use self::offers::Wanted;
pub use crate::acceptance::ModelKind;

/// The most constraints on disks, and the most on interfaces.
const MAX_CONSTRAINTS: usize = 16;
/// The most locations in which machines are accepted.
const MAX_LOCATIONS: usize = 64;
/// The longest time between two preparations.
const MAX_BOOT_MINUTES: u32 = 24 * 60;
/// The longest vendor and product.
const MAX_TEXT_BYTES: usize = 255;
/// Machines that are read at once.
const PAGE_RECORDS: usize = 500;

/// The models.
#[derive(Clone, Debug)]
pub struct Models {
    records: Records<ModelKind>,
    machines: Records<HardwareKind>,
    locations: Records<LocationKind>,
    clock: Clock,
}

impl Models {
    /// The models in `store`, whose keys are the hardware service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let locations = Records::new(store.clone());
        Self {
            records: Records::new(store.clone()),
            machines: Records::new(store),
            locations,
            clock,
        }
    }

    /// Passes if the locations that `new` accepts machines in, and `old` does not, exist.
    async fn check_locations(&self, old: &pb::Model, new: &pb::Model) -> Result<(), Error> {
        let of = |model: &pb::Model| model.accept_enrolled.clone().unwrap_or_default().location_ids;
        let before = of(old);
        for id in of(new).into_iter().filter(|id| !before.contains(id)) {
            self.locations.require(&id).await?;
        }
        Ok(())
    }

    /// Returns the numbers of machines of each of `models` by its id, in one pass over all machines. Those in `occupied` have an
    /// instance.
    pub async fn count(
        &self,
        models: &[pb::Model],
        occupied: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, pb::ModelCounts>, records::Error> {
        let mut counts = vec![pb::ModelCounts::default(); models.len()];
        let mut after = String::new();
        loop {
            let (page, more) = self.machines.page("", &after, PAGE_RECORDS).await?;
            for machine in &page {
                let is_occupied = occupied.contains(&machine.id);
                for (model, counts) in models.iter().zip(&mut counts) {
                    if matches(model, machine) {
                        add(machine.state(), is_occupied, counts);
                    }
                }
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.id),
                None => break,
            }
        }
        Ok(models.iter().map(|model| model.id.clone()).zip(counts).collect())
    }
}

impl Noun for Models {
    type Kind = ModelKind;
    type Error = Error;

    fn records(&self) -> &Records<ModelKind> {
        &self.records
    }
}

impl Edit for Models {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(&self, model: pb::Model, _: Option<&pb::Model>) -> Result<pb::Model, Violations> {
        checked(model)
    }

    async fn before_create(&self, model: &mut pb::Model) -> Result<Change, Error> {
        self.check_locations(&pb::Model::default(), model).await?;
        Ok(Change::default())
    }

    async fn before_update(&self, old: &pb::Model, new: &pb::Model) -> Result<Change, Error> {
        self.check_locations(old, new).await?;
        Ok(Change::default())
    }
}

impl Delete for Models {}

/// Counts a machine in this state.
fn add(state: State, is_occupied: bool, counts: &mut pb::ModelCounts) {
    counts.machines += 1;
    match state {
        _ if is_occupied => counts.occupied += 1,
        State::Provisionable => counts.free += 1,
        State::Failed => counts.failed += 1,
        State::Unspecified | State::Enrolled | State::Maintenance | State::Deleting => {}
    }
}

/// Returns `model` in its stored form, if its fields are valid.
fn checked(mut model: pb::Model) -> Result<pb::Model, Violations> {
    let mut wrong = Violations::default();
    wrong.normalize("model.name", &mut model.name, check::label);
    wrong.take("model.labels", check::labels(&model.labels));
    wrong.take("model.description", check::length(&model.description, MAX_DESCRIPTION_BYTES));
    wrong.nest("model.constraints", &model.constraints, check_constraints);
    wrong.take("model.annotations", check::annotations(&model.annotations));
    for (field, minutes) in [
        ("model.boot_silent_minutes", model.boot_silent_minutes),
        ("model.boot_step_minutes", model.boot_step_minutes),
    ] {
        if minutes > MAX_BOOT_MINUTES {
            wrong.add(field, format!("{minutes} is over {MAX_BOOT_MINUTES}"));
        }
    }
    wrong.nest("model.accept_enrolled", &mut model.accept_enrolled, |accept, wrong| {
        wrong.each("location_ids", &mut accept.location_ids, MAX_LOCATIONS, |id, wrong| {
            wrong.normalize("", id, |id| id.parse::<LocationId>());
        });
    });
    wrong.into_result(model)
}

fn check_constraints(constraints: &pb::ModelConstraints, wrong: &mut Violations) {
    let pb::ModelConstraints {
        architecture,
        labels,
        firmware_mode,
        vendor,
        product,
        cores,
        memory_bytes,
        disks,
        interfaces,
    } = constraints;
    if !matches!(architecture.as_str(), "" | "x86_64" | "aarch64") {
        wrong.add("architecture", "is neither x86_64 nor aarch64");
    }
    wrong.take("labels", check::labels(labels));
    wrong.take("firmware_mode", enum_value::<FirmwareMode>(*firmware_mode));
    wrong.take("vendor", check::length(vendor, MAX_TEXT_BYTES));
    wrong.take("product", check::length(product, MAX_TEXT_BYTES));
    wrong.nest("cores", cores, check_bounds);
    wrong.nest("memory_bytes", memory_bytes, check_bounds);
    wrong.each("disks", disks, MAX_CONSTRAINTS, |disk, wrong| {
        wrong.nest("count", &disk.count, check_bounds);
        wrong.take("medium", enum_value::<DiskMedium>(disk.medium));
    });
    wrong.each("interfaces", interfaces, MAX_CONSTRAINTS, |interface, wrong| {
        wrong.nest("count", &interface.count, check_bounds);
    });
}

fn check_bounds(pb::Bounds { min, max }: &pb::Bounds, wrong: &mut Violations) {
    match (min, max) {
        (None, None) => wrong.add("", "has neither min nor max"),
        (Some(min), Some(max)) if min > max => {
            wrong.add("max", format!("{max} is less than min, which is {min}"));
        }
        (Some(_), _) | (_, Some(_)) => {}
    }
}

#[cfg(test)]
mod tests;
