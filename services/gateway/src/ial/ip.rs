//! The calls about addresses: a grant each, which is attached to the machine before the platform gets it.

mod delivery;
mod grant;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use runtime::serve::ConnectionEnd;
use tinwright::address::v1 as addr;
use tinwright::instance::v1 as inst;

use self::delivery::{Delivery, Unknown};
pub(super) use self::grant::ip_id;
use super::configuration;
use super::fault::{Code, Fault};
use super::object::Object;
use super::requests::{Allocate, Named, Release};
use super::responses::{respond, success, text};
use super::server::check_usable;
use super::session::{Found, HUB, Session, mismatch, unknown_server};
use super::status;
use super::wrapper::PlatformId;

/// The label of grants with the id of the instance.
const INSTANCE: &str = "ial/instance";
/// The label of grants with the name of the location.
const LOCATION: &str = "ial/location_id";
/// The most granted addresses that are attached to an instance.
const MAX_ATTACHED: usize = 64;

/// Answers `ip/allocate`, over a connection with this end. The grant is in use when the answer is sent, is released if it could not be sent, and
/// is confirmed once the platform has it.
pub(super) async fn allocate(
    session: &Session,
    request: &Object<'_>,
    end: Option<ConnectionEnd>,
) -> Result<Response, Fault> {
    let wanted = Allocate::read(request)?;
    let instance = session.server(&wanted.named).await?;
    let (sent, location) = (wanted.configuration.as_ref(), &wanted.named.location);
    configuration::check(session, sent, location).await?;
    check_usable(&instance)?;
    if instance.addresses.len() >= MAX_ATTACHED {
        return Err(Fault::new(Code::MaxExceeded, "the machine has 64 allocated addresses"));
    }
    let create =
        addr::CreateGrantRequest { grant: Some(wanted_grant(session, &wanted, &instance)) };
    let granted = session.call(create).await.map_err(|error| refused(&error))?.grant;
    let granted = granted.ok_or_else(|| Fault::new(Code::Unknown, "unexpected failure"))?;
    let unknown = Unknown::new(session.channel::<addr::ConfirmGrantRequest>(), &granted);
    // A repeated call with the key of a pool gets the grant that has the key, which may be that of another request.
    let pool = |_| mismatch().at("/request/cycle/pool_id");
    session.check_hub(&granted.labels)?;
    check_named(&granted, wanted.family, &wanted.named).map_err(pool)?;
    take_into_use(session, &granted, &wanted.named).await?;
    let answer = grant::allocated(&granted)?;
    Ok(respond(StatusCode::OK, Body::new(Delivery::new(text(&answer), unknown, end))))
}

/// Attaches a grant to its machine. Blocks are not attached: the platform routes them.
async fn take_into_use(session: &Session, grant: &addr::Grant, named: &Named) -> Result<(), Fault> {
    let id = grant.id.clone();
    let is_block = !grant.block.ends_with("/32") && !grant.block.ends_with("/128");
    if !is_block {
        let instance_id = named.server.clone();
        let attachment = Some(addr::Attachment { instance_id, ..addr::Attachment::default() });
        let attached = session.call(addr::AttachGrantRequest { id, attachment }).await;
        return attached.map(drop).map_err(|error| status::fault(&error, &unknown_server()));
    }
    let used = session.call(addr::ConfirmGrantRequest { id, use_only: true }).await;
    used.map_err(|error| status::fault(&error, &unknown_server()))?;
    // Its machine may have been given back meanwhile.
    check_usable(&session.server(named).await?)
}

fn wanted_grant(session: &Session, wanted: &Allocate, instance: &inst::Instance) -> addr::Grant {
    let text = |id: &Option<PlatformId>| id.as_ref().map(PlatformId::as_str).map(str::to_owned);
    let labels = [
        (INSTANCE, Some(instance.id.clone())),
        (LOCATION, Some(wanted.named.location.clone())),
        (HUB, Some(instance.labels.get(HUB).cloned().unwrap_or_default())),
        ("ial/pool", text(&wanted.meta.pool)),
        ("ial/server", text(&wanted.meta.server)),
    ];
    let labels = labels.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?)));
    let location = instance.placement.as_ref().map(|placement| placement.location_id.clone());
    addr::Grant {
        tenant: session.tenant(),
        labels: labels.collect(),
        key: text(&wanted.meta.pool).map(|pool| format!("ial/{pool}")).unwrap_or_default(),
        location_id: location.unwrap_or_default(),
        // Groups are a tenant's.
        group: if session.tenant().is_empty() { String::new() } else { session.hub() },
        family: wanted.family.into(),
        ..addr::Grant::default()
    }
}

