//! The next step of a rollout. No I/O: nodes and time are arguments.
//!
//! ```text
//!            ┌── a node reports, or is late: the nodes are counted again ──┐
//!            ▼                                                             │
//! begin ─▶ RUNNING ─── fewer apply the version than may: the next nodes ───┘
//!            ├── more failed than may ──────────▶ STOPPED   no further node gets the version
//!            └── each has it, and runs or failed ▶ DONE
//! ```
//!
//! A step is computed from the nodes as they are, and not from what happened: a process that begins in the middle goes on.

use std::time::{Duration, SystemTime};

use tinwright::node::v1::{Node, NodeState, Rollout, RolloutCounts, RolloutState};

/// The time without a new observation after which a node that applies a version counts as failed.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(600);
/// The share of the nodes that apply a version at a time if the settings do not say how many: one of so many.
const DEFAULT_SHARE: usize = 10;
/// The failed nodes that a reason names.
const MAX_NAMED: usize = 5;
/// The longest cause in a reason.
const MAX_CAUSE_BYTES: usize = 160;

/// A node that a rollout is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub id: String,
    /// Its name, or its id if it has none.
    pub name: String,
    /// True if its agent has a stream.
    pub is_connected: bool,
    /// The version on this node.
    pub progress: MemberProgress,
}

/// A version on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProgress {
    /// The node does not have the version, or failed with it in an earlier rollout.
    Pending,
    /// The node has the version, and reported nothing new since then.
    Applying(SystemTime),
    /// The version runs.
    Running,
    /// The node failed, with this cause.
    Failed(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// The state of the rollout.
    pub state: RolloutState,
    /// The reason of the state: the nodes that failed.
    pub reason: String,
    /// The nodes, before `assign`.
    pub counts: RolloutCounts,
    /// The nodes that get the version now.
    pub assign: Vec<String>,
    /// The time at which a node counts as failed, if it reports nothing new until then.
    pub due: Option<SystemTime>,
}

impl Member {
    /// Returns `node`, which has the stack, as a member of `rollout`; none if the rollout is not for it.
    pub fn new(rollout: &Rollout, node: &Node) -> Option<Self> {
        let has_version = node.stack_version == rollout.version;
        let is_reached = has_version && node.rollout_number == rollout.number;
        let is_wanted = match rollout.roll_back {
            true => node.stack_version > rollout.version,
            false => selects(rollout, node),
        };
        if !is_reached && !is_wanted {
            return None;
        }
        let progress = match node.state() {
            _ if !has_version => MemberProgress::Pending,
            NodeState::Failed if !is_reached => MemberProgress::Pending,
            NodeState::Failed => MemberProgress::Failed(node.state_reason.clone()),
            NodeState::Running => MemberProgress::Running,
            NodeState::Unspecified | NodeState::Unassigned | NodeState::Applying => {
                let since = node.progress_time.and_then(|time| SystemTime::try_from(time).ok());
                MemberProgress::Applying(since.unwrap_or(SystemTime::UNIX_EPOCH))
            }
        };
        let name = if node.name.is_empty() { &node.id } else { &node.name };
        let (id, name) = (node.id.clone(), name.clone());
        Some(Self { id, name, is_connected: node.connected, progress })
    }

    /// Returns the cause for which the node counts as failed at `now`.
    fn failure(&self, now: SystemTime) -> Option<String> {
        match &self.progress {
            MemberProgress::Failed(cause) => Some(cause.clone()),
            MemberProgress::Applying(since) if now >= *since + PROGRESS_TIMEOUT => {
                let minutes = PROGRESS_TIMEOUT.as_secs() / 60;
                let connected = if self.is_connected { "" } else { ", and is not connected" };
                Some(format!("reported nothing new for {minutes} minutes{connected}"))
            }
            MemberProgress::Pending | MemberProgress::Applying(_) | MemberProgress::Running => None,
        }
    }
}

/// True if the settings of `rollout` select `node`.
pub fn selects(rollout: &Rollout, node: &Node) -> bool {
    let labels = rollout.settings.iter().flat_map(|settings| &settings.node_labels);
    labels.into_iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

/// Returns the next step of the running `rollout` for its `members` at `now`.
pub fn step(rollout: &Rollout, members: &[Member], now: SystemTime) -> RolloutStep {
    let settings = rollout.settings.clone().unwrap_or_default();
    let failed: Vec<_> = members.iter().filter_map(|it| Some((it, it.failure(now)?))).collect();
    let is_late = |member: &Member| failed.iter().any(|(it, _)| it.id == member.id);
    let applying: Vec<_> =
        members.iter().filter_map(|it| applying_since(it, !is_late(it))).collect();
    let mut pending: Vec<_> =
        members.iter().filter(|it| it.progress == MemberProgress::Pending).collect();
    // A node that is away would hold up the others.
    pending.sort_by_key(|it| (!it.is_connected, it.id.clone()));
    let counts = RolloutCounts {
        nodes: count(members.len()),
        pending: count(pending.len()),
        applying: count(applying.len()),
        running: count(members.len() - pending.len() - applying.len() - failed.len()),
        failed: count(failed.len()),
    };
    let state = if counts.failed > settings.max_failures {
        RolloutState::Stopped
    } else if pending.is_empty() && applying.is_empty() {
        RolloutState::Done
    } else {
        RolloutState::Running
    };
    let free = match state {
        RolloutState::Running => {
            max_concurrent(settings.max_concurrent, members.len()).saturating_sub(applying.len())
        }
        RolloutState::Unspecified | RolloutState::Stopped | RolloutState::Done => 0,
    };
    let assign = pending.into_iter().take(free).map(|it| it.id.clone()).collect();
    let due = applying.into_iter().min().map(|since| since + PROGRESS_TIMEOUT);
    RolloutStep { state, reason: reason(&failed, settings.max_failures), counts, assign, due }
}

/// Returns the time since which `member` applies the version, if it does, and is not late.
fn applying_since(member: &Member, is_in_time: bool) -> Option<SystemTime> {
    match member.progress {
        MemberProgress::Applying(since) => Some(since).filter(|_| is_in_time),
        MemberProgress::Pending | MemberProgress::Running | MemberProgress::Failed(_) => None,
    }
}

fn count(members: usize) -> i32 {
    i32::try_from(members).unwrap_or(i32::MAX)
}

fn max_concurrent(setting: i32, members: usize) -> usize {
    match usize::try_from(setting) {
        Ok(0) | Err(_) => members.div_ceil(DEFAULT_SHARE).max(1),
        Ok(most) => most,
    }
}

/// Returns the nodes that failed, with the causes; empty if none did.
fn reason(failed: &[(&Member, String)], max_failures: i32) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let named = failed.iter().take(MAX_NAMED).map(|(member, cause)| {
        let end = cause.floor_char_boundary(MAX_CAUSE_BYTES);
        let cause = if cause.is_empty() { "no cause given" } else { &cause[..end] };
        format!("{}: {cause}", member.name)
    });
    let mut text = format!("{} failed, {max_failures} may: ", failed.len());
    text += &named.collect::<Vec<_>>().join("; ");
    if failed.len() > MAX_NAMED {
        text += &format!("; and {} more", failed.len() - MAX_NAMED);
    }
    text
}

#[cfg(test)]
mod tests;
