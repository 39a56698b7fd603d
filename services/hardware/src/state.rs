//! The lifecycle of a machine; `docs/reference/hardware-states.md` describes it for users.
//!
//! ```text
//! enrolled ◀──▶ provisionable               verified, or set by an operator
//! enrolled, provisionable ──▶ failed        an automatic step failed
//! failed ──▶ enrolled                       an operator has looked at it
//! enrolled, provisionable, failed ──▶ maintenance ──▶ enrolled, provisionable
//! any of these ──▶ deleting ──▶ (gone)      or back, if deleting was refused
//! ```
//!
//! Provisioning, in use and deprovisioning are states of the instance that occupies the machine.

use std::fmt;

use tinwright::hardware::v1 as pb;

/// The position of a machine in its lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Recorded, but not verified.
    Enrolled,
    /// May be given to an instance.
    Provisionable,
    /// An automatic step failed; an operator has to look at it.
    Failed,
    /// Reserved for an operator; nothing automatic happens to it.
    Maintenance,
    /// Being removed.
    Deleting,
}

/// Returned for a change of state that is not allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a machine that is {from} cannot become {to}")]
pub struct IllegalStateChange {
    from: State,
    to: State,
}

/// Returned for a number that is no state of a machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("is none of enrolled, provisionable, failed, maintenance")]
pub struct UnspecifiedState;

impl State {
    /// Returns the state after a refused delete of a machine that was in `before`. If it was being deleted already, its
    /// earlier state is unknown, and an operator has to look at it.
    pub fn after_refused_delete(before: Self) -> Self {
        if before == Self::Deleting { Self::Maintenance } else { before }
    }

    /// Returns the state after a request for `to`. A request for the present state changes nothing.
    pub fn after(self, to: Self) -> Result<Self, IllegalStateChange> {
        match (self, to) {
            (from, to) if from == to => Ok(to),
            (Self::Enrolled, Self::Provisionable | Self::Failed)
            | (Self::Provisionable, Self::Enrolled | Self::Failed)
            | (Self::Failed, Self::Enrolled)
            | (Self::Enrolled | Self::Provisionable | Self::Failed, Self::Maintenance)
            | (Self::Maintenance, Self::Enrolled | Self::Provisionable) => Ok(to),
            (from, to) => Err(IllegalStateChange { from, to }),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enrolled => "enrolled",
            Self::Provisionable => "provisionable",
            Self::Failed => "failed",
            Self::Maintenance => "in maintenance",
            Self::Deleting => "being deleted",
        })
    }
}

impl From<State> for pb::State {
    fn from(state: State) -> Self {
        match state {
            State::Enrolled => Self::Enrolled,
            State::Provisionable => Self::Provisionable,
            State::Failed => Self::Failed,
            State::Maintenance => Self::Maintenance,
            State::Deleting => Self::Deleting,
        }
    }
}

impl TryFrom<pb::State> for State {
    type Error = UnspecifiedState;

    fn try_from(state: pb::State) -> Result<Self, UnspecifiedState> {
        match state {
            pb::State::Unspecified => Err(UnspecifiedState),
            pb::State::Enrolled => Ok(Self::Enrolled),
            pb::State::Provisionable => Ok(Self::Provisionable),
            pb::State::Failed => Ok(Self::Failed),
            pb::State::Maintenance => Ok(Self::Maintenance),
            pb::State::Deleting => Ok(Self::Deleting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 5] =
        [State::Enrolled, State::Provisionable, State::Failed, State::Maintenance, State::Deleting];

    #[test]
    fn a_failed_machine_becomes_provisionable_only_by_way_of_enrolled() {
        assert!(State::Failed.after(State::Provisionable).is_err());
        let looked = State::Failed.after(State::Enrolled).unwrap();
        assert_eq!(looked.after(State::Provisionable), Ok(State::Provisionable));
    }

    #[test]
    fn repeating_a_request_changes_nothing_and_deleting_cannot_be_requested() {
        for state in ALL {
            assert_eq!(state.after(state), Ok(state));
            assert_eq!(state.after(State::Deleting).is_ok(), state == State::Deleting);
            assert_eq!(State::Deleting.after(state).is_ok(), state == State::Deleting);
        }
    }

    #[test]
    fn a_refused_delete_restores_the_state_or_leads_to_maintenance() {
        for state in ALL {
            let after = State::after_refused_delete(state);
            let expected = if state == State::Deleting { State::Maintenance } else { state };
            assert_eq!(after, expected);
        }
    }

    #[test]
    fn the_reference_page_has_every_change() {
        let mut table = String::from("| from | to |\n|---|---|\n");
        for from in ALL {
            for to in ALL.into_iter().filter(|to| *to != from && from.after(*to).is_ok()) {
                table += &format!("| {from:?} | {to:?} |\n");
            }
        }
        let page = include_str!("../../../docs/reference/hardware-states.md");
        assert!(page.contains(&format!("\n{table}\n")), "the page needs:\n{table}");
    }

    #[test]
    fn an_illegal_change_names_both_states() {
        let illegal = State::Maintenance.after(State::Failed).unwrap_err().to_string();
        assert_eq!(illegal, "a machine that is in maintenance cannot become failed");
    }

    #[test]
    fn every_state_is_read_back_from_its_number() {
        for state in ALL {
            assert_eq!(State::try_from(pb::State::from(state)), Ok(state));
        }
    }
}
