//! Provisions and deprovisions machines.
//!
//! ```text
//! own records ─changed─┐
//! workflows ──ended────┼─▶ work queue ─▶ step(id): read again, act, commit ─▶ work queue
//! time ────────────────┘
//!      └─every minute──▶ sweep: cancels workflows that no instance waits for
//! ```
//!
//! All state is in the record. A step reads it, calls the peers, and commits the result only if the record has not changed
//! since. So the process may die anywhere, and two processes may reconcile the same instance: the next step finds what
//! is done, and repeats the rest with the same request ids.
//!
//! Nothing is done to a machine before it is recorded: a workflow, or the power job that boots a script, is created held back, recorded in
//! the instance, and only then released. Whoever deletes the instance meanwhile either finds it recorded, and cancels it, or it is never
//! released.
//!
//! - `provision`: checks that the machine may be used, and creates the workflow that installs it.
//! - `platform`: gives the machine of a platform's system an address, and opens its boot gate.
//! - `install`: waits for the workflow and for the installed system's call.
//! - `deprovision`: has the machine cleaned, and releases it.
//! - `addresses`: copies the addresses of attached grants into the instances.
//! - `orphans`: cancels what a step created for an instance that was changed or deleted meanwhile.

mod addresses;
mod controller;
mod deprovision;
mod install;
mod orphans;
mod platform;
mod provision;

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::feed::{self, FeedEvent};
use runtime::work_queue::Outcome;
use store::mirror::Mirror;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{WatchWorkflowsRequest, Workflow, WorkflowState};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::addresses::AddressCopies;
use self::controller::{Controller, WorkflowChange};
pub(crate) use self::platform::PlatformValues;
use crate::check::is_installed_by_workflow;
use crate::instances::{self, InstanceKind, Instances};
use crate::peers::{self, Peers};
use crate::state::{Event, State};

/// The longest duration of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that cancelled workflows are given to end.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which an awaited workflow is read, in case its end was missed.
const WORKFLOW_POLL_INTERVAL: Duration = Duration::from_secs(300);
/// Poll interval of a workflow that waits for its turn or for its worker: its reason may change
/// without a write.
const PENDING_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The interval at which a machine that may not be used now is read again.
const HARDWARE_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// In place of a request id: no request.
const NO_REQUEST: &str = "";
/// The label with the id of the request that created a workflow or power job.
const REQUEST_LABEL: &str = "tinwright.instance/step";
/// The label with the creation time of the instance. Older programs let ids be used again; requests must not collide then.
const CREATED_LABEL: &str = "tinwright.instance/created";

/// A failed step.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The record could not be read or written, or has changed meanwhile.
    #[error(transparent)]
    Records(#[from] instances::Error),
    /// A call to another service failed.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// The step took too long.
    #[error("no end within {0:?}")]
    Timeout(Duration),
}

/// Provisions and deprovisions machines.
#[derive(Clone, Debug)]
pub struct Reconciler {
    instances: Instances,
    peers: Peers,
}

impl Reconciler {
    /// Reconciles `instances` by calls to `peers`.
    pub fn new(instances: Instances, peers: Peers) -> Self {
        Self { instances, peers }
    }

    /// Reconciles all instances in `mirror` until `stop`, then waits for the steps that are running.
    pub async fn run(self, mirror: Mirror<InstanceKind>, stop: CancellationToken) {
        let (sender, workflows) = mpsc::unbounded_channel();
        let channel = self.peers.services.workflow.clone();
        let live = WatchWorkflowsRequest { only_live: true, ..Default::default() };
        let forward = move |event: FeedEvent<Workflow>| {
            if let Some(change) = WorkflowChange::from_event(event) {
                // Fails only once the controller has stopped.
                let _stopped = sender.send(change);
            }
        };
        let addresses = AddressCopies::new(self.instances.clone(), self.peers.clone());
        tokio::join!(
            feed::follow_at("workflows", &channel, live, forward, stop.clone()),
            Box::pin(addresses.run(mirror.clone(), stop.clone())),
            Box::pin(Controller::new(self, mirror, workflows).run(stop)),
        );
    }

