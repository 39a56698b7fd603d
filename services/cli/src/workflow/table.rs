//! The description of a workflow, with a table of its actions in the order they run.

use std::time::SystemTime;

use indicatif::HumanBytes;
use tinwright::workflow::v1 as pb;

use crate::output::{self, Row};

/// Describes `workflow` and its actions.
pub(super) fn workflow(workflow: &pb::Workflow, now: SystemTime) -> String {
    let fields = output::fields(&[
        ("workflow", workflow.id.clone()),
        ("template", workflow.template_name.clone()),
        ("hardware", workflow.hardware_id.clone()),
        ("instance", workflow.instance_id.clone()),
        ("state", output::state(workflow)),
        ("reason", workflow.state_reason.clone()),
        ("warning", workflow.warning.clone()),
        ("behind", workflow.blocked_by.clone()),
        ("age", output::age(workflow.create_time, now)),
    ]);
    format!("{fields}\n{}", output::table(&workflow.actions))
}

/// Returns the word for the phase of an action's progress.
pub(super) fn phase(progress: &pb::Progress) -> String {
    output::word(progress.phase().as_str_name(), "PHASE_")
}

/// Returns the task and the name of an action. The name alone is unique only in its task.
pub(super) fn name(action: &pb::Action) -> String {
    format!("{}/{}", action.task_name, action.name)
}

/// Describes the progress of a running action: `writing 1.00 GiB of 4.00 GiB`.
pub(super) fn progress(action: &pb::Action) -> String {
    let Some(progress) = action.progress.as_ref().filter(|_| is_running(action)) else {
        return String::new();
    };
    let phase = phase(progress);
    match (progress.bytes, progress.total_bytes) {
        (0, 0) => phase,
        (bytes, 0) => format!("{phase} {}", HumanBytes(bytes)),
        (bytes, total) => format!("{phase} {} of {}", HumanBytes(bytes), HumanBytes(total)),
    }
}

/// True if a worker runs the action.
pub(super) fn is_running(action: &pb::Action) -> bool {
    action.state() == pb::ActionState::Running
}

impl Row for pb::Action {
    const COLUMNS: &'static str = "ACTION,STATE:state,FAILED:failed_attempts,LOST:lost_attempts,\
        PROGRESS,REASON:reason";

    fn cell(&self, column: &str) -> String {
        if column == "ACTION" { name(self) } else { progress(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(name: &str, state: pb::ActionState) -> pb::Action {
        let progress = pb::Progress {
            phase: pb::progress::Phase::Writing.into(),
            bytes: 1 << 30,
            total_bytes: 4 << 30,
            time: None,
        };
        pb::Action {
            task_name: "os".into(),
            name: name.into(),
            state: state.into(),
            progress: Some(progress),
            ..pb::Action::default()
        }
    }

    #[test]
    fn a_workflow_is_described_with_its_actions() {
        let mut failed = action("stream", pb::ActionState::Failed);
        (failed.failed_attempts, failed.reason) = (2, "checksum differs".into());
        let text = workflow(
            &pb::Workflow {
                id: "w1".into(),
                template_name: "debian".into(),
                state: pb::WorkflowState::Running.into(),
                state_reason: "trying again".into(),
                actions: vec![failed, action("grow", pb::ActionState::Running)],
                ..pb::Workflow::default()
            },
            SystemTime::UNIX_EPOCH,
        );
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        let wanted = [
            "workflow   w1",
            "template   debian",
            "state      running",
            "reason     trying again",
            "",
            "ACTION     STATE    FAILED  LOST  PROGRESS                      REASON",
            "os/stream  failed   2       0                                   checksum differs",
            "os/grow    running  0       0     writing 1.00 GiB of 4.00 GiB",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn an_unknown_total_is_not_shown() {
        let mut running = action("grow", pb::ActionState::Running);
        running.progress.as_mut().unwrap().total_bytes = 0;
        assert_eq!(progress(&running), "writing 1.00 GiB");
    }
}
