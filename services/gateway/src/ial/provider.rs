//! The listings of locations and models, from one reading of the catalogue.

use axum::response::Response;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tonic::Status;

use super::catalogue::{Catalogue, Scope};
use super::fault::{Code, Fault};
use super::responses::success;
use super::routes::Endpoint;
use super::session::Session;
use super::status;
use crate::Backend;

/// The objects of one page.
const PAGE: i32 = 1000;

/// Answers `provider/locations` or `provider/server-models`, for a client or for everybody.
pub(super) async fn list(
    route: Endpoint,
    backend: &Backend,
    session: Option<&Session>,
) -> Result<Response, Fault> {
    let scope = session.map_or_else(Scope::default, Session::scope);
    let listings = catalogue(backend).await?.listings(&scope);
    Ok(if route == Endpoint::Locations {
        success(&listings.into_locations())
    } else {
        success(&listings.into_models())
    })
}

async fn catalogue(backend: &Backend) -> Result<Catalogue, Fault> {
    let mut client = LocationServiceClient::new(backend.to("hardware"));
    let mut catalogue = Catalogue::default();
    let mut request = hw::ListLocationsRequest { page_size: PAGE, ..Default::default() };
    loop {
        let page = client.list_locations(request.clone()).await.map_err(failed)?.into_inner();
        catalogue.locations.extend(page.locations);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let mut client = ModelServiceClient::new(backend.to("hardware"));
    let mut request = hw::ListModelsRequest { page_size: PAGE, ..Default::default() };
    loop {
        let page = client.list_models(request.clone()).await.map_err(failed)?.into_inner();
        catalogue.models.extend(page.models);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    catalogue.offers = offers(backend, hw::ListModelOffersRequest::default()).await?;
    Ok(catalogue)
}

/// Returns the offers that `wanted` selects. Those without a free machine are listed, too: others of their kind are promised by them.
pub(super) async fn offers(
    backend: &Backend,
    wanted: hw::ListModelOffersRequest,
) -> Result<Vec<hw::ModelOffer>, Fault> {
    let mut client = ModelServiceClient::new(backend.to("hardware"));
    let offers = client.list_model_offers(wanted).await.map_err(failed)?;
    Ok(offers.into_inner().offers)
}

fn failed(error: Status) -> Fault {
    status::fault(&error, &Fault::new(Code::Unknown, "unexpected failure"))
}
