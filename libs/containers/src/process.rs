//! Process identities that outlive the reuse of process ids.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process of this boot: an id is reused, an id with a start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The process id in the supervisor's PID namespace.
    pub pid: i32,
    /// The start time since boot, in clock ticks (proc(5), field 22 of `/proc/[pid]/stat`).
    pub start_time: u64,
}

impl ProcessIdentity {
    /// The identity of the process that has the id `pid` now.
    ///
    /// # Errors
    /// There is none, or `/proc` cannot be read.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_time =
            start_time(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { pid, start_time })
    }

    /// A descriptor of the process, if it still exists. The identity is compared after the descriptor was opened, so the
    /// descriptor is of this process and no other.
    fn open(self) -> Option<OwnedFd> {
        let descriptor = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        (Self::of(self.pid).ok()? == self).then_some(descriptor)
    }

    /// Sends SIGKILL to the process if it still exists.
    pub(crate) fn kill(self) {
        if let Some(process) = self.open() {
            // ESRCH: it ended by itself.
            let _sent = pidfd_send_signal(process, Signal::KILL);
        }
    }

    /// True if the process exists and is no zombie: of a PID namespace whose PID 1 is a zombie, nothing else is left.
    pub(crate) fn is_running(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        start_time(&stat) == Some(self.start_time) && !matches!(state(&stat), Some("Z" | "X"))
    }
}

/// Field 22 of `/proc/[pid]/stat`. The command in field 2 may contain blanks and brackets.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Field 3 of `/proc/[pid]/stat`.
fn state(stat: &str) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().next()
}

/// The id of this boot; process identities of another boot mean nothing.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_command() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 2 3";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!(state(stat), Some("S"));
        assert_eq!(start_time("7 (a"), None);
    }

    #[test]
    fn a_process_with_another_start_time_is_not_killed() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id().try_into().unwrap()).unwrap();
        let earlier = ProcessIdentity { start_time: identity.start_time - 1, ..identity };
        assert!(identity.is_running() && !earlier.is_running() && earlier.open().is_none());
        earlier.kill();
        assert!(child.try_wait().unwrap().is_none());
        identity.kill();
        while identity.is_running() {
            std::thread::yield_now();
        }
        assert!(identity.open().is_some());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
