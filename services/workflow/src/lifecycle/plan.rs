//! The constant part of a workflow: its limits and steps, and which steps may be run twice.

use std::time::Duration;

use crate::template::{self, Image, Rendered, Restart};

/// The constant part of a whole workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// True if the machine's power and boot device are set before the actions run.
    pub prepares: bool,
    /// True if the machine is switched off after the actions.
    pub powers_off: bool,
    /// From the first lease to the end of all actions; none is no limit.
    pub time_limit: Option<Duration>,
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

/// The reaction to an attempt whose result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Run the action again: it overwrites what it did.
    Retry,
    /// Fail: running the action twice may do harm.
    Fail,
    /// The action was to end the boot: it succeeded if a new boot is seen, and failed otherwise.
    ExpectBoot,
}

impl Plan {
    /// True if something is to be undone or switched off after the actions.
    pub fn has_post(&self) -> bool {
        self.prepares || self.powers_off
    }
}

impl AfterLoss {
    /// The default for an image, by the last part of its name. Only Tinkerbell's actions are known to be safe to retry.
    pub fn of(image: &Image) -> Self {
        match image.short_name() {
            "image2disk" | "oci2disk" | "qemuimg2disk" | "archive2disk" | "writefile"
            | "rootio" | "grub2disk" | "syslinux" | "slurp" => Self::Retry,
            "kexec" | "reboot" | "poweroff" | "waitdaemon" => Self::ExpectBoot,
            _ => Self::Fail,
        }
    }
}

impl From<Restart> for AfterLoss {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Retry => Self::Retry,
            Restart::Fail => Self::Fail,
        }
    }
}

/// A task names a worker that is not the workflow's machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task:?} names worker {worker:?}, which is not the workflow's machine")]
pub struct OtherWorker {
    /// Name of the task.
    pub task: String,
    /// The worker, as rendered.
    pub worker: String,
}

/// Returns the steps of a rendered template. Every task's worker must satisfy `is_machine`.
pub fn steps(
    rendered: &Rendered,
    is_machine: impl Fn(&str) -> bool,
) -> Result<Vec<Step>, OtherWorker> {
    let mut steps = Vec::new();
    for task in &rendered.tasks {
        if !is_machine(&task.worker) {
            return Err(OtherWorker { task: task.name.clone(), worker: task.worker.clone() });
        }
        steps.extend(task.actions.iter().map(|action| step(&task.name, action)));
    }
    Ok(steps)
}

fn step(task: &str, action: &template::Action) -> Step {
    Step {
        task: task.to_owned(),
        name: action.name.clone(),
        timeout: action.timeout,
        retries: action.retries,
        background: action.background,
        skipped: action.skipped,
        after_loss: action.restart.map_or_else(|| AfterLoss::of(&action.image), AfterLoss::from),
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
        let steps = steps(&rendered, |worker| worker == "w").unwrap();
        let after: Vec<_> = steps.iter().map(|step| step.after_loss).collect();
        use AfterLoss::{ExpectBoot, Fail, Retry};
        assert_eq!(after, [Retry, Fail, Retry, ExpectBoot, Fail]);
    }

    #[test]
    fn the_error_names_a_worker_that_is_not_the_machine() {
        let rendered = Template::parse("t", TEXT).unwrap().render(Values::default()).unwrap();
        let other = steps(&rendered, |_| false).unwrap_err().to_string();
        assert_eq!(other, r#"task "a" names worker "w", which is not the workflow's machine"#);
    }
}
