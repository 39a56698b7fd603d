//! The filters of a list of machines.

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::object::Labels;
use tinwright::status::Violations;
use tinwright::{LocationId, ModelId, Object as _, check};

use crate::check::enum_value;
use crate::error::Error;
use crate::matching::matches;
use crate::models::Models;

/// The machines that a list shows.
#[derive(Debug)]
pub(crate) struct Filter {
    labels: Labels,
    /// Any if it is unspecified.
    state: State,
    /// Any if it is empty.
    location_id: String,
    /// Any if it is empty.
    zone: String,
    /// Any if there is none.
    model: Option<pb::Model>,
}

impl Filter {
    /// Returns the filter that `request` asks for, with its model from `models`.
    pub(crate) async fn read(
        request: &pb::ListHardwareRequest,
        models: &Models,
    ) -> Result<Self, Error> {
        let mut wrong = Violations::default();
        let pb::ListHardwareRequest { labels, location_id, zone, model_id, .. } = request;
        let (mut location_id, mut zone, mut model_id) =
            (location_id.clone(), zone.clone(), model_id.clone());
        let state = wrong.take("state", enum_value::<State>(request.state));
        wrong.normalize_optional("location_id", &mut location_id, str::parse::<LocationId>);
        wrong.normalize_optional("zone", &mut zone, check::label);
        wrong.normalize_optional("model_id", &mut model_id, str::parse::<ModelId>);
        if location_id.is_empty() && !zone.is_empty() {
            wrong.add("zone", "is set without location_id");
        }
        wrong.into_result(())?;
        let model = match model_id.as_str() {
            "" => None,
            id => Some(models.records().require(id).await?),
        };
        let (labels, state) = (labels.clone(), state.unwrap_or_default());
        Ok(Self { labels, state, location_id, zone, model })
    }

    /// True if the list shows `machine`.
    pub(crate) fn keeps(&self, machine: &pb::Hardware) -> bool {
        let Self { labels, state, location_id, zone, model } = self;
        machine.has_labels(labels)
            && (*state == State::Unspecified || *state == machine.state())
            && (location_id.is_empty() || *location_id == machine.location_id)
            && (zone.is_empty() || *zone == machine.zone)
            && model.as_ref().is_none_or(|model| matches(model, machine))
    }

    /// True if the labels matter: a tenant does not see them, and must not learn them.
    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }
}
