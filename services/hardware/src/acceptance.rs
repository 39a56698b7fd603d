//! The policy by which enrolled machines become provisionable without an operator: `Model.accept_enrolled`.

use nouns::{Served, Viewer};
use store::records::{self, Change, Index, Kind, Records};
use tinwright::ModelId;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;

use crate::inventory;
use crate::matching::matches;
use crate::place::LocationKind;
use crate::tenant;

/// The index of models by name.
const NAME_INDEX: &str = "model-name";

/// Models that are read at a time.
const PAGE_RECORDS: usize = 500;

/// The kind of model records.
#[derive(Debug)]
pub enum ModelKind {}

impl Kind for ModelKind {
    type Record = pb::Model;
    type Id = ModelId;
    const KIND: &'static str = "model";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn indexes(model: &pb::Model) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &model.name)]
    }
}

impl Served for ModelKind {
    const NAME_INDEX: &'static str = NAME_INDEX;

    fn show(viewer: &Viewer, model: pb::Model) -> pb::Model {
        if viewer.tenant.is_some() { tenant::model_view(model) } else { model }
    }
}

/// Returns `machine` as it is stored with the state that the policy of `models` gives it, and the change by which the policy still
/// is the same when that is committed.
pub(crate) async fn accept(
    models: &Records<ModelKind>,
    locations: &Records<LocationKind>,
    machine: pb::Hardware,
) -> Result<(pb::Hardware, Change), records::Error> {
    if !may_be_accepted(&machine) {
        return Ok((machine, Change::default()));
    }
    let mut after = String::new();
    loop {
        let (page, more) = models.page("", &after, PAGE_RECORDS).await?;
        if let Some(model) = page.iter().find(|model| accepts(model, &machine)) {
            let location = locations.get(&machine.location_id).await?;
            let state_reason = reason(model, location.as_ref());
            let state = State::Provisionable.into();
            let accepted = pb::Hardware { state, state_reason, ..machine };
            return Ok((accepted, models.unchanged(model)));
        }
        match page.last().filter(|_| more) {
            Some(last) => after.clone_from(&last.id),
            None => return Ok((machine, Change::default())),
        }
    }
}

/// True if `machine` has not reported itself, and was not moved from its first state: by an operator, for example.
pub(crate) fn is_untouched(machine: &pb::Hardware) -> bool {
    let was_moved = machine.state_time.is_some_and(|at| Some(at) != machine.create_time);
    machine.inventory.is_none() && !was_moved
}

/// True if nothing but an acceptance is missing for `machine` to be used.
fn may_be_accepted(machine: &pb::Hardware) -> bool {
    machine.state() == State::Enrolled
        && !machine.protect
        && !machine.interfaces.is_empty()
        && inventory::warning(machine).is_empty()
}

/// True if the policy of `model` accepts `machine`.
fn accepts(model: &pb::Model, machine: &pb::Hardware) -> bool {
    let Some(pb::AcceptEnrolled { location_ids }) = &model.accept_enrolled else { return false };
    (location_ids.is_empty() || location_ids.contains(&machine.location_id))
        && matches(model, machine)
}

fn reason(model: &pb::Model, location: Option<&pb::Location>) -> String {
    let place = location.map(|location| format!(" in location {}", location.name));
    let place = place.unwrap_or_default();
    format!("accepted by the policy of model {} for enrolled machines{place}", model.name)
}

#[cfg(test)]
mod tests;
