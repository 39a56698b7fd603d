//! `location/configure`: the LocationBinding in force, which operators of the site make. Nothing is changed by the call.

use axum::response::Response;
use tinwright::address::v1 as addr;
use tinwright::hardware::v1 as hw;

use super::configuration;
use super::fault::{Code, Fault};
use super::object::Object;
use super::requests::Configure;
use super::responses::{Configured, success};
use super::session::{Session, unknown_location};
use super::status;

/// Answers `location/configure`.
pub(super) async fn configure(session: &Session, request: &Object<'_>) -> Result<Response, Fault> {
    let Configure { location: name } = Configure::read(request)?;
    let location = session.location(&name).await?;
    check_compatible(session, &location)?;
    let binding = binding_in_force(session, &location).await?;
    let tenant = session.tenant();
    let document = |it: &addr::LocationBinding| configuration::document(it, &name, &tenant);
    Ok(success(&Configured {
        configured: binding.is_some(),
        version: binding.as_ref().map(configuration::version),
        configuration_latest: binding.as_ref().map(document),
    }))
}

/// Refuses a location where nothing can be provisioned.
pub(super) fn check_compatible(session: &Session, location: &hw::Location) -> Result<(), Fault> {
    if session.scope().is_compatible(location) {
        return Ok(());
    }
    let fault = Fault::new(Code::NotCompatible, "machines at the location cannot be provisioned");
    Err(fault.at("/request/location_id"))
}

/// Returns the binding for the hub, else that for the tenant, else that for all; none if there is none.
pub(super) async fn binding_in_force(
    session: &Session,
    location: &hw::Location,
) -> Result<Option<addr::LocationBinding>, Fault> {
    let by = addr::get_location_binding_request::By::InForce(addr::BoundCaller {
        location_id: location.id.clone(),
        tenant: session.tenant(),
        // Groups are a tenant's; the site has one binding for all.
        group: if session.tenant().is_empty() { String::new() } else { session.hub() },
    });
    let request = addr::GetLocationBindingRequest { by: Some(by) };
    match session.call(request).await {
        Ok(found) => Ok(found.location_binding),
        Err(error) if error.code() == tonic::Code::NotFound => Ok(None),
        Err(error) => Err(status::fault(&error, &unknown_location(&location.name))),
    }
}
