//! The calls about machines: an instance with a platform's system each.

mod provision;
mod restart;
mod view;

use std::time::SystemTime;

use axum::response::Response;
use serde_json::json;
use tinwright::address::v1 as addr;
use tinwright::instance::v1 as inst;

pub(super) use self::provision::provision;
pub(super) use self::restart::restart;
pub(super) use self::view::{check_usable, is_ending};
use super::configuration;
use super::fault::{Code, Fault};
use super::ip::grants_of;
use super::object::Object;
use super::requests::Named;
use super::responses::success;
use super::session::{Session, unknown_server};
use super::status;

/// Answers `server/provision-status`.
pub(super) async fn provision_status(
    session: &Session,
    request: &Object<'_>,
    now: SystemTime,
) -> Result<Response, Fault> {
    let (named, sent) = Named::read_status(request)?;
    let instance = session.server(&named).await?;
    configuration::check(sent.as_ref(), &named.location, &session.tenant())?;
    Ok(success(&view::provision_status(&instance, now)?))
}

/// Answers `server/decommission`: the boot gate is closed when the call returns, and for ever.
pub(super) async fn decommission(
    session: &Session,
    request: &Object<'_>,
) -> Result<Response, Fault> {
    let named = Named::read_change(request)?;
    let found = session.server_unless_gone(&named).await?;
    let Some(instance) = found.filter(|it| !is_ending(it)) else {
        return Ok(success(&true));
    };
    free_addresses(session, &instance).await?;
    let request = inst::DeleteInstanceRequest { id: instance.id, ..Default::default() };
    match session.instances().delete_instance(request).await {
        Ok(_) => Ok(success(&true)),
        // It was deleted meanwhile.
        Err(error) if error.code() == tonic::Code::NotFound => Ok(success(&true)),
        Err(error) => Err(status::fault(&error, &unknown_server())),
    }
}

/// Releases the grants of which the platform may not know, and refuses if there are others.
async fn free_addresses(session: &Session, instance: &inst::Instance) -> Result<(), Fault> {
    let mut used = Vec::new();
    for grant in grants_of(session, &instance.id).await? {
        match grant.state() {
            addr::GrantState::Active if grant.confirm_time.is_some() => {
                used.push(super::ip::ip_id(&grant));
            }
            addr::GrantState::Active | addr::GrantState::Pending => {
                let addr::Grant { id, revision, .. } = grant;
                let release = addr::ReleaseGrantRequest { id, revision };
                let released = session.grants().release_grant(release).await;
                released.map_err(|error| status::fault(&error, &unknown_server()))?;
            }
            addr::GrantState::Released | addr::GrantState::Unspecified => {}
        }
    }
    if used.is_empty() {
        return Ok(());
    }
    let fault = Fault::new(Code::InvalidState, "the machine has allocated addresses");
    Err(fault.with_extra(json!({"ips": used})))
}