    /// Makes one step and logs its failure.
    #[tracing::instrument(skip_all, fields(instance.id = id, hardware.id))]
    async fn reconcile(&self, id: &str) -> Outcome {
        self.step(id).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "step failed; it is repeated");
            Outcome::Failed
        })
    }

    /// Makes the next step of the instance `id`, if there is one.
    async fn step(&self, id: &str) -> Result<Outcome, Error> {
        let step = async {
            let records = &self.instances.records;
            let found = records.get(id).await.map_err(instances::Error::from)?;
            let Some(instance) = found else { return Ok(Outcome::Done) };
            tracing::Span::current().record("hardware.id", &instance.hardware_id);
            match State::try_from(&instance).map_err(instances::Error::from)? {
                State::Queued => Box::pin(self.provision(&instance)).await,
                State::Reinstalling if needs_workflow(&instance) => {
                    Box::pin(self.provision(&instance)).await
                }
                State::Provisioning | State::Reinstalling => self.install(&instance).await,
                State::Deprovisioning => self.deprovision(&instance).await,
                State::Active
                | State::Failed
                | State::Released
                | State::DeprovisionFailed
                | State::Gone => Ok(Outcome::Done),
            }
        };
        match tokio::time::timeout(STEP_TIMEOUT, Box::pin(step)).await {
            Ok(Err(Error::Records(error))) if error.is_stale() => Ok(Outcome::Again),
            Ok(result) => result,
            Err(_) => Err(Error::Timeout(STEP_TIMEOUT)),
        }
    }

    /// Commits `event` for `instance` as it was read.
    async fn advance(
        &self,
        instance: &Instance,
        event: Event,
        reason: &str,
    ) -> Result<Outcome, Error> {
        let new = self.instances.advance(instance, event, reason, |_| {}).await?;
        tracing::info!(
            instance.id,
            hardware.id = instance.hardware_id,
            state = new.state().word(),
            reason,
            "instance changed state"
        );
        Ok(Outcome::Again)
    }

    /// Ends provisioning or deprovisioning as failed, for `reason`.
    async fn fail(&self, instance: &Instance, reason: &str) -> Result<Outcome, Error> {
        self.advance(instance, Event::Failed, reason).await
    }

    /// Reacts to a failure to create a workflow or a power job: a used request id needs a new attempt, a refusal ends this
    /// one, and everything else is repeated.
    async fn creation_failed(
        &self,
        instance: &Instance,
        error: peers::Error,
    ) -> Result<Outcome, Error> {
        match error {
            peers::Error::RequestIdReused => self.restart_attempt(instance).await,
            peers::Error::Refused { .. } => self.fail(instance, &error.to_string()).await,
            peers::Error::Unavailable { .. } => Err(error.into()),
        }
    }

    /// Returns the result of the workflow that the instance waits for, or what that waits for. The error of a failed one is its
    /// reason. A workflow that is held back is released: now that it is recorded, whoever ends the instance's wait finds it.
    async fn release_or_result(&self, instance: &Instance) -> Result<Awaited, Error> {
        Ok(match self.peers.workflow(&instance.workflow_id).await? {
            None => Awaited::Ended(Err(format!("workflow {} was deleted", instance.workflow_id))),
            Some(workflow) if workflow.is_terminal() => Awaited::Ended(result(&workflow)),
            Some(workflow) if workflow.held => {
                self.peers.release_workflow(&workflow.id).await?;
                tracing::info!(instance.id, workflow.id, "workflow released");
                Awaited::Running(Waits { reason: None, poll: PENDING_POLL_INTERVAL })
            }
            Some(workflow) => Awaited::Running(Waits::of(workflow)),
        })
    }

    /// Waits for the workflow of the instance, and shows what that waits for. The alarm of an overdue instance stays.
    async fn await_workflow(&self, instance: &Instance, waits: Waits) -> Result<Outcome, Error> {
        match waits.reason {
            Some(reason) if !instance.overdue => self.wait(instance, &reason, waits.poll).await,
            Some(_) | None => Ok(Outcome::After(waits.poll)),
        }
    }

    /// Cancels the power job that boots the instance's script, if there is one. One that has ended is not changed.
    async fn cancel_boot(&self, instance: &Instance) -> Result<(), Error> {
        if !instance.power_job_id.is_empty() {
            self.peers.cancel_power_job(&instance.power_job_id).await?;
        }
        Ok(())
    }

    /// Begins a new generation, and with it new request ids, since the old ones were used for another request.
    async fn restart_attempt(&self, instance: &Instance) -> Result<Outcome, Error> {
        let mut new = instance.clone();
        new.generation += 1;
        new.power_job_id.clear();
        self.instances.put(instance, new).await?;
        Ok(Outcome::Again)
    }

    /// Records `reason` as what the instance waits for, and schedules the next step after `delay`.
    async fn wait(
        &self,
        instance: &Instance,
        reason: &str,
        delay: Duration,
    ) -> Result<Outcome, Error> {
        let new = Instance { state_reason: reason.to_owned(), ..instance.clone() };
        self.instances.put(instance, new).await?;
        Ok(Outcome::After(delay))
    }

    /// Cancels the running workflows of the instance, recorded or not, except the workflow
    /// that the request `except` created. Cancels the power job that boots its script, too; one that was never recorded is never released.
    async fn cancel_workflows(
        &self,
        instance: &Instance,
        except: &str,
    ) -> Result<ExistingWorkflows, Error> {
        self.cancel_boot(instance).await?;
        let all = self.peers.workflows(&instance.hardware_id, &instance.id).await?;
        let is_excepted =
            |workflow: &Workflow| workflow.labels.get(REQUEST_LABEL).is_some_and(|id| id == except);
        let is_listed = |id: &String| all.iter().any(|workflow| workflow.id == *id);
        let is_complete = instance.workflow_ids.iter().all(is_listed);
        let mut existing = ExistingWorkflows { began: false, running: 0, is_complete };
        for workflow in &all {
            if workflow.is_terminal() || is_excepted(workflow) {
                existing.began |= may_have_begun(workflow);
                continue;
            }
            let cancelled = self.peers.cancel_workflow(&workflow.id).await?;
            existing.began |= cancelled.as_ref().is_none_or(may_have_begun);
            existing.running += usize::from(!cancelled.is_some_and(|it| it.is_terminal()));
        }
        Ok(existing)
    }
}

