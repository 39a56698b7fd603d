//! `instance wait`, and the option `--wait` of other commands.

use std::time::Duration;

use clap::ValueEnum as _;
use runtime::Channel;
use tinwright::InstanceId;
use tinwright::instance::v1 as pb;

use crate::connect::{Io, View};
use crate::resource::Resource as _;
use crate::{failure, follow, hardware, output};

/// States to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// Installed
    Active,
    /// Provisioning or deprovisioning failed
    Failed,
    /// Deleted, and the machine is free
    Gone,
}

/// Waits until the instance `name` has reached `goal`, and says so. Fails after the `limit`.
pub(super) async fn run(
    name: &str,
    goal: Goal,
    limit: Option<Duration>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let name = output::referenced::<pb::Instance>(name);
    match pb::Instance::find(io.channel, name, View::Basic).await {
        Ok(instance) => {
            let waiting = until(io.channel, &instance.id, name, goal);
            match limit {
                None => waiting.await?,
                Some(limit) => match tokio::time::timeout(limit, waiting).await {
                    Ok(done) => done?,
                    Err(_) => return Err(too_late(&instance.id, name, limit, io.channel).await?),
                },
            }
        }
        Err(error) if goal == Goal::Gone && failure::is_not_found(&error) => {
            // An id, or a machine: it had an instance, or never had one. A misspelt name is an error.
            let is_id = name.parse::<InstanceId>().is_ok();
            if !is_id && hardware::known_id(io.channel, name).await.is_none() {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    }
    let word = goal.to_possible_value();
    let word = word.as_ref().map_or("", |word| word.get_name());
    io.print(&format!("instance {name} is {word}"))
}

/// Returns the error of an instance that has not reached its goal after `limit`.
async fn too_late(
    id: &str,
    name: &str,
    limit: Duration,
    channel: &Channel,
) -> anyhow::Result<anyhow::Error> {
    let instance = pb::Instance::get(channel, id, View::Basic).await?;
    let (state, seconds) = (output::state(&instance), limit.as_secs());
    let reason = match instance.state_reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    Ok(anyhow::anyhow!("instance {name} is {state} after {seconds} s{reason}"))
}

/// Waits until the instance with `id` has reached `goal`. Errors call it `name`.
pub(super) async fn until(
    channel: &Channel,
    id: &str,
    name: &str,
    goal: Goal,
) -> anyhow::Result<()> {
    follow::until(channel, id, |instance| goal.reached(name, instance.as_ref())).await
}

impl Goal {
    /// Returns success if the goal is reached, an error if it can no longer be, and nothing while it still can.
    fn reached(self, name: &str, instance: Option<&pb::Instance>) -> Option<Result<(), String>> {
        let Some(instance) = instance else {
            let gone = || format!("instance {name} is gone");
            return Some(if self == Self::Gone { Ok(()) } else { Err(gone()) });
        };
        let stuck = || {
            let reason = &instance.state_reason;
            format!("instance {name} failed: {reason} (then: tinwright instance retry {name})")
        };
        use pb::State::{Active, DeprovisionFailed, Deprovisioning, Failed};
        match (self, instance.state()) {
            (Self::Active, Active) | (Self::Failed, Failed | DeprovisionFailed) => Some(Ok(())),
            (Self::Active, Failed | DeprovisionFailed) | (Self::Gone, DeprovisionFailed) => {
                Some(Err(stuck()))
            }
            (Self::Active, Deprovisioning) => {
                Some(Err(format!("instance {name} is being deprovisioned")))
            }
            (Self::Active | Self::Failed | Self::Gone, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(state: pb::State) -> pb::Instance {
        pb::Instance {
            state: state.into(),
            state_reason: "no disk".into(),
            ..pb::Instance::default()
        }
    }

    #[test]
    fn waiting_continues_while_the_goal_is_reachable() {
        for state in [pb::State::Queued, pb::State::Provisioning, pb::State::Reinstalling] {
            assert_eq!(Goal::Active.reached("a", Some(&instance(state))), None, "{state:?}");
        }
        assert_eq!(Goal::Active.reached("a", Some(&instance(pb::State::Active))), Some(Ok(())));
        assert_eq!(Goal::Gone.reached("a", Some(&instance(pb::State::Deprovisioning))), None);
        assert_eq!(Goal::Gone.reached("a", None), Some(Ok(())));
    }

    #[test]
    fn waiting_ends_with_the_reason_once_the_goal_is_unreachable() {
        let result = Goal::Active.reached("a", Some(&instance(pb::State::Failed)));
        let error = "instance a failed: no disk (then: tinwright instance retry a)";
        assert_eq!(result, Some(Err(error.into())));
        assert_eq!(
            Goal::Gone.reached("a", Some(&instance(pb::State::DeprovisionFailed))),
            Some(Err(error.into()))
        );
        assert_eq!(Goal::Active.reached("a", None), Some(Err("instance a is gone".into())));
    }
}
