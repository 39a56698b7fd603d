//! `server/restart`: one power job for all calls within half a minute.
//!
//! The latest restart of the machine names the next one: processes that see the same latest one make the same request, and so one job.

use std::time::{Duration, SystemTime};

use axum::response::Response;
use tinwright::instance::v1 as inst;
use tinwright::power::v1::operation::{Power, What};
use tinwright::power::v1::{ListPowerJobsRequest, PowerJob};

use super::check_usable;
use crate::ial::fault::Fault;
use crate::ial::object::Object;
use crate::ial::requests::Named;
use crate::ial::responses::success;
use crate::ial::session::{Session, unknown_server};
use crate::ial::status;

/// A further request has no effect for this time after a restart.
const COALESCED: Duration = Duration::from_secs(30);

/// Answers `server/restart`.
pub(in crate::ial) async fn restart(
    session: &Session,
    request: &Object<'_>,
    now: SystemTime,
) -> Result<Response, Fault> {
    let named = Named::read_change(request)?;
    let instance = session.server(&named).await?;
    check_usable(&instance)?;
    let latest = latest_restart(session, &instance).await?;
    if latest.as_ref().is_some_and(|job| is_recent(job, now)) {
        return Ok(success(&true));
    }
    let latest = latest.map_or_else(|| "first".to_owned(), |job| job.id);
    let request_id = format!("ial-restart-{latest}");
    let request = inst::RestartInstanceRequest { id: instance.id, force: false, request_id };
    let restarted = session.call(request).await;
    restarted.map_err(|error| status::fault(&error, &unknown_server()))?;
    Ok(success(&true))
}

async fn latest_restart(
    session: &Session,
    instance: &inst::Instance,
) -> Result<Option<PowerJob>, Fault> {
    let hardware_id = instance.hardware_id.clone();
    let request = ListPowerJobsRequest { page_size: 1000, hardware_id, ..Default::default() };
    let page = |page_token| ListPowerJobsRequest { page_token, ..request.clone() };
    let jobs = runtime::list_all(session.channel::<ListPowerJobsRequest>(), page).await;
    let jobs = jobs.map_err(|error| status::fault(&error, &unknown_server()))?.into_iter();
    let restarts = jobs.filter(|it| it.instance_id == instance.id && is_restart(it));
    Ok(restarts.max_by_key(created))
}

/// True if the job is one of `RestartInstance`, unlike the one that boots the machine first.
fn is_restart(job: &PowerJob) -> bool {
    let first = job.operations.first().and_then(|operation| operation.what.as_ref());
    first == Some(&What::Power(Power::SoftOff.into()))
}

fn created(job: &PowerJob) -> Option<(i64, i32)> {
    job.create_time.map(|time| (time.seconds, time.nanos))
}

fn is_recent(job: &PowerJob, now: SystemTime) -> bool {
    let created = job.create_time.and_then(|time| SystemTime::try_from(time).ok());
    // A server with a fast clock creates jobs with a time in the future.
    created.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < COALESCED) || at > now)
}

#[cfg(test)]
mod tests {
    use tinwright::power::v1::Operation;

    use super::*;

    #[test]
    fn a_restart_stands_for_those_of_half_a_minute() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let create_time = Some(at(100).into());
        let job = PowerJob { create_time, ..PowerJob::default() };
        assert!(is_recent(&job, at(100)) && is_recent(&job, at(129)) && is_recent(&job, at(99)));
        assert!(!is_recent(&job, at(130)));
    }

    #[test]
    fn the_job_that_boots_a_machine_first_is_no_restart() {
        let job = |first: Power| {
            let what = Some(What::Power(first.into()));
            let operations = vec![Operation { what, ..Operation::default() }];
            PowerJob { operations, ..PowerJob::default() }
        };
        assert!(is_restart(&job(Power::SoftOff)));
        assert!(
            !is_restart(&job(Power::Cycle))
                && !is_restart(&job(Power::On))
                && !is_restart(&PowerJob::default())
        );
    }
}
