//! What never changes about a workflow: its limits, its steps, and what may be run twice.

use std::time::Duration;

use crate::{
    ids::HardwareId,
    template::{self, Image, Rendered, Restart},
};

/// What holds for the whole workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Its machines' power and boot device are set before it runs.
    pub prepares: bool,
    /// From the first lease to the end of all; none is no limit.
    pub time_limit: Option<Duration>,
}

/// What never changes about an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The task it belongs to.
    pub task: String,
    /// Unique inside the task.
    pub name: String,
    /// Where it runs.
    pub machine: HardwareId,
    /// How long one try may take.
    pub timeout: Duration,
    /// Further tries after a failure or a timeout.
    pub retries: u32,
    /// Counts as done as soon as it starts.
    pub background: bool,
    /// Its condition was false when it was rendered.
    pub skipped: bool,
    /// What to do when nobody can say how a try ended.
    pub after_loss: AfterLoss,
}

/// What to do with an action whose end nobody can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Run it again: it overwrites what it did.
    Retry,
    /// Give up: running it twice may do harm, or nobody knows.
    Fail,
    /// It was to end the boot: if a new one is seen it did, else give up.
    ExpectBoot,
}

impl AfterLoss {
    /// For an image, by the last part of its name: Tinkerbell's actions are known, everything else is not.
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

/// A worker address no machine answers to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task:?} names worker {worker:?}, which is no known machine")]
pub struct UnknownWorker {
    /// Whose.
    pub task: String,
    /// As rendered.
    pub worker: String,
}

/// The steps of a rendered template, with each task's worker looked up by `machine`.
pub fn steps(
    rendered: &Rendered,
    machine: impl Fn(&str) -> Option<HardwareId>,
) -> Result<Vec<Step>, UnknownWorker> {
    let mut steps = Vec::new();
    for task in &rendered.tasks {
        let unknown = || UnknownWorker { task: task.name.clone(), worker: task.worker.clone() };
        let machine = machine(&task.worker).ok_or_else(unknown)?;
        steps.extend(task.actions.iter().map(|action| step(&task.name, action, &machine)));
    }
    Ok(steps)
}

fn step(task: &str, action: &template::Action, machine: &HardwareId) -> Step {
    Step {
        task: task.to_owned(),
        name: action.name.clone(),
        machine: machine.clone(),
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
    fn what_a_loss_means_is_known_by_image_unless_the_template_says() {
        let rendered = Template::parse("t", TEXT).unwrap().render(Values::default()).unwrap();
        let steps = steps(&rendered, |worker| Some(worker.into())).unwrap();
        let after: Vec<_> = steps.iter().map(|step| step.after_loss).collect();
        use AfterLoss::{ExpectBoot, Fail, Retry};
        assert_eq!(after, [Retry, Fail, Retry, ExpectBoot, Fail]);
    }

    #[test]
    fn a_worker_that_is_no_machine_is_named() {
        let rendered = Template::parse("t", TEXT).unwrap().render(Values::default()).unwrap();
        let unknown = steps(&rendered, |_| None).unwrap_err();
        assert_eq!(unknown.to_string(), r#"task "a" names worker "w", which is no known machine"#);
    }
}
