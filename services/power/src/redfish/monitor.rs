//! Tasks that a BMC starts with status 202, followed until they end (DSP0266 §9.6).

use std::time::Duration;

use reqwest::StatusCode;

use super::messages::Messages;
use super::response::{Response, id};
use super::{Error, Redfish};

/// The interval between two readings of a task, if the BMC requests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between two readings.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// The most readings. The effect of a longer task is still read back from the system.
const MAX_POLLS: usize = 30;

/// Waits for the end of the task that `response` started, if any.
pub(super) async fn wait_for_task(bmc: &mut Redfish, mut response: Response) -> Result<(), Error> {
    if response.status != StatusCode::ACCEPTED {
        return Ok(());
    }
    let monitor = response.location.clone().or_else(|| id(&response.body));
    let Some(monitor) = monitor else { return Ok(()) };
    let monitor = bmc.connection.resolve(&response.url, &monitor)?;
    for _ in 0..MAX_POLLS {
        let interval = response.retry_after.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL_MAX);
        tokio::time::sleep(interval).await;
        response = match bmc.get(&monitor).await {
            // A monitor may be deleted once its task has ended.
            Err(error) if error.is_missing() => return Ok(()),
            response => response?,
        };
        match response.body.get("TaskState").and_then(|state| state.as_str()) {
            Some(state @ ("Exception" | "Killed" | "Cancelled" | "Interrupted")) => {
                let messages = Box::new(Messages::of_list(&response.body, "Messages"));
                let text = format!("{state} {}", messages.text).trim().to_owned();
                return Err(Error::Task { text, messages });
            }
            Some("Completed") => return Ok(()),
            None if response.status != StatusCode::ACCEPTED => return Ok(()),
            Some(_) | None => {}
        }
    }
    Ok(())
}
