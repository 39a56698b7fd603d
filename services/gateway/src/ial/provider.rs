//! The listings of locations and models, from one reading of the catalogue.

use axum::response::Response;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tonic::Status;

use super::catalogue::{Catalogue, Offer, Scope};
use super::fault::{Code, Fault};
use super::responses::success;
use super::routes::Route;
use super::session::{Session, catalogue_reader};
use super::status;
use crate::Backend;

/// The objects of one page.
const PAGE: i32 = 1000;

/// Answers `provider/locations` or `provider/server-models`, for a client or for everybody.
pub(super) async fn list(
    route: Route,
    backend: &Backend,
    session: Option<&Session>,
) -> Result<Response, Fault> {
    let scope = session.map_or_else(Scope::default, Session::scope);
    let listings = catalogue(backend).await?.listings(&scope);
    Ok(if route == Route::Locations {
        success(&listings.into_locations())
    } else {
        success(&listings.into_models())
    })
}

async fn catalogue(backend: &Backend) -> Result<Catalogue, Fault> {
    let reader = catalogue_reader()?;
    let mut client = LocationServiceClient::new(reader.channel(&backend.hardware));
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
    let mut client = ModelServiceClient::new(reader.channel(&backend.hardware));
    let mut request = hw::ListModelsRequest { page_size: PAGE, ..Default::default() };
    loop {
        let page = client.list_models(request.clone()).await.map_err(failed)?.into_inner();
        for model in page.models {
            catalogue.offers.extend(offers_of(backend, &model, "").await?);
            catalogue.models.push(model);
        }
        if page.next_page_token.is_empty() {
            return Ok(catalogue);
        }
        request.page_token = page.next_page_token;
    }
}

/// Returns the offer of the model at the location, if there is one.
pub(super) async fn offers(
    backend: &Backend,
    model: &hw::Model,
    location: &hw::Location,
) -> Result<Vec<Offer>, Fault> {
    offers_of(backend, model, &location.id).await
}

/// Returns the offers of the model at the location, by id, or at all of them. Machines that wait for acceptance are not offered; those that
/// are occupied or failed are, because others of their kind are promised by them.
async fn offers_of(
    backend: &Backend,
    model: &hw::Model,
    location_id: &str,
) -> Result<Vec<Offer>, Fault> {
    let mut client = HardwareServiceClient::new(catalogue_reader()?.channel(&backend.hardware));
    let mut request = hw::ListHardwareRequest {
        page_size: PAGE,
        state: hw::State::Provisionable.into(),
        model_id: model.id.clone(),
        location_id: location_id.to_owned(),
        ..Default::default()
    };
    let mut offers: Vec<Offer> = Vec::new();
    loop {
        let page = client.list_hardware(request.clone()).await.map_err(failed)?.into_inner();
        for machine in page.hardware {
            add(&mut offers, &model.id, machine);
        }
        if page.next_page_token.is_empty() {
            return Ok(offers);
        }
        request.page_token = page.next_page_token;
    }
}

fn add(offers: &mut Vec<Offer>, model: &str, machine: hw::Hardware) {
    let hw::Hardware { location_id: location, zone, inventory, .. } = machine;
    if location.is_empty() {
        return;
    }
    let offer = match offers.iter_mut().find(|offer| offer.location == location) {
        Some(offer) => offer,
        None => {
            let parts = inventory.map(|it| *it).unwrap_or_default();
            let model = model.to_owned();
            offers.push(Offer { model, location: location.clone(), zones: Vec::new(), parts });
            let Some(offer) = offers.last_mut() else { return };
            offer
        }
    };
    if !zone.is_empty() && !offer.zones.contains(&zone) {
        offer.zones.push(zone);
    }
}

fn failed(error: Status) -> Fault {
    status::fault(&error, &Fault::new(Code::Unknown, "unexpected failure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_the_zones_of_all_its_machines() {
        let machine = |location: &str, zone: &str| hw::Hardware {
            location_id: location.into(),
            zone: zone.into(),
            ..hw::Hardware::default()
        };
        let mut offers = Vec::new();
        for (location, zone) in [("l", "b"), ("l", "a"), ("l", ""), ("l", "a"), ("", ""), ("k", "")]
        {
            add(&mut offers, "m", machine(location, zone));
        }
        let found: Vec<_> =
            offers.iter().map(|offer| (offer.location.as_str(), offer.zones.join(","))).collect();
        assert_eq!(found, [("l", "b,a".to_owned()), ("k", String::new())]);
    }
}
