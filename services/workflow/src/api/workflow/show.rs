//! What callers see of a workflow.

use tinwright::common::v1::View;
use tinwright::secret::Secrets as _;
use tinwright::workflow::v1 as pb;

use crate::api::Api;
use crate::queue::{Standing, Turn};
use crate::{record, stray};

impl Api {
    /// `workflow` with what only memory knows: the latest progress, and what it waits for.
    pub(in crate::api) fn shown(&self, workflow: pb::Workflow, view: View) -> pb::Workflow {
        let mut workflow = self.pulses.over(workflow);
        if workflow.state() == pb::WorkflowState::Pending {
            self.explain(&mut workflow);
        }
        if let Some(told) = stray::told(&workflow) {
            let reason = &mut workflow.state_reason;
            *reason = if reason.is_empty() { told } else { format!("{reason}; {told}") };
        }
        match view {
            View::Full => workflow,
            View::Unspecified | View::Basic => workflow.without_secrets(),
        }
    }

    fn explain(&self, workflow: &mut pb::Workflow) {
        let turn = match record::standing(workflow) {
            Standing::Waiting => self.queues.turn(&workflow.id.as_str().into()),
            Standing::Active | Standing::Over => None,
        };
        workflow.state_reason = match turn {
            Some(Turn::Behind { blocker, ahead }) => {
                workflow.blocked_by.clone_from(&blocker.0);
                match ahead {
                    1 => format!("behind workflow {blocker}"),
                    ahead => {
                        format!("behind workflow {blocker} and {} more", ahead.saturating_sub(1))
                    }
                }
            }
            Some(Turn::Now | Turn::Holding | Turn::Disabled | Turn::Over) | None => {
                "waits for the machine's worker".to_owned()
            }
        };
    }
}
