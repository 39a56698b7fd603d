//! The versions of a stack and its rollout, as values; no I/O.

use std::time::SystemTime;

use prost_types::Timestamp;
use tinwright::check;
use tinwright::node::v1::{
    Container, Node, Rollout, RolloutCounts, RolloutSettings, RolloutState, Stack, StackVersion,
};
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;

use crate::Error;
use crate::rollout::{RolloutStep, selects};

/// The versions that a stack keeps.
pub const MAX_VERSIONS: usize = 10;

/// Returns `stack`, which is to be created at `now`, with its first version. No node has it yet, so there is nothing to roll out.
pub fn with_first_version(mut stack: Stack, now: SystemTime) -> Stack {
    let create_time = Some(Timestamp::from(now));
    let containers = stack.containers.clone();
    stack.versions = vec![StackVersion { number: 1, create_time, containers }];
    stack.base_version = 1;
    stack.rollout = Some(Rollout {
        number: 1,
        version: 1,
        state: RolloutState::Done.into(),
        begin_time: create_time,
        state_time: create_time,
        ..Rollout::default()
    });
    stack
}

/// Returns `new`, which replaces `old` at `now`: with a new version if its containers are others, and with a rollout of the newest version if
/// they are, or `settings` are given.
pub fn updated(
    old: &Stack,
    mut new: Stack,
    settings: Option<RolloutSettings>,
    now: SystemTime,
) -> Stack {
    let newest = old.versions.last().map_or(0, |version| version.number);
    let is_changed = new.containers != old.containers;
    if is_changed {
        let (number, containers) = (newest + 1, new.containers.clone());
        let create_time = Some(Timestamp::from(now));
        new.versions.push(StackVersion { number, create_time, containers });
        drop_oldest(&mut new);
    }
    match (is_changed, settings) {
        (false, None) => new,
        (true, settings) => begin(new, newest + 1, settings.unwrap_or_default(), false, now),
        (false, Some(settings)) => begin(new, newest, settings, false, now),
    }
}

/// Drops versions above [`MAX_VERSIONS`], the oldest first, but not that of nodes that no rollout reached.
fn drop_oldest(stack: &mut Stack) {
    while stack.versions.len() > MAX_VERSIONS {
        let base = stack.base_version;
        let oldest = stack.versions.iter().position(|version| version.number != base);
        stack.versions.remove(oldest.unwrap_or_default());
    }
}

/// Returns `stack` with the rollout of an earlier version, begun at `now`; of that before the latest rollout's, if `version` is 0.
pub fn rolled_back(
    stack: &Stack,
    version: i64,
    settings: RolloutSettings,
    now: SystemTime,
) -> Result<Stack, Error> {
    let present = stack.rollout.as_ref().map_or(0, |rollout| rollout.version);
    let mut numbers = stack.versions.iter().map(|version| version.number);
    let target = match version {
        0 => numbers.rfind(|number| *number < present).ok_or_else(|| {
            let text = format!("stack {} has no version before {present}", stack.name);
            Error::precondition("NO_EARLIER_VERSION", "stack", &stack.id, text)
        })?,
        wanted => numbers
            .find(|number| *number == wanted)
            .ok_or_else(|| Error::NoVersion { stack: stack.name.clone(), number: wanted })?,
    };
    Ok(begin(stack.clone(), target, settings, true, now))
}

fn begin(
    mut stack: Stack,
    version: i64,
    settings: RolloutSettings,
    roll_back: bool,
    now: SystemTime,
) -> Stack {
    let number = stack.rollout.as_ref().map_or(0, |rollout| rollout.number) + 1;
    stack.rollout = Some(Rollout {
        number,
        version,
        settings: Some(settings),
        roll_back,
        state: RolloutState::Running.into(),
        state_reason: String::new(),
        begin_time: Some(now.into()),
        state_time: Some(now.into()),
        counts: None,
    });
    stack
}

/// Returns `stack` after `step` of its rollout at `now`, which gave the version to `assigned` nodes.
pub fn after_step(stack: &Stack, step: &RolloutStep, assigned: usize, now: SystemTime) -> Stack {
    let mut stack = stack.clone();
    let Some(rollout) = &mut stack.rollout else { return stack };
    let assigned = i32::try_from(assigned).unwrap_or(i32::MAX);
    rollout.counts = Some(RolloutCounts {
        pending: step.counts.pending - assigned,
        applying: step.counts.applying + assigned,
        ..step.counts
    });
    rollout.state_reason.clone_from(&step.reason);
    if rollout.state() != step.state {
        rollout.set_state(step.state);
        rollout.state_time = Some(now.into());
    }
    let is_for_all = rollout.settings.as_ref().is_none_or(|it| it.node_labels.is_empty());
    if step.state == RolloutState::Done && is_for_all {
        stack.base_version = rollout.version;
    }
    stack
}

/// Returns the version for `node`, which gets the stack now, outside of a rollout.
pub fn version_for(stack: &Stack, node: &Node) -> i64 {
    match &stack.rollout {
        Some(rollout)
            if rollout.state() == RolloutState::Done
                && !rollout.roll_back
                && selects(rollout, node) =>
        {
            rollout.version
        }
        Some(_) | None => stack.base_version,
    }
}

/// Returns the containers of a version, if the stack has it.
pub fn containers(stack: &Stack, number: i64) -> Option<&[Container]> {
    let found = stack.versions.iter().find(|version| version.number == number);
    found.map(|version| version.containers.as_slice())
}

/// Replaces the containers of `update` by those of `old` if they are the same but for the secrets, which a basic view does not have.
pub fn keep_secrets(old: &Stack, update: &mut Stack) {
    let shown = old.clone().without_secrets();
    if update.containers == shown.containers {
        update.containers.clone_from(&old.containers);
    }
}

/// Adds the violations of `settings`, which are for a roll back if `roll_back`.
pub fn check_settings(settings: &RolloutSettings, roll_back: bool, wrong: &mut Violations) {
    let RolloutSettings { node_labels, max_concurrent, max_failures } = settings;
    wrong.take("node_labels", check::labels(node_labels));
    if roll_back && !node_labels.is_empty() {
        wrong.add("node_labels", "are set: a roll back is for all nodes that have a newer version");
    }
    for (field, value) in [("max_concurrent", max_concurrent), ("max_failures", max_failures)] {
        if *value < 0 {
            wrong.add(field, "is negative");
        }
    }
}

#[cfg(test)]
mod tests;
