//! The listings of locations and models, from one reading of the catalogue.

use axum::response::Response;
use tinwright::hardware::v1 as hw;
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
    let (hardware, page_size) = (backend.to("hardware"), PAGE);
    let locations = runtime::list_all(hardware.clone(), |page_token| hw::ListLocationsRequest {
        page_size,
        page_token,
        ..Default::default()
    });
    let locations = locations.await.map_err(failed)?;
    let models = runtime::list_all(hardware, |page_token| hw::ListModelsRequest {
        page_size,
        page_token,
        ..Default::default()
    });
    let models = models.await.map_err(failed)?;
    let offers = offers(backend, hw::ListModelOffersRequest::default()).await?;
    Ok(Catalogue { locations, models, offers })
}

/// Returns the offers that `wanted` selects. Those without a free machine are listed, too: others of their kind are promised by them.
pub(super) async fn offers(
    backend: &Backend,
    wanted: hw::ListModelOffersRequest,
) -> Result<Vec<hw::ModelOffer>, Fault> {
    Ok(backend.call(wanted).await.map_err(failed)?.offers)
}

fn failed(error: Status) -> Fault {
    status::fault(&error, &Fault::new(Code::Unknown, "unexpected failure"))
}
