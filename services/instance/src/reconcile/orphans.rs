//! Workflows that a step created for an instance that no longer waits for them.
//!
//! A step creates a workflow first, held back, and records it in the instance afterwards; the next step releases it. If the instance
//! was changed or deleted in between, by a caller or by another process, nobody waits for that workflow, and nobody releases it. The
//! step that created it cancels it. If that
//! process has died, or if its call was carried out late, a sweep cancels it: every process compares all running workflows
//! with the instances once a minute.

use std::collections::{BTreeMap, HashMap};

use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{Workflow, WorkflowState};

use super::{CREATED_LABEL, Error, Outcome, REQUEST_LABEL, Reconciler, STEP_TIMEOUT};
use super::{deprovision, needs_workflow, provision, request_labels};
use crate::instances;
use crate::state::State;

/// A workflow that a step created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CreatedObject {
    /// Its id.
    pub(super) id: String,
    /// The instance.
    pub(super) instance_id: String,
    /// The labels that [`request_labels`] returned for the step.
    labels: BTreeMap<String, String>,
}

impl CreatedObject {
    /// The object `id`, which `step` of `instance` created.
    pub(super) fn new(id: &str, instance: &Instance, step: &str) -> Self {
        let labels = request_labels(instance, step);
        Self { id: id.to_owned(), instance_id: instance.id.clone(), labels }
    }

    /// Returns `workflow` if a step created it and it can still be cancelled.
    pub(super) fn from_running(workflow: &Workflow) -> Option<Self> {
        let is_ending = workflow.is_terminal()
            || workflow.state() == WorkflowState::Post
            || workflow.stop_time.is_some();
        let label = |key: &str| Some((key.to_owned(), workflow.labels.get(key)?.clone()));
        let labels = [label(REQUEST_LABEL)?, label(CREATED_LABEL)?].into();
        let (id, instance_id) = (workflow.id.clone(), workflow.instance_id.clone());
        (!is_ending).then_some(Self { id, instance_id, labels })
    }

    /// True if `instance` waits for the object, or its current step may still record it.
    fn is_wanted_by(&self, instance: &Instance) -> bool {
        let may_record = || {
            let step = current_step(instance);
            step.is_some_and(|step| request_labels(instance, step) == self.labels)
        };
        instance.workflow_id == self.id || instance.workflow_id.is_empty() && may_record()
    }
}

/// Returns the step that creates a workflow for `instance` in its current state.
fn current_step(instance: &Instance) -> Option<&'static str> {
    match State::try_from(instance).ok()? {
        State::Queued => Some(provision::STEP),
        State::Reinstalling if needs_workflow(instance) => Some(provision::STEP),
        State::Deprovisioning if !instance.forced => Some(deprovision::STEP),
        State::Provisioning
        | State::Reinstalling
        | State::Deprovisioning
        | State::Active
        | State::Failed
        | State::Released
        | State::DeprovisionFailed
        | State::Gone => None,
    }
}

impl Reconciler {
    /// Returns `result`, that of recording `workflow`. Cancels the workflow if another writer came first and the instance does
    /// not want it any more.
    pub(super) async fn recorded<T>(
        &self,
        workflow: &CreatedObject,
        result: Result<T, instances::Error>,
    ) -> Result<T, Error> {
        if result.as_ref().is_err_and(instances::Error::is_stale) {
            self.cancel_if_orphaned(workflow).await?;
        }
        Ok(result?)
    }

    /// Cancels `workflow` if no instance wants it.
    async fn cancel_if_orphaned(&self, workflow: &CreatedObject) -> Result<(), Error> {
        if self.is_wanted(workflow).await? {
            return Ok(());
        }
        self.peers.cancel_workflow(&workflow.id).await?;
        tracing::warn!(
            instance.id = workflow.instance_id,
            workflow.id,
            "workflow cancelled: no instance waits for it"
        );
        Ok(())
    }

    /// True if the stored instance wants the object.
    async fn is_wanted(&self, object: &CreatedObject) -> Result<bool, Error> {
        let stored = self.instances.records.get(&object.instance_id).await;
        let stored = stored.map_err(instances::Error::from)?;
        Ok(stored.is_some_and(|instance| object.is_wanted_by(&instance)))
    }

    /// Cancels `workflow`, which a sweep returned, unless an instance wants it.
    pub(super) async fn sweep(&self, workflow: &CreatedObject) -> Outcome {
        let cancelled = tokio::time::timeout(STEP_TIMEOUT, self.cancel_if_orphaned(workflow));
        match cancelled.await.unwrap_or(Err(Error::Timeout(STEP_TIMEOUT))) {
            Ok(()) => Outcome::Done,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, workflow.id, "workflow not compared with its instance");
                Outcome::Failed
            }
        }
    }
}

/// The running workflows that steps created, by id.
#[derive(Debug, Default)]
pub(super) struct Sweep(BTreeMap<String, Candidate>);

#[derive(Debug)]
struct Candidate {
    workflow: CreatedObject,
    /// True if no instance waited for it in the latest round.
    suspected: bool,
}

