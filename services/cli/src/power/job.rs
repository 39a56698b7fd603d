//! Power jobs: creating, listing, waiting, cancelling.

use runtime::Channel;
use tinwright::PowerJobId;
use tinwright::hardware::v1::Hardware;
use tinwright::power::v1 as pb;
use tinwright::power::v1::power_job::State;

use super::{JobOptions, bmc, operation_text};
use crate::connect::{Io, View, call};
use crate::failure::Missing;
use crate::follow;
use crate::output::{self, Format, Row};
use crate::resource::{self, Query, Resource, required};

/// Creates a job with `operation`, waits for it if requested, and prints it.
pub(super) async fn start(
    options: JobOptions,
    operation: pb::Operation,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let request = pb::CreatePowerJobRequest {
        hardware_id: Hardware::find_id(io.channel, &options.machine).await?,
        operations: vec![operation],
        ..pb::CreatePowerJobRequest::default()
    };
    let created = io.call(request).await;
    let created = created.map_err(|status| bmc::with_hint(status, &options.machine))?;
    let mut job = required(created.power_job)?;
    if options.wait {
        let id = job.id;
        let ended = follow::until(io.channel, &id, |job| ended(&id, job)).await;
        job = ended.map_err(|error| bmc::name_machine(error, &options.machine))?;
    }
    resource::print(&[job], options.output, io).await
}

/// Options of a list, besides labels.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct JobFilter {
    /// List only jobs in this state
    #[arg(long)]
    state: Option<ListedState>,
    /// The id of the machine; empty for all.
    #[arg(skip)]
    pub(super) hardware_id: String,
}

/// States of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedState {
    /// Waits for its turn on the BMC
    Pending = State::Pending as isize,
    /// Its operations are carried out
    Running = State::Running as isize,
    /// Ended with success
    Success = State::Success as isize,
    /// Ended with an error
    Failed = State::Failed as isize,
    /// Ended by an operator
    Cancelled = State::Cancelled as isize,
}

impl Resource for pb::PowerJob {
    type Filter = JobFilter;
    const NAMES: &'static str = "ID";
    const FIRST: &'static str = "`tinwright power on MACHINE` creates one";

    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        if name.parse::<PowerJobId>().is_err() {
            return Err(Missing(format!("no power job {name}")).into());
        }
        let request = pb::GetPowerJobRequest { id: name.to_owned() };
        required(call(channel, request).await?.power_job)
    }

    async fn select(_: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let JobFilter { state, hardware_id } = &query.filter;
        let (hardware_id, state) = (hardware_id.clone(), state.map_or(0, |state| state as i32));
        Ok(pb::ListPowerJobsRequest { hardware_id, state, ..Default::default() })
    }
}

/// Cancels the job with `id`.
pub(super) async fn cancel(id: &str, output: Format, io: &mut Io<'_>) -> anyhow::Result<()> {
    let job = pb::PowerJob::find(io.channel, id, View::Basic).await?;
    if let Some(note) = had_ended(&job) {
        eprintln!("tinwright: {note}");
    }
    let cancelled = io.call(pb::CancelPowerJobRequest { id: job.id }).await?;
    resource::print(cancelled.power_job.as_slice(), output, io).await
}

/// Returns a note for a job that cannot be cancelled because it had ended before.
fn had_ended(job: &pb::PowerJob) -> Option<String> {
    let state = output::state(job);
    job.is_terminal().then(|| format!("power job {} had ended before: {state}", job.id))
}

/// Returns the job once it has succeeded, an error once it has ended otherwise, and nothing before.
fn ended(id: &str, job: Option<pb::PowerJob>) -> Option<Result<pb::PowerJob, String>> {
    let Some(job) = job else { return Some(Err(format!("power job {id} is gone"))) };
    match job.state() {
        State::Success => Some(Ok(job)),
        State::Failed => Some(Err(format!("power job {id} failed: {}", job.state_reason))),
        State::Cancelled => Some(Err(format!("power job {id} was cancelled"))),
        State::Unspecified | State::Pending | State::Running => None,
    }
}

impl Row for pb::PowerJob {
    const COLUMNS: &'static str = "ID:id,HARDWARE:hardware_id,OPERATIONS,STATE:state,DONE,\
        AGE:create_time,REASON";

    fn cell(&self, column: &str) -> String {
        match column {
            "OPERATIONS" => {
                let operations = self.operations.iter().map(operation_text::operation);
                operations.collect::<Vec<_>>().join(", ")
            }
            "DONE" => format!("{}/{}", self.completed_operations, self.operations.len()),
            _ => {
                let reasons = [&self.state_reason].into_iter().chain(&self.downgrades);
                let reasons = reasons.filter(|text| !text.is_empty()).map(String::as_str);
                reasons.collect::<Vec<_>>().join("; ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn job(state: State) -> pb::PowerJob {
        pb::PowerJob { state: state.into(), state_reason: "401".into(), ..pb::PowerJob::default() }
    }

    #[test]
    fn waiting_ends_with_the_job_and_only_success_is_no_error() {
        assert_eq!(ended("j", Some(job(State::Running))), None);
        assert!(matches!(ended("j", Some(job(State::Success))), Some(Ok(_))));
        assert_eq!(
            ended("j", Some(job(State::Failed))),
            Some(Err("power job j failed: 401".into()))
        );
        assert_eq!(ended("j", None), Some(Err("power job j is gone".into())));
    }

    #[test]
    fn a_job_that_had_ended_is_reported_as_such() {
        let note = had_ended(&pb::PowerJob { id: "j".into(), ..job(State::Failed) });
        assert_eq!(note.as_deref(), Some("power job j had ended before: failed"));
        assert_eq!(had_ended(&job(State::Running)), None);
    }

    #[test]
    fn operations_that_could_not_be_verified_are_shown_with_the_reason() {
        let mut done = job(State::Success);
        done.downgrades = vec!["once reads back as continuous".into()];
        let row = done.row(SystemTime::UNIX_EPOCH);
        assert_eq!(row.last().unwrap(), "401; once reads back as continuous");
    }
}
