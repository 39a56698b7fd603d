//! The time for which the worker of a machine is awaited, by the machine's models.

use tinwright::hardware::v1 as hw;
use tinwright::workflow::v1 as pb;

/// The longest times of a machine's models, in minutes; 0 if none has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BootTimes {
    silent: u32,
    step: u32,
}

impl BootTimes {
    /// Adds a model of the machine.
    pub(crate) fn add(&mut self, model: &hw::Model) {
        self.silent = self.silent.max(model.boot_silent_minutes);
        self.step = self.step.max(model.boot_step_minutes);
    }

    /// Returns `workflow` with these times.
    pub(crate) fn write(self, workflow: pb::Workflow) -> pb::Workflow {
        let Self { silent: boot_silent_minutes, step: boot_step_minutes } = self;
        pb::Workflow { boot_silent_minutes, boot_step_minutes, ..workflow }
    }
}
