//! The end of this boot: what is to be on the disks is there, then the kernel is told.

use std::io;

use rustix::system::{RebootCommand, reboot};
use worker::Terminal;

/// Whether the machine is really made to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// It is.
    Real,
    /// It is only said, for trials on a machine that does other things as well.
    Pretended,
}

impl Power {
    /// Flushes the disks and leaves this boot. Returns only if that failed or was pretended.
    pub(crate) fn leave(self, terminal: Terminal) -> io::Result<()> {
        let (name, command) = match terminal {
            Terminal::Reboot => ("reboot", RebootCommand::Restart),
            Terminal::PowerOff => ("power off", RebootCommand::PowerOff),
            Terminal::Kexec => ("go on with another kernel", RebootCommand::Kexec),
        };
        if self == Self::Pretended {
            println!("would {name}");
            return Ok(());
        }
        tracing::info!("the machine will {name}");
        rustix::fs::sync();
        Ok(reboot(command)?)
    }
}
