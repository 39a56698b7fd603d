//! The constant part of a workflow: its limits and steps, and which steps may be run twice.

use std::time::Duration;

use crate::template::{self, AfterLoss};

/// The constant part of a whole workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// True if the machine's power and boot device are set before the actions run.
    pub prepares: bool,
    /// True if the machine is switched off after the actions.
    pub powers_off: bool,
    /// From the first lease to the end of all actions; none is no limit.
    pub time_limit: Option<Duration>,
    /// The time for which the machine's worker is awaited.
    pub worker_timeouts: WorkerTimeouts,
}

/// The time for which the worker of a machine is awaited before the machine is prepared again. A setting of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTimeouts {
    /// If no step of a boot is seen: the self-test of a large server takes ten minutes.
    pub silent: Duration,
    /// After the latest step of a boot.
    pub step: Duration,
}

impl WorkerTimeouts {
    /// Half an hour, and ten minutes.
    pub const DEFAULT: Self =
        Self { silent: Duration::from_secs(30 * 60), step: Duration::from_secs(10 * 60) };

    /// The time in all, whatever steps are seen: the machine may boot again and again.
    pub fn total(&self) -> Duration {
        self.silent.max(self.step).saturating_mul(2)
    }
}

impl Default for WorkerTimeouts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The constant part of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The task it belongs to.
    pub task: String,
    /// Unique in the task.
    pub name: String,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Further attempts after a failure or a timeout.
    pub retries: u32,
    /// True if it counts as done as soon as it starts.
    pub background: bool,
    /// True if its condition was false when it was rendered.
    pub skipped: bool,
    /// The reaction to an attempt whose result is unknown.
    pub after_loss: AfterLoss,
}

impl Plan {
    /// True if something is to be undone or switched off after the actions.
    pub fn has_post(&self) -> bool {
        self.prepares || self.powers_off
    }
}

impl Step {
    /// The step of a rendered action.
    pub fn new(task: &str, action: &template::Action) -> Self {
        Self {
            task: task.to_owned(),
            name: action.name.clone(),
            timeout: Duration::from_secs(action.timeout),
            retries: action.retries,
            background: action.background,
            skipped: action.skipped,
            after_loss: action.restart.unwrap_or_else(|| AfterLoss::of(&action.image)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Template, Values};

    const TEXT: &str = "
name: t
tasks:
- name: a
  worker: w
  actions:
  - {name: x, image: quay.io/a/image2disk:v1}
  - {name: y, image: image2disk, restart: fail}
  - {name: z, image: other, restart: retry}
  - {name: r, image: reboot}
  - {name: c, image: cexec}
";

    #[test]
    fn the_template_overrides_the_reaction_to_a_loss_that_the_image_implies() {
        let rendered = Template::parse("t", TEXT).unwrap().render(Values::default()).unwrap();
        let actions = &rendered.definition.tasks[0].actions;
        let after: Vec<_> = actions.iter().map(|it| Step::new("a", it).after_loss).collect();
        use AfterLoss::{ExpectBoot, Fail, Retry};
        assert_eq!(after, [Retry, Fail, Retry, ExpectBoot, Fail]);
    }
}
