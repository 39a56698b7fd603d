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
    configuration::check(session, sent.as_ref(), &named.location).await?;
    Ok(success(&view::provision_status(&instance, now)?))
}

/// Answers `server/decommission`: the boot gate is closed when the call returns, and for ever.
pub(super) async fn decommission(
    session: &Session,
    request: &Object<'_>,
) -> Result<Response, Fault> {
    let named = Named::read_change(request)?;
    let found = session.server_unless_gone(&named).await?;
    if let Some(instance) = found.filter(|it| !is_ending(it)) {
        let grants = grants_of(session, &instance.id).await?;
        check_no_address_in_use(&grants)?;
        delete(session, instance.id).await?;
    }
    // Only now: a machine that is not given back keeps its addresses. A repeated call releases
    // addresses that were allocated meanwhile.
    release_unknown(session, &named.server).await?;
    Ok(success(&true))
}

async fn delete(session: &Session, id: String) -> Result<(), Fault> {
    let request = inst::DeleteInstanceRequest { id, ..Default::default() };
    match session.call(request).await {
        Ok(_) => Ok(()),
        // It was deleted meanwhile.
        Err(error) if error.code() == tonic::Code::NotFound => Ok(()),
        Err(error) => Err(status::fault(&error, &unknown_server())),
    }
}

/// Refuses a machine with addresses that the platform knows.
fn check_no_address_in_use(grants: &[addr::Grant]) -> Result<(), Fault> {
    let used = grants.iter().filter(|grant| is_known(grant)).map(super::ip::ip_id);
    let used: Vec<_> = used.collect();
    if used.is_empty() {
        return Ok(());
    }
    let fault = Fault::new(Code::InvalidState, "the machine has allocated addresses");
    Err(fault.with_extra(json!({"ips": used})))
}

/// Releases the grants of a machine that the platform has not confirmed.
async fn release_unknown(session: &Session, server: &str) -> Result<(), Fault> {
    for grant in grants_of(session, server).await? {
        if grant.state() == addr::GrantState::Released || is_known(&grant) {
            continue;
        }
        // At this revision: the platform may get to know of it meanwhile.
        let release = addr::ReleaseGrantRequest { id: grant.id, revision: grant.revision };
        let released = session.call(release).await;
        released.map_err(|error| status::fault(&error, &unknown_server()))?;
    }
    Ok(())
}

/// True if the platform knows of the grant, and uses it.
fn is_known(grant: &addr::Grant) -> bool {
    grant.state() == addr::GrantState::Active && grant.confirm_time.is_some()
}