/// The workflow that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Awaited {
    /// It has not ended.
    Running(Waits),
    /// It has succeeded, or failed for this reason.
    Ended(Result<(), String>),
}

/// What a workflow that has not ended waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waits {
    /// Its reason, empty while it works; none if that is not known yet.
    reason: Option<String>,
    /// The time after which it is worth a look.
    poll: Duration,
}

impl Waits {
    fn of(workflow: Workflow) -> Self {
        let poll = match workflow.state() {
            WorkflowState::Pending => PENDING_POLL_INTERVAL,
            WorkflowState::Unspecified
            | WorkflowState::Preparing
            | WorkflowState::Running
            | WorkflowState::Post
            | WorkflowState::Success
            | WorkflowState::Failed
            | WorkflowState::Timeout
            | WorkflowState::Cancelled => WORKFLOW_POLL_INTERVAL,
        };
        Self { reason: Some(workflow.state_reason), poll }
    }
}

/// The workflows that an instance has on its machine.
#[derive(Clone, Copy, Debug)]
struct ExistingWorkflows {
    /// True if any may have changed the machine, ended ones included.
    began: bool,
    /// The number that has not ended yet.
    running: usize,
    /// True if all that the instance has recorded are among them. Ended ones are deleted after a time.
    is_complete: bool,
}

/// True unless `workflow` ended, or waits, before its machine was prepared for it and before a worker took an action.
fn may_have_begun(workflow: &Workflow) -> bool {
    let waits = matches!(workflow.state(), WorkflowState::Pending | WorkflowState::Cancelled);
    !waits || workflow.start_time.is_some() || workflow.preparations > 0
}

/// Returns the result of an ended workflow: success, or the reason of its failure.
fn result(workflow: &Workflow) -> Result<(), String> {
    let result = match workflow.state() {
        WorkflowState::Success => return Ok(()),
        WorkflowState::Timeout => "took too long",
        WorkflowState::Cancelled => "was cancelled",
        WorkflowState::Failed
        | WorkflowState::Unspecified
        | WorkflowState::Pending
        | WorkflowState::Preparing
        | WorkflowState::Running
        | WorkflowState::Post => "failed",
    };
    let separator = if workflow.state_reason.is_empty() { "" } else { ": " };
    Err(format!("workflow {} {result}{separator}{}", workflow.id, workflow.state_reason))
}

/// True if the workflow that installs the machine again was not created yet.
fn needs_workflow(instance: &Instance) -> bool {
    let Instance { workflow_id, install_time, .. } = instance;
    is_installed_by_workflow(instance) && workflow_id.is_empty() && install_time.is_none()
}

/// Returns the id of the request that is made once per `step` and generation of the instance.
fn request_id(instance: &Instance, step: &str) -> String {
    format!("{}/{step}/{}", instance.id, instance.generation)
}

/// Returns the labels of the object that this request creates. They identify it before its creation is recorded.
fn request_labels(instance: &Instance, step: &str) -> BTreeMap<String, String> {
    let created = instance.create_time.unwrap_or_default();
    let created = format!("{}-{}", created.seconds, created.nanos);
    let labels = [(REQUEST_LABEL, request_id(instance, step)), (CREATED_LABEL, created)];
    labels.map(|(key, value)| (key.to_owned(), value)).into()
}

#[cfg(test)]
mod tests;
