//! The filters of a list of machines, besides those of all nouns.

use nouns::Noun as _;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::status::Violations;
use tinwright::{LocationId, ModelId, check};

use crate::check::enum_value;
use crate::error::Error;
use crate::matching::matches;
use crate::models::Models;

/// The machines that a list shows.
#[derive(Debug)]
pub(crate) struct Filter {
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
        let pb::ListHardwareRequest { location_id, zone, model_id, .. } = request;
        let (mut location_id, mut zone, mut model_id) =
            (location_id.clone(), zone.clone(), model_id.clone());
        wrong.take("state", enum_value::<State>(request.state));
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
        Ok(Self { location_id, zone, model })
    }

    /// True if the list shows `machine`.
    pub(crate) fn keeps(&self, machine: &pb::Hardware) -> bool {
        let Self { location_id, zone, model } = self;
        (location_id.is_empty() || *location_id == machine.location_id)
            && (zone.is_empty() || *zone == machine.zone)
            && model.as_ref().is_none_or(|model| matches(model, machine))
    }
}
