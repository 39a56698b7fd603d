//! Kills processes left behind by a crashed worker, before another action may use the same disk.
//!
//! The threads of a worker end with it, but the commands that it started do not. Each command, and each process that a
//! command started, has the lease in its environment.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable with the lease of an action.
pub(crate) const LEASE_VARIABLE: &str = "TINK_LEASE_ID";

/// Maximum number of scans.
const MAX_SCANS: u32 = 100;

/// Time between two scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// Consecutive scans that must find no process. During execve(2) a process has no environment, so that one scan may miss it.
const CLEAR_SCANS: u32 = 2;

/// Kills all processes with `lease_id`, and waits for their end. Gives up if they do not end.
pub(crate) async fn kill_all(lease_id: &str) {
    let variable = format!("{LEASE_VARIABLE}={lease_id}");
    let mut clear = 0;
    for _ in 0..MAX_SCANS {
        let found = find(&variable);
        clear = if found.is_empty() { clear + 1 } else { 0 };
        if clear == CLEAR_SCANS {
            return;
        }
        for process in found {
            tracing::warn!(
                pid = process.as_raw_pid(),
                "killing a process left behind by a crashed worker"
            );
            let _already_ended = kill_process(process, Signal::KILL);
        }
        tokio::time::sleep(SCAN_INTERVAL).await;
    }
    tracing::error!(lease.id = lease_id, "processes of a crashed worker do not end");
}

/// Returns the processes with `variable` in their environment. A zombie has no environment.
fn find(variable: &str) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let has = |id: &i32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|pair| pair == variable.as_bytes())
    };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(has).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use uuid::Uuid;

    use super::*;

    /// Starts many processes, so that some are in execve(2) during a scan.
    #[tokio::test]
    async fn only_processes_with_the_lease_are_killed() {
        let (ours, others) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let start = |lease: &str| {
            let mut command = tokio::process::Command::new("sleep");
            command.arg("3600").env(LEASE_VARIABLE, lease).kill_on_drop(true).spawn().unwrap()
        };
        let mut other = start(&others);
        for _ in 0..20 {
            let mut orphan = start(&ours);
            kill_all(&ours).await;
            let ended = tokio::time::timeout(Duration::from_secs(10), orphan.wait()).await;
            assert_eq!(ended.expect("it was found").unwrap().signal(), Some(9));
        }
        assert!(other.try_wait().unwrap().is_none());
    }
}
