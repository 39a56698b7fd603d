//! Lifecycle states: their names, and which of them are final.
//!
//! A state that only a newer server knows is not final.

use crate::address::v1::GrantState;
use crate::hardware::v1 as hardware;
use crate::instance::v1 as instance;
use crate::node::v1::{NodeState, RolloutState};
use crate::power::v1::{PowerJob, power_job};
use crate::workflow::v1::{Action, ActionState, Workflow, WorkflowState};

impl instance::State {
    /// Returns the state's name as documents and logs spell it, such as `deprovision_failed`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("STATE_").to_ascii_lowercase()
    }
}

impl hardware::State {
    /// Returns the state's name as documents and logs spell it, such as `provisionable`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("STATE_").to_ascii_lowercase()
    }
}

impl GrantState {
    /// Returns the state's name as documents and logs spell it, such as `pending`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("GRANT_STATE_").to_ascii_lowercase()
    }
}

impl NodeState {
    /// Returns the state's name as documents and logs spell it, such as `applying`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("NODE_STATE_").to_ascii_lowercase()
    }
}

impl RolloutState {
    /// Returns the state's name as documents and logs spell it, such as `stopped`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("ROLLOUT_STATE_").to_ascii_lowercase()
    }
}

impl WorkflowState {
    /// Returns the state's name as logs and errors spell it, such as `pending`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("WORKFLOW_STATE_").to_ascii_lowercase()
    }

    /// True if a workflow in this state changes no more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Success | Self::Failed | Self::Timeout | Self::Cancelled => true,
            Self::Unspecified | Self::Pending | Self::Preparing | Self::Running | Self::Post => {
                false
            }
        }
    }
}

impl ActionState {
    /// True if an action in this state is not run any more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Success | Self::Failed | Self::Timeout | Self::Skipped | Self::NotRun => true,
            Self::Unspecified | Self::Pending | Self::Leased | Self::Running => false,
        }
    }
}

impl power_job::State {
    /// Returns the state's name as documents and logs spell it, such as `running`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("STATE_").to_ascii_lowercase()
    }

    /// True if a power job in this state changes no more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Success | Self::Failed | Self::Cancelled => true,
            Self::Unspecified | Self::Pending | Self::Running => false,
        }
    }
}

impl Workflow {
    /// True if the workflow has ended.
    pub fn is_terminal(&self) -> bool {
        self.state().is_terminal()
    }
}

impl Action {
    /// True if the action has ended.
    pub fn is_terminal(&self) -> bool {
        self.state().is_terminal()
    }
}

impl PowerJob {
    /// True if the job has ended.
    pub fn is_terminal(&self) -> bool {
        self.state().is_terminal()
    }
}
