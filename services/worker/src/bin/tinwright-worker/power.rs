//! Ends this boot: flushes the disks, then reboots, powers off, or jumps to another kernel.

use std::io;

use rustix::system::{RebootCommand, reboot};
use worker::Terminal;

/// The effect of [`Power::end_boot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// The machine reboots or powers off.
    Real,
    /// The operation is only printed, for tests on a developer's machine.
    DryRun,
}

impl Power {
    /// Flushes the disks and ends this boot. Returns only after a failure or a dry run.
    pub(crate) fn end_boot(self, terminal: Terminal) -> io::Result<()> {
        let (name, command) = match terminal {
            Terminal::Reboot => ("reboot", RebootCommand::Restart),
            Terminal::PowerOff => ("power off", RebootCommand::PowerOff),
            Terminal::Kexec => ("jump to another kernel", RebootCommand::Kexec),
        };
        if self == Self::DryRun {
            println!("would {name}");
            return Ok(());
        }
        tracing::info!("the machine will {name}");
        rustix::fs::sync();
        Ok(reboot(command)?)
    }
}
