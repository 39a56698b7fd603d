//! The models in the store, the rules for them, and the numbers of their machines.
//!
//! ```text
//! hardware/model/<id>             the record
//! hardware/model-name/<name>      ─▶ id
//! ```
//!
//! Whether a machine is of a model is stored nowhere: it is computed from both records whenever somebody asks.

use std::collections::{BTreeMap, BTreeSet};

use runtime::Clock;
use store::ScopedStore;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Records};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::{DiskMedium, FirmwareMode, State};
use tinwright::status::Violations;
use tinwright::{ModelId, Object as _, check, field_mask};

use crate::check::enum_value;
use crate::error::Error;
use crate::locations::MAX_DESCRIPTION_BYTES;
use crate::matching::matches;
use crate::records::HardwareKind;

/// The index of models by name.
pub const NAME_INDEX: &str = "model-name";

/// The most constraints on disks, and the most on interfaces.
const MAX_CONSTRAINTS: usize = 16;
/// The longest vendor and product.
const MAX_TEXT_BYTES: usize = 255;
/// Machines that are read at once.
const PAGE_RECORDS: usize = 500;

/// The kind of these records.
#[derive(Debug)]
pub enum ModelKind {}

impl Kind for ModelKind {
    type Record = pb::Model;
    type Id = ModelId;
    const NOUN: &'static str = "model";
    const KIND: &'static str = "model";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn id(model: &pb::Model) -> &str {
        &model.id
    }

    fn revision_mut(model: &mut pb::Model) -> &mut i64 {
        &mut model.revision
    }

    fn indexes(model: &pb::Model) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &model.name)]
    }

    const EVENTS: bool = true;

    fn changed_fields(old: &pb::Model, new: &pb::Model) -> Vec<String> {
        field_mask::changed_fields(old, new)
    }
}

/// The models.
#[derive(Clone, Debug)]
pub struct Models {
    records: Records<ModelKind>,
    machines: Records<HardwareKind>,
    clock: Clock,
}

impl Models {
    /// The models in `store`, whose keys are the hardware service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store.clone()), machines: Records::new(store), clock }
    }

    /// Returns the underlying records.
    pub fn records(&self) -> &Records<ModelKind> {
        &self.records
    }

    /// Stores a new model. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        model: pb::Model,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Model, Error> {
        let mut model = checked(model)?;
        model.initialize("model.id", self.clock.wall())?;
        Ok(self.records.create(&model, Change::default(), request.as_ref()).await?)
    }

    /// Replaces the fields of a model that `paths` name.
    pub async fn update(&self, update: pb::Model, paths: &[String]) -> Result<pb::Model, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let merged = checked(field_mask::merge(&old, &update, paths)?)?;
        if merged == old {
            return Ok(old);
        }
        let update_time = Some(self.clock.wall().into());
        Ok(self.records.replace(&old, pb::Model { update_time, ..merged }).await?)
    }

    /// Deletes a model.
    pub async fn delete(&self, id: ModelId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        self.records.commit(self.records.to_delete(&old)).await?;
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
