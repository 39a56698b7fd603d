//! An assignment, read and checked: what to run, with which variables, for how long.

use std::time::Duration;

use tinwright::workflow::v1::{Action, Assignment};
use worker::{Builtin, Environment, Policy};

use crate::orphans::LEASE;

/// How long an action may take if the template does not say.
const LIMIT: Duration = Duration::from_secs(3600);

/// Who runs an action, as its variables tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner<'a> {
    /// /proc/sys/kernel/random/boot_id.
    pub(crate) boot_id: &'a str,
    /// What the site knows the machine as.
    pub(crate) hardware_id: &'a str,
}

/// One try at an action.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Under which its reports are made: workflow, and the fence.
    pub(crate) workflow_id: String,
    pub(crate) lease_id: String,
    /// As the template calls it.
    pub(crate) name: String,
    /// The image that the template names.
    pub(crate) image: String,
    /// What we have in its place.
    pub(crate) builtin: Option<Builtin>,
    pub(crate) environment: Environment,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// The control plane counts it as done from its start.
    pub(crate) background: bool,
    /// What to run after it took too long, and after it failed; may be empty.
    pub(crate) on_timeout: Vec<String>,
    pub(crate) on_failure: Vec<String>,
}

impl Order {
    /// What `assignment` says; none if it is one of nothing.
    pub(crate) fn read(assignment: Assignment, runner: Runner<'_>) -> Option<Self> {
        let given = variables(&assignment, runner)?;
        let Assignment { lease_id, workflow_id, action, instance_id: _ } = assignment;
        let action = action?;
        let Action { on_timeout, on_failure, background, name, image, .. } = action;
        let limit = action.timeout.and_then(|limit| Duration::try_from(limit).ok());
        // What the template says comes later, and wins.
        let own = action.environment.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(Self {
            workflow_id,
            lease_id,
            builtin: Builtin::named(&image, &action.command, Policy::Only),
            environment: given.into_iter().chain(own).collect(),
            limit: limit.filter(|limit| !limit.is_zero()).unwrap_or(LIMIT),
            name,
            image,
            background,
            on_timeout,
            on_failure,
        })
    }
}

/// What every action is told besides its own variables.
fn variables(assignment: &Assignment, runner: Runner<'_>) -> Option<Vec<(String, String)>> {
    let action = assignment.action.as_ref()?;
    let attempt = action.lease.as_ref().map_or(1, |lease| lease.attempt);
    let variables = [
        ("TINK_WORKFLOW_ID", assignment.workflow_id.clone()),
        ("TINK_TASK_ID", action.task_name.clone()),
        ("TINK_ACTION_ID", action.id.clone()),
        (LEASE, assignment.lease_id.clone()),
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

    const RUNNER: Runner<'_> = Runner { boot_id: "boot", hardware_id: "hardware" };

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

    fn order(image: &str, environment: &[&str]) -> Order {
        Order::read(assignment(image, environment), RUNNER).unwrap()
    }

    #[test]
    fn an_action_is_told_who_runs_it_and_for_what() {
        let told: Vec<_> = order("cexec", &["FS_TYPE=ext4"])
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
        assert_eq!(told, expected);
    }

    #[test]
    fn what_the_template_says_is_never_overridden() {
        let order = order("cexec", &["TINK_ATTEMPT=mine", "CMD_LINE=a=b", "EMPTY"]);
        assert_eq!(order.environment.optional("TINK_ATTEMPT"), Some("mine"));
        assert_eq!(order.environment.optional("CMD_LINE"), Some("a=b"));
        assert_eq!(order.environment.optional("EMPTY"), None);
    }

    #[test]
    fn without_a_limit_an_action_has_an_hour() {
        let mut limited = assignment("cexec", &[]);
        if let Some(action) = &mut limited.action {
            action.timeout = Some(prost_types::Duration { seconds: 7, nanos: 0 });
        }
        assert_eq!(Order::read(limited, RUNNER).unwrap().limit, Duration::from_secs(7));
        assert_eq!(order("cexec", &[]).limit, LIMIT);
    }

    #[test]
    fn an_image_that_is_none_of_ours_has_no_built_in() {
        assert_eq!(order("quay.io/tinkerbell/actions/wipe", &[]).builtin, Some(Builtin::Wipe));
        assert_eq!(order("alpine", &[]).builtin, None);
    }

    #[test]
    fn an_assignment_without_an_action_is_none() {
        assert!(Order::read(Assignment::default(), RUNNER).is_none());
    }
}
