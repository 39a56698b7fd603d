//! A parsed assignment: the action to run, its variables and time limit.

use std::sync::Arc;
use std::time::Duration;

use tinwright::workflow::v1::{Action, Assignment};
use worker::{Builtin, Environment};

use super::progress::ProgressRecorder;
use crate::leftover_processes::LEASE_VARIABLE;

/// Default time limit of an action.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(3600);

/// Ids of the worker that runs an action, for the action's variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerIds<'a> {
    /// /proc/sys/kernel/random/boot_id.
    pub(crate) boot_id: &'a str,
    /// Id of the machine's hardware record.
    pub(crate) hardware_id: &'a str,
}

/// One attempt at an action.
#[derive(Clone, Debug)]
pub(crate) struct ActionAttempt {
    /// Workflow and lease. Every report contains them, so that reports under an old lease are refused.
    pub(crate) workflow_id: String,
    pub(crate) lease_id: String,
    /// Name in the template.
    pub(crate) name: String,
    /// Image in the template.
    pub(crate) image: String,
    /// The built-in action that replaces the image.
    pub(crate) builtin: Option<Builtin>,
    pub(crate) environment: Environment,
    /// Time limit.
    pub(crate) limit: Duration,
    /// True if the control plane treats the action as done when it starts.
    pub(crate) background: bool,
    /// Commands after a timeout and after a failure; may be empty.
    pub(crate) on_timeout: Vec<String>,
    pub(crate) on_failure: Vec<String>,
    /// Its progress and its log.
    pub(crate) recorder: Arc<ProgressRecorder>,
}

impl ActionAttempt {
    /// Parses `assignment`. Returns `None` if it has no action.
    pub(crate) fn parse(assignment: Assignment, runner: WorkerIds<'_>) -> Option<Self> {
        let standard = variables(&assignment, runner)?;
        let Assignment { lease_id, workflow_id, action, instance_id: _ } = assignment;
        let action = action?;
        let Action { on_timeout, on_failure, background, name, image, .. } = action;
        let limit = action.timeout.and_then(|limit| Duration::try_from(limit).ok());
        // Variables of the template override the standard ones.
        let own = action.environment.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(Self {
            workflow_id,
            lease_id,
            builtin: Builtin::find(&image, &action.command),
            environment: standard.into_iter().chain(own).collect(),
            limit: limit.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_TIME_LIMIT),
            name,
            image,
            background,
            on_timeout,
            on_failure,
            recorder: Arc::default(),
        })
    }
}

/// Returns the standard variables of every action.
fn variables(assignment: &Assignment, runner: WorkerIds<'_>) -> Option<Vec<(String, String)>> {
    let action = assignment.action.as_ref()?;
    let attempt = action.lease.as_ref().map_or(1, |lease| lease.attempt);
    let variables = [
        ("TINK_WORKFLOW_ID", assignment.workflow_id.clone()),
        ("TINK_TASK_ID", action.task_name.clone()),
        ("TINK_ACTION_ID", action.id.clone()),
        (LEASE_VARIABLE, assignment.lease_id.clone()),
        ("TINK_ATTEMPT", attempt.to_string()),
        ("TINK_BOOT_ID", runner.boot_id.to_owned()),
        ("TINK_HARDWARE_ID", runner.hardware_id.to_owned()),
        ("TINK_INSTANCE_ID", assignment.instance_id.clone()),
    ];
    Some(variables.map(|(name, value)| (name.to_owned(), value)).into())
}

#[cfg(test)]
mod tests {
    use tinwright::workflow::v1::Lease;

    use super::*;

    const WORKER: WorkerIds<'_> = WorkerIds { boot_id: "boot", hardware_id: "hardware" };

    fn assignment(image: &str, environment: &[&str]) -> Assignment {
        let action = Action {
            id: "action".into(),
            task_name: "install".into(),
            image: image.into(),
            environment: environment.iter().map(|pair| (*pair).to_owned()).collect(),
            lease: Some(Lease { attempt: 2, ..Lease::default() }),
            ..Action::default()
        };
        let (lease_id, workflow_id) = ("lease".into(), "workflow".into());
        Assignment { lease_id, workflow_id, action: Some(action), instance_id: "instance".into() }
    }

    fn attempt(image: &str, environment: &[&str]) -> ActionAttempt {
        ActionAttempt::parse(assignment(image, environment), WORKER).unwrap()
    }

    #[test]
    fn an_action_has_the_standard_variables() {
        let variables: Vec<_> = attempt("cexec", &["FS_TYPE=ext4"])
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let expected = [
            "FS_TYPE=ext4",
            "TINK_ACTION_ID=action",
            "TINK_ATTEMPT=2",
            "TINK_BOOT_ID=boot",
            "TINK_HARDWARE_ID=hardware",
            "TINK_INSTANCE_ID=instance",
            "TINK_LEASE_ID=lease",
            "TINK_TASK_ID=install",
            "TINK_WORKFLOW_ID=workflow",
        ];
        assert_eq!(variables, expected);
    }

    #[test]
    fn variables_of_the_template_are_not_overridden() {
        let attempt = attempt("cexec", &["TINK_ATTEMPT=mine", "CMD_LINE=a=b", "EMPTY"]);
        assert_eq!(attempt.environment.optional("TINK_ATTEMPT"), Some("mine"));
        assert_eq!(attempt.environment.optional("CMD_LINE"), Some("a=b"));
        assert_eq!(attempt.environment.optional("EMPTY"), None);
    }

    #[test]
    fn the_default_time_limit_is_an_hour() {
        let mut limited = assignment("cexec", &[]);
        if let Some(action) = &mut limited.action {
            action.timeout = Some(prost_types::Duration { seconds: 7, nanos: 0 });
        }
        assert_eq!(ActionAttempt::parse(limited, WORKER).unwrap().limit, Duration::from_secs(7));
        assert_eq!(attempt("cexec", &[]).limit, DEFAULT_TIME_LIMIT);
    }

    #[test]
    fn other_images_have_no_built_in() {
        assert_eq!(attempt("quay.io/tinkerbell/actions/wipe", &[]).builtin, Some(Builtin::Wipe));
        assert_eq!(attempt("alpine", &[]).builtin, None);
    }

    #[test]
    fn an_assignment_without_an_action_is_ignored() {
        assert!(ActionAttempt::parse(Assignment::default(), WORKER).is_none());
    }
}
