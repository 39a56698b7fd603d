//! Brings machines to their instances and back.
//!
//! ```text
//! own records ─changed─┐
//! workflows ──ended────┼─▶ agenda ─▶ settle(id): read again, one step, commit ─▶ agenda
//! time ────────────────┘
//! ```
//!
//! Nothing is remembered but in the record: a step reads it, asks the peers, and commits what came of it only if the record
//! is still as it was read. So the process may die between any two statements, and two processes may do the same
//! instance: whoever comes next finds what is done, and asks for the rest with the same request ids.
//!
//! - `provision`: may the machine be used, and what installs it?
//! - `install`: has the workflow ended, has the system called home?
//! - `give_back`: is the machine clean?

mod agenda;
mod give_back;
mod install;
mod provision;
mod round;

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::feed;
use store::mirror::Mirror;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{WatchWorkflowsRequest, Workflow, WorkflowState};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::agenda::{Failed, Then};
use self::round::{Ended, Round};
use crate::instances::{self, Instances, Occupancy};
use crate::peers::{self, Peers};
use crate::state::{Event, State};

/// How long one step may take.
const STEP: Duration = Duration::from_secs(30);
/// How long what was cancelled is given to end.
const CANCELLING: Duration = Duration::from_secs(5);
/// No request.
const NONE: &str = "";
/// The label of a workflow that says which request made it.
const MADE_BY: &str = "tinwright.instance/step";
/// The label that says which instance, of several that may have had the id one after another: with it a request of an
/// earlier one differs, and is not taken for this one's.
const CREATED: &str = "tinwright.instance/created";
/// When an end is looked for that nobody told of, which ought not to happen.
const UNHEARD: Duration = Duration::from_secs(300);

/// Why a step was not made.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The record could not be read or written, or was changed meanwhile.
    #[error(transparent)]
    Records(#[from] instances::Error),
    /// A peer could not be asked, or refused.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// The step took too long.
    #[error("no end within {0:?}")]
    Slow(Duration),
}

/// Brings machines to their instances and back.
#[derive(Clone, Debug)]
pub struct Reconciler {
    instances: Instances,
    peers: Peers,
}

impl Reconciler {
    /// For `instances`, asking `peers`.
    pub fn new(instances: Instances, peers: Peers) -> Self {
        Self { instances, peers }
    }

    /// Reconciles everything in `mirror` until `stop`, then waits for the steps that are under way.
    pub async fn run(self, mirror: Mirror<Occupancy>, stop: CancellationToken) {
        let (tell, ended) = mpsc::unbounded_channel();
        let client = self.peers.workflow_client();
        let open = async || {
            let all = WatchWorkflowsRequest::default();
            Ok(client.clone().watch_workflows(all).await?.into_inner())
        };
        // A receiver that is gone has stopped, and hears nothing any more.
        let hear = move |news| drop(tell.send(Ended::heard(news)));
        tokio::join!(
            feed::follow("workflows", open, hear, stop.clone()),
            Box::pin(Round::new(self, mirror, ended).run(stop)),
        );
    }

    /// One step, its failure told to the log.
    #[tracing::instrument(name = "reconcile", skip_all, fields(instance.id = id))]
    async fn look_at(&self, id: &str) -> Result<Then, Failed> {
        self.settle(id).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "trying again");
            Failed
        })
    }

    /// Makes the next step of the instance `id`, if there is one to make.
    async fn settle(&self, id: &str) -> Result<Then, Error> {
        let step = async {
            let records = self.instances.records();
            let found = records.get(id).await.map_err(instances::Error::from)?;
            let Some(instance) = found else { return Ok(Then::Idle) };
            match State::try_from(&instance).map_err(instances::Error::from)? {
                State::Queued => self.provision(&instance).await,
                State::Provisioning => self.install(&instance).await,
                State::Deprovisioning => self.give_back(&instance).await,
                State::Active
                | State::Failed
                | State::Released
                | State::DeprovisionFailed
                | State::Gone => Ok(Then::Idle),
            }
        };
        match tokio::time::timeout(STEP, Box::pin(step)).await {
            Ok(Err(Error::Records(error))) if error.is_stale() => Ok(Then::Again),
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Slow(STEP)),
        }
    }

    /// Commits that `event` happened to `instance` as it was read.
    async fn advance(
        &self,
        instance: &Instance,
        event: Event,
        reason: &str,
    ) -> Result<Then, Error> {
        let new = self.instances.advance(instance, event, reason, |_| {}).await?;
        tracing::info!(
            instance.id,
            hardware.id = instance.hardware_id,
            state = new.state().word(),
            reason,
            "instance moved on"
        );
        Ok(Then::Again)
    }

    /// Ends what was under way with `reason`.
    async fn fail(&self, instance: &Instance, reason: &str) -> Result<Then, Error> {
        self.advance(instance, Event::Failed, reason).await
    }

    /// Begins the attempt anew, under new request ids, where an old one belongs to something else.
    async fn anew(&self, instance: &Instance) -> Result<Then, Error> {
        let mut new = instance.clone();
        new.generation += 1;
        self.instances.put(instance, new).await?;
        Ok(Then::Again)
    }

    /// Says why nothing moves, once, and that it is to be looked at after `pause`.
    async fn wait(&self, instance: &Instance, why: &str, pause: Duration) -> Result<Then, Error> {
        let new = Instance { state_reason: why.to_owned(), ..instance.clone() };
        self.instances.put(instance, new).await?;
        Ok(Then::Wait(pause))
    }

    /// Cancels what is still to end of the instance's workflows, those included whose making was never recorded, but for
    /// what the request `but` made.
    async fn cancel_all(&self, instance: &Instance, but: &str) -> Result<Leftovers, Error> {
        let ours = self.peers.workflows(&instance.hardware_id, &instance.id).await?;
        let kept = |workflow: &Workflow| workflow.labels.get(MADE_BY).is_some_and(|by| by == but);
        let running = ours.iter().filter(|workflow| !is_ended(workflow) && !kept(workflow));
        let mut left = Leftovers { any: !ours.is_empty(), running: 0 };
        for workflow in running {
            self.peers.cancel(&workflow.id).await?;
            left.running += 1;
        }
        Ok(left)
    }
}

/// What the workflow service has of an instance.
#[derive(Clone, Copy, Debug)]
struct Leftovers {
    /// It has had work done on the machine, or queued.
    any: bool,
    /// How many have not ended yet.
    running: usize,
}

/// The name of a request that is made once in a generation of the instance.
fn request_id(instance: &Instance, step: &str) -> String {
    format!("{}/{step}/{}", instance.id, instance.generation)
}

/// The labels of what that request makes: by them it is known again before its making is recorded.
fn labels(instance: &Instance, step: &str) -> BTreeMap<String, String> {
    let labels = [(MADE_BY, request_id(instance, step)), (CREATED, created(instance))];
    labels.map(|(key, value)| (key.to_owned(), value)).into()
}

/// When the instance was created, in a form that only tells equal from different.
fn created(instance: &Instance) -> String {
    let at = instance.create_time.unwrap_or_default();
    format!("{}-{}", at.seconds, at.nanos)
}

/// Whether nothing will happen in `workflow` any more.
fn is_ended(workflow: &Workflow) -> bool {
    match workflow.state() {
        WorkflowState::Success
        | WorkflowState::Failed
        | WorkflowState::Timeout
        | WorkflowState::Cancelled => true,
        WorkflowState::Unspecified
        | WorkflowState::Pending
        | WorkflowState::Preparing
        | WorkflowState::Running
        | WorkflowState::Post => false,
    }
}

#[cfg(test)]
mod tests;
