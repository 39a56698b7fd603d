//! The part of a workflow that callers see.

use nouns::Viewer;
use tinwright::common::v1::View;
use tinwright::secret::Secrets as _;
use tinwright::workflow::v1 as pb;

use crate::api::Api;
use crate::turn::{QueueState, Turn};
use crate::{record, unexpected_boots};

/// The reason why a workflow waits, for a tenant: the others may be those of somebody else.
const BEHIND_OTHERS: &str = "behind other workflows of the machine";

impl Api {
    /// Returns `workflow` as `viewer` sees it. One with a tenant is told of no other workflow.
    pub(in crate::api) fn visible_to(
        &self,
        viewer: &Viewer,
        workflow: pb::Workflow,
    ) -> pb::Workflow {
        let mut workflow = self.visible(workflow, viewer.view);
        if viewer.tenant.is_some() {
            // An address in the site's own networks.
            workflow.boot_image_url.clear();
        }
        if viewer.tenant.is_some() && !workflow.blocked_by.is_empty() {
            workflow.blocked_by.clear();
            BEHIND_OTHERS.clone_into(&mut workflow.state_reason);
        }
        workflow
    }

    /// Returns `workflow` as `view` shows it, with the latest progress and the reason why it waits.
    pub(in crate::api) fn visible(&self, workflow: pb::Workflow, view: View) -> pb::Workflow {
        let mut workflow = self.progress.merge_into(workflow);
        if workflow.state() == pb::WorkflowState::Pending {
            self.add_wait_reason(&mut workflow);
        }
        self.add_suspension(&mut workflow);
        if workflow.state().is_terminal() {
            let waits = |action: &&mut pb::Action| action.state() == pb::ActionState::Pending;
            let left = workflow.actions.iter_mut().filter(waits);
            left.for_each(|action| action.set_state(pb::ActionState::NotRun));
        }
        if !workflow.state().is_terminal() && !workflow.warning.is_empty() {
            workflow.state_reason.clone_from(&workflow.warning);
        }
        if let Some(warning) = unexpected_boots::warning(&workflow) {
            let present = &mut workflow.warning;
            *present = if present.is_empty() { warning } else { format!("{present}; {warning}") };
        }
        workflow.in_view(view)
    }

    /// Adds that a workflow waits because of the state of its machine, unless it waits for others or runs an action.
    fn add_suspension(&self, workflow: &mut pb::Workflow) {
        let runs = workflow.actions.iter().any(|it| it.state() == pb::ActionState::Running);
        if workflow.state().is_terminal() || !workflow.blocked_by.is_empty() || runs {
            return;
        }
        if let Some(suspension) = self.gate.latest(&workflow.hardware_id) {
            let reason = &mut workflow.state_reason;
            let has_outcome =
                workflow.state == i32::from(pb::WorkflowState::Post) && !reason.is_empty();
            *reason = if has_outcome {
                format!("{reason}; {suspension}")
            } else {
                suspension.to_string()
            };
        }
    }

    fn add_wait_reason(&self, workflow: &mut pb::Workflow) {
        let turn = match record::queue_state(workflow) {
            QueueState::Waiting => workflow.id.parse().ok().and_then(|id| self.queues.turn(id)),
            QueueState::HeldBack => Some(Turn::HeldBack),
            QueueState::Active | QueueState::Ended => None,
        };
        workflow.state_reason = match turn {
            Some(Turn::Behind { blocker, ahead }) => {
                workflow.blocked_by = blocker.to_string();
                match ahead {
                    1 => format!("behind workflow {blocker}"),
                    ahead => {
                        format!("behind workflow {blocker} and {} more", ahead.saturating_sub(1))
                    }
                }
            }
            Some(Turn::HeldBack) => "held back until its creator releases it".to_owned(),
            Some(Turn::Now | Turn::Holding) | None => "waits for the machine's worker".to_owned(),
        };
    }
}
