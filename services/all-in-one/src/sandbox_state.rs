//! The sandbox of the builder in readiness: how it is limited, or that this host has none.
//!
//! Without a sandbox the process stays ready, and serves everything else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;

use crate::until_stopped;

/// The interval of checks: an operator may change the host's settings.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Starts to check the sandbox.
pub(crate) fn start(vitals: &Diagnostics, tier: &mut Tier) {
    let line = Arc::new(Mutex::new(None));
    let shown = line.clone();
    vitals.add_details(move || {
        shown.lock().unwrap_or_else(PoisonError::into_inner).clone().into_iter().collect()
    });
    tier.spawn(until_stopped(tier.stop.clone(), check(line)));
}

/// Checks the sandbox again and again, and sets the `line` of readiness.
async fn check(line: Arc<Mutex<Option<String>>>) {
    loop {
        let state = text(builder::readiness().await);
        *line.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the line of readiness for the state of the sandbox.
fn text(state: Result<String, String>) -> String {
    match state {
        Ok(confinement) => format!("sandbox of the builder: {confinement}"),
        Err(reason) => format!("no image is built: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_limits_or_the_reason() {
        let limits = "memory and processes: cgroup".to_owned();
        assert_eq!(text(Ok(limits)), "sandbox of the builder: memory and processes: cgroup");
        let reason = "sandbox: not available: /proc/sys/user/max_user_namespaces is 0".to_owned();
        assert_eq!(text(Err(reason.clone())), format!("no image is built: {reason}"));
    }
}
