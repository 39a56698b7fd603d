//! What a BMC does after answering 202: its task is followed until it ends (DSP0266 §9.6).

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::answer::{Answer, id};
use super::{Error, Redfish};

/// Between two looks at a task, where the BMC does not say.
const POLL: Duration = Duration::from_secs(1);
/// The longest pause between two looks.
const LONGEST: Duration = Duration::from_secs(10);
/// How often a task is looked at. One that takes longer is left alone: what it does is read back in any case.
const LOOKS: usize = 30;

/// Resolves once what `answer` began has ended.
pub(super) async fn finish(bmc: &mut Redfish, mut answer: Answer) -> Result<(), Error> {
    if answer.status != StatusCode::ACCEPTED {
        return Ok(());
    }
    let place = answer.location.clone().or_else(|| id(&answer.body));
    let Some(place) = place else { return Ok(()) };
    let place = bmc.at(&place)?;
    for _ in 0..LOOKS {
        tokio::time::sleep(answer.after.unwrap_or(POLL).min(LONGEST)).await;
        answer = match bmc.send(Method::GET, &place, None, None).await {
            // A monitor is gone once its task has ended, and has been looked at.
            Err(error) if error.is_not_there() => return Ok(()),
            answer => answer?,
        };
        match state(&answer.body) {
            Some("Exception" | "Killed" | "Cancelled" | "Interrupted") => {
                return Err(Error::Task(told(&answer.body)));
            }
            Some("Completed") => return Ok(()),
            None if answer.status != StatusCode::ACCEPTED => return Ok(()),
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn state(task: &Value) -> Option<&str> {
    task.get("TaskState")?.as_str()
}

/// How a task ended, with its messages.
fn told(task: &Value) -> String {
    let messages = task.get("Messages").and_then(Value::as_array);
    let texts = messages.into_iter().flatten().filter_map(|entry| entry.get("Message")?.as_str());
    let texts: Vec<_> = texts.take(4).collect();
    format!("{} {}", state(task).unwrap_or_default(), texts.join(" ")).trim().to_owned()
}
