//! The calls on locations.

use nouns::Noun as _;
use store::serving;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::location_service_server::LocationService;
use tonic::{Request, Response, Status};

use super::Api;

impl LocationService for Api {
    async fn create_location(
        &self,
        request: Request<pb::CreateLocationRequest>,
    ) -> Result<Response<pb::CreateLocationResponse>, Status> {
        nouns::create(&self.locations, request).await
    }

    async fn get_location(
        &self,
        request: Request<pb::GetLocationRequest>,
    ) -> Result<Response<pb::GetLocationResponse>, Status> {
        nouns::get(self.locations.records(), request).await
    }

    async fn list_locations(
        &self,
        request: Request<pb::ListLocationsRequest>,
    ) -> Result<Response<pb::ListLocationsResponse>, Status> {
        nouns::list(&self.location_mirror, request).await
    }

    async fn update_location(
        &self,
        request: Request<pb::UpdateLocationRequest>,
    ) -> Result<Response<pb::UpdateLocationResponse>, Status> {
        nouns::update(&self.locations, request).await
    }

    #[tracing::instrument(skip_all, fields(location.id = request.get_ref().id))]
    async fn delete_location(
        &self,
        request: Request<pb::DeleteLocationRequest>,
    ) -> Result<Response<pb::DeleteLocationResponse>, Status> {
        nouns::delete(&self.locations, request).await
    }

    type WatchLocationsStream = serving::Events<pb::WatchLocationsResponse>;

    async fn watch_locations(
        &self,
        request: Request<pb::WatchLocationsRequest>,
    ) -> Result<Response<Self::WatchLocationsStream>, Status> {
        nouns::watch(&self.location_mirror, &self.stop, request)
    }
}
