//! Commands that outlived the worker which ran them: killed, before anybody else may be at the same disk.
//!
//! A worker that is killed takes its threads along but not the commands of the installed system. Each of those, and all
//! that they started, has the lease in its environment.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that tells an action its lease.
pub(crate) const LEASE: &str = "TINK_LEASE_ID";

/// How often to look whether all have gone, and how long to wait in between.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// How often in a row nobody has to be found. A program has no environment while it takes another's place, so one look
/// may miss it.
const ENOUGH: u32 = 2;

/// Kills what runs under `lease_id`, and returns once nothing does; gives up on what will not die.
pub(crate) async fn end(lease_id: &str) {
    let variable = format!("{LEASE}={lease_id}");
    let mut clear = 0;
    for _ in 0..LOOKS {
        let orphans = found(&variable);
        clear = if orphans.is_empty() { clear + 1 } else { 0 };
        if clear == ENOUGH {
            return;
        }
        for orphan in orphans {
            tracing::warn!(
                pid = orphan.as_raw_pid(),
                "killing what a worker before us left running"
            );
            let _gone_by_itself = kill_process(orphan, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::error!(lease.id = lease_id, "commands of a worker before us will not die");
}

/// The processes with `variable` in their environment. One that is dead has none.
fn found(variable: &str) -> Vec<Pid> {
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

    /// Many are started, so that some are just being it when they are looked for.
    #[tokio::test]
    async fn only_what_runs_under_the_lease_is_killed() {
        let (ours, others) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let start = |lease: &str| {
            let mut command = tokio::process::Command::new("sleep");
            command.arg("3600").env(LEASE, lease).kill_on_drop(true).spawn().unwrap()
        };
        let mut other = start(&others);
        for _ in 0..20 {
            let mut orphan = start(&ours);
            end(&ours).await;
            let ended = tokio::time::timeout(Duration::from_secs(10), orphan.wait()).await;
            assert_eq!(ended.expect("it was found").unwrap().signal(), Some(9));
        }
        assert!(other.try_wait().unwrap().is_none());
    }
}
