//! Power jobs: creating, listing, waiting, cancelling.

use std::io::Write;
use std::time::SystemTime;

use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::What;
use tinwright::power::v1::power_job::State;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{Switch, client, words};
use crate::connect::{Show, View};
use crate::follow::{self, Watchable};
use crate::hardware;
use crate::noun::{PAGE, answered, pages};
use crate::output::{self, Row, say};

/// Creates a job with the operation `what`, waits for it if requested, and prints it.
pub(super) async fn start(switch: Switch, what: What, out: &mut dyn Write) -> anyhow::Result<()> {
    let Switch { machine, wait, show } = switch;
    let channel = show.connection.open().await?;
    let hardware_id = hardware::id(&channel, &machine).await?;
    let operations = vec![pb::Operation { what: Some(what) }];
    let request = pb::CreatePowerJobRequest {
        hardware_id,
        operations,
        ..pb::CreatePowerJobRequest::default()
    };
    let mut job =
        answered(client(&channel).create_power_job(request).await?.into_inner().power_job)?;
    if wait {
        let id = job.id.clone();
        job = follow::until(&channel, &id, |seen| ended(&id, seen))
            .await?
            .map_err(anyhow::Error::msg)?;
    }
    say(out, &output::list(&[job], show.output)?)
}

/// Lists all jobs, or those of one machine.
pub(super) async fn list(
    machine: Option<&str>,
    show: &Show,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let channel = show.connection.open().await?;
    let hardware_id = match machine {
        Some(name) => hardware::id(&channel, name).await?,
        None => String::new(),
    };
    let jobs = pages(async |page_token| {
        let hardware_id = hardware_id.clone();
        let request = pb::ListPowerJobsRequest {
            page_size: PAGE,
            page_token,
            hardware_id,
            ..pb::ListPowerJobsRequest::default()
        };
        let page = client(&channel).list_power_jobs(request).await?.into_inner();
        Ok((page.power_jobs, page.next_page_token))
    });
    say(out, &output::list(&jobs.await?, show.output)?)
}

/// Cancels the job with `id`.
pub(super) async fn cancel(id: String, show: &Show, out: &mut dyn Write) -> anyhow::Result<()> {
    let channel = show.connection.open().await?;
    let cancelled = client(&channel).cancel_power_job(pb::CancelPowerJobRequest { id }).await?;
    say(out, &output::list(cancelled.into_inner().power_job.as_slice(), show.output)?)
}

/// Returns the job once it has succeeded, an error once it has ended otherwise, and nothing before.
fn ended(id: &str, seen: Option<pb::PowerJob>) -> Option<Result<pb::PowerJob, String>> {
    let Some(job) = seen else { return Some(Err(format!("power job {id} is gone"))) };
    match job.state() {
        State::Success => Some(Ok(job)),
        State::Failed => Some(Err(format!("power job {id} failed: {}", job.state_reason))),
        State::Cancelled => Some(Err(format!("power job {id} was cancelled"))),
        State::Unspecified | State::Pending | State::Running => None,
    }
}

impl Row for pb::PowerJob {
    const COLUMNS: &'static [&'static str] =
        &["ID", "HARDWARE", "OPERATIONS", "STATE", "DONE", "AGE", "REASON"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let operations: Vec<_> = self.operations.iter().map(words::operation).collect();
        let reasons = std::iter::once(&self.state_reason).chain(&self.downgrades);
        let reasons: Vec<_> = reasons.filter(|text| !text.is_empty()).map(String::as_str).collect();
        vec![
            self.id.clone(),
            self.hardware_id.clone(),
            operations.join(", "),
            output::word(self.state().as_str_name(), "STATE_"),
            format!("{}/{}", self.completed_operations, self.operations.len()),
            output::age(self.create_time, now),
            reasons.join("; "),
        ]
    }
}

impl Watchable for pb::PowerJob {
    type Told = pb::WatchPowerJobsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        _: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        Ok(client(channel).watch_power_jobs(pb::WatchPowerJobsRequest { id }).await?.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: State) -> pb::PowerJob {
        pb::PowerJob { state: state.into(), state_reason: "401".into(), ..pb::PowerJob::default() }
    }

    #[test]
    fn a_job_is_waited_for_until_it_ends_and_only_success_is_one() {
        assert_eq!(ended("j", Some(job(State::Running))), None);
        assert!(matches!(ended("j", Some(job(State::Success))), Some(Ok(_))));
        assert_eq!(
            ended("j", Some(job(State::Failed))),
            Some(Err("power job j failed: 401".into()))
        );
        assert_eq!(ended("j", None), Some(Err("power job j is gone".into())));
    }

    #[test]
    fn what_could_not_be_verified_stands_beside_the_reason() {
        let mut done = job(State::Success);
        done.downgrades = vec!["once reads back as continuous".into()];
        let row = done.row(SystemTime::UNIX_EPOCH);
        assert_eq!(row.last().unwrap(), "401; once reads back as continuous");
    }
}