/// Returns the fault of a refused grant. What is not bound to the location is not offered there.
fn refused(error: &tonic::Status) -> Fault {
    let not_offered =
        Fault::new(Code::NotCompatible, "no such addresses are offered at the location");
    let not_offered = not_offered.at("/request/kind");
    if error.code() == tonic::Code::InvalidArgument {
        return not_offered.with_detail(error.message());
    }
    if error.code() == tonic::Code::AlreadyExists {
        // The pool's key is that of another grant.
        return mismatch().at("/request/cycle/pool_id");
    }
    status::fault(error, &not_offered)
}

/// Answers `ip/release`.
pub(super) async fn release(session: &Session, request: &Object<'_>) -> Result<Response, Fault> {
    let wanted = Release::read(request)?;
    let unknown = Fault::new(Code::IpPool, "unknown address").at(request.pointer("ip_id"));
    let id = grant::id_of_ip(&wanted.ip).ok_or_else(|| unknown.clone())?;
    let assignment = Fault::new(Code::IpPool, "unknown assignment");
    let assignment = assignment.at(request.pointer("ip_assignment_id"));
    let assigned = grant::id_of_assignment(&wanted.assignment).ok_or(assignment)?;
    if id != assigned {
        return Err(mismatch().at(request.pointer("ip_assignment_id")));
    }
    let by = Some(addr::get_grant_request::By::Id(id.clone()));
    let found = match session.call(addr::GetGrantRequest { by }).await {
        Ok(found) => found.grant,
        // Perhaps it was released long ago, which the release knows.
        Err(error) if error.code() == tonic::Code::NotFound => None,
        Err(error) => return Err(status::fault(&error, &unknown)),
    };
    if let Some(found) = found {
        if found.tenant != session.tenant() || !found.labels.contains_key(INSTANCE) {
            return Err(unknown);
        }
        session.check_hub(&found.labels)?;
        session.check_scope(found.location_id.clone(), &wanted.named.location)?;
        check_same(&found, &wanted).map_err(|key| mismatch().at(request.pointer(key)))?;
        if !is_in_zone(session, &wanted.named).await? {
            return Err(mismatch().at(request.pointer("zone_id")));
        }
    }
    let location = &wanted.named.location;
    configuration::check(session, wanted.configuration.as_ref(), location).await?;
    let release = addr::ReleaseGrantRequest { id, revision: 0 };
    session.call(release).await.map_err(|error| status::fault(&error, &unknown))?;
    Ok(success(&true))
}

/// False if the machine stands in another zone than the named one. Of a machine that was given back
/// long ago, nothing is known.
async fn is_in_zone(session: &Session, named: &Named) -> Result<bool, Fault> {
    let Some(zone) = &named.zone else { return Ok(true) };
    match session.find(Some(inst::get_instance_request::By::Id(named.server.clone()))).await? {
        Found::Instance(instance) => session.is_in_zone(&instance, zone).await,
        Found::Gone | Found::Nothing => Ok(true),
    }
}

/// Returns the key of the request that contradicts the grant.
fn check_same(found: &addr::Grant, wanted: &Release) -> Result<(), &'static str> {
    check_named(found, wanted.family, &wanted.named)?;
    let block = found.block.parse::<ipnet::IpNet>().ok();
    if block.map(|block| block.trunc()) == Some(wanted.cidr.trunc()) { Ok(()) } else { Err("cidr") }
}

/// Does the same for the family of the addresses, the machine and the location.
fn check_named(
    found: &addr::Grant,
    family: addr::AddressFamily,
    named: &Named,
) -> Result<(), &'static str> {
    let block = found.block.parse::<ipnet::IpNet>().ok();
    let is_v4 = family == addr::AddressFamily::Ipv4;
    let label = |key: &str| found.labels.get(key).map(String::as_str);
    if block.is_some_and(|block| block.addr().is_ipv4() != is_v4) {
        return Err("kind");
    }
    if label(INSTANCE) != Some(&named.server) {
        return Err("server_id");
    }
    if label(LOCATION) != Some(&named.location) { Err("location_id") } else { Ok(()) }
}

/// Returns the grants that were allocated for an instance.
pub(super) async fn grants_of(
    session: &Session,
    instance: &str,
) -> Result<Vec<addr::Grant>, Fault> {
    let (tenant, labels) = (session.tenant(), [(INSTANCE.to_owned(), instance.to_owned())].into());
    let request = addr::ListGrantsRequest { page_size: 1000, labels, tenant, ..Default::default() };
    let page = |page_token| addr::ListGrantsRequest { page_token, ..request.clone() };
    let grants = runtime::list_all(session.channel::<addr::ListGrantsRequest>(), page).await;
    let mut grants = grants.map_err(|error| status::fault(&error, &unknown_server()))?;
    // Without a tenant, the list has the grants of all tenants.
    grants.retain(|grant| grant.tenant == request.tenant);
    Ok(grants)
}

#[cfg(test)]
mod tests;