impl Sweep {
    /// Replaces all workflows, and keeps what is known of the remaining ones.
    pub(super) fn replace(&mut self, workflows: Vec<CreatedObject>) {
        let mut old = std::mem::take(&mut self.0);
        for workflow in workflows {
            match old.remove_entry(&workflow.id) {
                Some((id, known)) => drop(self.0.insert(id, known)),
                None => self.add(workflow),
            }
        }
    }

    /// Adds a workflow, unless it is known.
    pub(super) fn add(&mut self, workflow: CreatedObject) {
        let id = workflow.id.clone();
        self.0.entry(id).or_insert(Candidate { workflow, suspected: false });
    }

    /// Removes the workflow `id`, which cannot be cancelled any more.
    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Returns the workflows for which no instance has waited in this round and the one before: a step needs less time than
    /// that to record or cancel its own. `awaited` has the workflow that each instance waits for.
    pub(super) fn round(&mut self, awaited: &HashMap<String, String>) -> Vec<CreatedObject> {
        let mut suspects = Vec::new();
        for Candidate { workflow, suspected } in self.0.values_mut() {
            let is_awaited = awaited.get(&workflow.instance_id) == Some(&workflow.id);
            if *suspected && !is_awaited {
                suspects.push(workflow.clone());
            }
            *suspected = !is_awaited;
        }
        suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workflow(id: &str, instance: &Instance) -> Workflow {
        let mut workflow = Workflow {
            id: id.into(),
            instance_id: instance.id.clone(),
            labels: request_labels(instance, provision::STEP),
            ..Workflow::default()
        };
        workflow.set_state(WorkflowState::Pending);
        workflow
    }

    fn queued(id: &str, generation: i64) -> Instance {
        let mut instance = Instance { id: id.into(), generation, ..Instance::default() };
        State::Queued.write(&mut instance);
        instance
    }

    #[test]
    fn a_workflow_is_wanted_until_its_instance_can_no_longer_record_it() {
        let first = queued("i", 1);
        let created = CreatedObject::from_running(&workflow("w", &first)).unwrap();
        assert_eq!(created, CreatedObject::new("w", &first, provision::STEP));
        let in_state = |state: State, workflow_id: &str| {
            let mut instance = Instance { workflow_id: workflow_id.into(), ..first.clone() };
            state.write(&mut instance);
            instance
        };
        let recreated = Instance {
            create_time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            ..queued("i", 1)
        };
        for (instance, wanted) in [
            (first.clone(), true),
            (in_state(State::Provisioning, "w"), true),
            (in_state(State::Provisioning, "x"), false),
            (in_state(State::Failed, ""), false),
            (in_state(State::Released, ""), false),
            (in_state(State::Deprovisioning, ""), false),
            (queued("i", 2), false),
            (recreated, false),
        ] {
            assert_eq!(created.is_wanted_by(&instance), wanted, "{instance:?}");
        }
    }

    #[test]
    fn a_clean_up_is_not_wanted_once_its_delete_is_forced() {
        let mut instance = queued("i", 2);
        State::Deprovisioning.write(&mut instance);
        let created = CreatedObject::new("w", &instance, deprovision::STEP);
        assert!(created.is_wanted_by(&instance));
        assert!(!created.is_wanted_by(&Instance { forced: true, ..instance }));
    }

    #[test]
    fn workflows_that_end_and_those_of_other_creators_are_left_alone() {
        let mut others = workflow("w", &queued("i", 1));
        assert!(CreatedObject::from_running(&others).is_some());
        let stopped = Workflow { stop_time: Some(Default::default()), ..others.clone() };
        assert_eq!(CreatedObject::from_running(&stopped), None);
        for state in [WorkflowState::Post, WorkflowState::Success, WorkflowState::Cancelled] {
            let mut ending = others.clone();
            ending.set_state(state);
            assert_eq!(CreatedObject::from_running(&ending), None);
        }
        others.labels.remove(REQUEST_LABEL);
        assert_eq!(CreatedObject::from_running(&others), None);
    }

    #[test]
    fn a_workflow_is_suspected_after_two_rounds_in_a_row_without_an_instance() {
        let [a, b] = ["a", "b"].map(|id| CreatedObject::new(id, &queued("i", 1), provision::STEP));
        let (mut sweep, nobody) = (Sweep::default(), HashMap::new());
        let round = |sweep: &mut Sweep, awaited: &HashMap<String, String>| -> String {
            sweep.round(awaited).iter().map(|workflow| workflow.id.as_str()).collect()
        };
        sweep.replace(vec![a.clone()]);
        assert_eq!(round(&mut sweep, &nobody), "");
        sweep.replace(vec![a, b]);
        assert_eq!(round(&mut sweep, &nobody), "a");
        assert_eq!(round(&mut sweep, &[("i".to_owned(), "b".to_owned())].into()), "a");
        assert_eq!(round(&mut sweep, &nobody), "a");
        sweep.remove("a");
        assert_eq!(round(&mut sweep, &nobody), "b");
    }
}
