//! The machines of the test site with their models and locations.

use tinwright::Attributes as _;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::location_service_server::LocationService;
use tinwright::hardware::v1::model_service_server::ModelService;
use tonic::{Request, Response, Status};

use super::services::{EventStream, missing, never_called};
use super::{FakeState, Site};

/// The most machines of a page: few, so that a caller that reads only the first page fails the test.
const PAGE_SIZE: usize = 64;

/// The models of the site: name and id. Every machine is of the one that its label `model` names.
pub(crate) const MODELS: [(&str, &str); 3] = [
    ("small", "0b9d2a52-11c2-4e0e-9d30-000000000001"),
    ("large", "0b9d2a52-11c2-4e0e-9d30-000000000002"),
    ("gpu", "0b9d2a52-11c2-4e0e-9d30-000000000003"),
];
/// The only location of the site: name and id.
pub(crate) const LOCATION: (&str, &str) = ("hall-1", "1c9d2a52-11c2-4e0e-9d30-000000000001");

impl FakeState {
    /// Returns a page of the machines that `request` selects.
    pub(super) fn list_machines(
        &self,
        request: &hw::ListHardwareRequest,
    ) -> hw::ListHardwareResponse {
        let model = MODELS.iter().find(|(_, id)| *id == request.model_id).map(|(name, _)| *name);
        let mut machines: Vec<_> = self.machine.iter().chain(&self.rack).collect();
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        machines.retain(|machine| {
            machine.id > request.page_token
                && machine.has_labels(&request.labels)
                && (request.location_id.is_empty() || request.location_id == machine.location_id)
                && (request.zone.is_empty() || request.zone == machine.zone)
                && model
                    .is_none_or(|model| machine.labels.get("model").is_some_and(|it| it == model))
        });
        let more = machines.len() > PAGE_SIZE;
        machines.truncate(PAGE_SIZE);
        let last = machines.last().map(|last| last.id.clone()).unwrap_or_default();
        hw::ListHardwareResponse {
            hardware: machines.into_iter().cloned().collect(),
            next_page_token: if more { last } else { String::new() },
        }
    }
}

impl ModelService for Site {
    async fn get_model(
        &self,
        request: Request<hw::GetModelRequest>,
    ) -> Result<Response<hw::GetModelResponse>, Status> {
        use hw::get_model_request::By;
        let by = request.into_inner().by.ok_or_else(missing)?;
        let found = MODELS.iter().find(|(name, id)| match &by {
            By::Id(wanted) => wanted == id,
            By::Name(wanted) => wanted == name,
        });
        let (name, id) = found.ok_or_else(missing)?;
        let model = hw::Model { id: (*id).into(), name: (*name).into(), ..hw::Model::default() };
        Ok(Response::new(hw::GetModelResponse { model: Some(model) }))
    }

    type WatchModelsStream = EventStream<hw::WatchModelsResponse>;

    never_called! {
        create_model(hw::CreateModelRequest) -> hw::CreateModelResponse;
        list_models(hw::ListModelsRequest) -> hw::ListModelsResponse;
        list_model_offers(hw::ListModelOffersRequest) -> hw::ListModelOffersResponse;
        update_model(hw::UpdateModelRequest) -> hw::UpdateModelResponse;
        delete_model(hw::DeleteModelRequest) -> hw::DeleteModelResponse;
        watch_models(hw::WatchModelsRequest) -> Self::WatchModelsStream;
    }
}

impl LocationService for Site {
    async fn get_location(
        &self,
        request: Request<hw::GetLocationRequest>,
    ) -> Result<Response<hw::GetLocationResponse>, Status> {
        use hw::get_location_request::By;
        let (name, id) = LOCATION;
        match request.into_inner().by {
            Some(By::Id(wanted)) if wanted == id => {}
            Some(By::Name(wanted)) if wanted == name => {}
            Some(By::Id(_) | By::Name(_)) | None => return Err(missing()),
        }
        let location = self.state().location.clone();
        let location = hw::Location { id: id.into(), name: name.into(), ..location };
        Ok(Response::new(hw::GetLocationResponse { location: Some(location) }))
    }

    type WatchLocationsStream = EventStream<hw::WatchLocationsResponse>;

    never_called! {
        create_location(hw::CreateLocationRequest) -> hw::CreateLocationResponse;
        list_locations(hw::ListLocationsRequest) -> hw::ListLocationsResponse;
        update_location(hw::UpdateLocationRequest) -> hw::UpdateLocationResponse;
        delete_location(hw::DeleteLocationRequest) -> hw::DeleteLocationResponse;
        watch_locations(hw::WatchLocationsRequest) -> Self::WatchLocationsStream;
    }
}
