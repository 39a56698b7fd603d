//! Lifecycle states: their names, and those that an object never leaves.

use crate::instance::v1 as instance;
use crate::workflow::v1::{ActionState, WorkflowState};

impl instance::State {
    /// Returns the state's name as documents and logs spell it, such as `deprovision_failed`.
    pub fn word(self) -> String {
        self.as_str_name().trim_start_matches("STATE_").to_ascii_lowercase()
    }
}

impl WorkflowState {
    /// True if a workflow in this state has ended.
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
    /// True if an action in this state has ended.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Success | Self::Failed | Self::Timeout | Self::Skipped => true,
            Self::Unspecified | Self::Pending | Self::Leased | Self::Running => false,
        }
    }
}
