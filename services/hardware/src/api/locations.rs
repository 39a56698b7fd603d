//! The calls on locations.

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::location_service_server::LocationService;
use tinwright::status::Violations;
use tinwright::{LocationId, Object as _, TenantName, check};
use tonic::{Request, Response, Status};

use super::{Api, missing_selector};
use crate::{place, tenant};

#[tonic::async_trait]
impl LocationService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_location(
        &self,
        request: Request<pb::CreateLocationRequest>,
    ) -> Result<Response<pb::CreateLocationResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let location = Violations::require("location", request.location)?;
        let location = self.locations.create(location, idempotent).await?;
        Ok(Response::new(pb::CreateLocationResponse { location: Some(location) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_location(
        &self,
        request: Request<pb::GetLocationRequest>,
    ) -> Result<Response<pb::GetLocationResponse>, Status> {
        use pb::get_location_request::By;
        let tenant = access::tenant(&request).cloned();
        let selector = match request.into_inner().by {
            None => return Err(missing_selector().into()),
            Some(By::Id(text)) => {
                Selector::Id(Violations::parse::<LocationId>("id", &text)?.to_string())
            }
            Some(By::Name(text)) => {
                let name = check::label(&text).map_err(|e| Violations::single("name", e))?;
                Selector::Index(place::NAME_INDEX, name)
            }
        };
        let location = self.locations.records().select(&selector).await?;
        let location = Some(show(tenant.as_ref(), location));
        Ok(Response::new(pb::GetLocationResponse { location }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_locations(
        &self,
        request: Request<pb::ListLocationsRequest>,
    ) -> Result<Response<pb::ListLocationsResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ListLocationsRequest { page_size, page_token, labels } = request.into_inner();
        let keep = |location: &pb::Location| match &tenant {
            // A tenant does not see the labels, and so does not learn them from the filter.
            Some(_) => labels.is_empty(),
            None => location.has_labels(&labels),
        };
        let show = |location| show(tenant.as_ref(), location);
        let (locations, next_page_token) =
            serving::list(&self.location_mirror, page_size, &page_token, keep, show).await?;
        Ok(Response::new(pb::ListLocationsResponse { locations, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_location(
        &self,
        request: Request<pb::UpdateLocationRequest>,
    ) -> Result<Response<pb::UpdateLocationResponse>, Status> {
        let pb::UpdateLocationRequest { location, update_mask } = request.into_inner();
        let mut update = Violations::require("location", location)?;
        update.id = Violations::parse::<LocationId>("location.id", &update.id)?.to_string();
        let (locations, paths) = (self.locations.clone(), update_mask.unwrap_or_default().paths);
        let work = async move { Ok(locations.update(update, &paths).await?) };
        let location = Some(serving::to_the_end(work).await?);
        Ok(Response::new(pb::UpdateLocationResponse { location }))
    }

    #[tracing::instrument(skip_all, fields(location.id = request.get_ref().id))]
    async fn delete_location(
        &self,
        request: Request<pb::DeleteLocationRequest>,
    ) -> Result<Response<pb::DeleteLocationResponse>, Status> {
        let pb::DeleteLocationRequest { id, revision } = request.into_inner();
        let (id, locations) = (Violations::parse("id", &id)?, self.locations.clone());
        serving::to_the_end(async move { Ok(locations.delete(id, revision).await?) }).await?;
        Ok(Response::new(pb::DeleteLocationResponse {}))
    }

    type WatchLocationsStream = serving::Events<pb::WatchLocationsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_locations(
        &self,
        request: Request<pb::WatchLocationsRequest>,
    ) -> Result<Response<Self::WatchLocationsStream>, Status> {
        serving::watch_by_id(&self.location_mirror, &request.get_ref().id, &self.stop, |it| it)
    }
}

/// Returns what a caller sees of `location`, who may be limited to the objects of `tenant`.
fn show(tenant: Option<&TenantName>, location: pb::Location) -> pb::Location {
    if tenant.is_some() { tenant::location_view(location) } else { location }
}
