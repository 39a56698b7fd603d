//! A machine's own life.
//!
//! ```text
//! enrolled ──▶ provisionable        verified, or an operator says so
//! enrolled, provisionable ──▶ failed        an automatic step failed
//! failed ──▶ enrolled                       somebody looked; it starts over
//! any of these ◀──▶ maintenance             an operator holds it, and lets go
//! any of these ──▶ deleting ──▶ (gone)      or back, where deleting was refused
//! ```
//!
//! Provisioning, in use, deprovisioning are not states of the machine but of the instance that occupies it.

use std::fmt;

use tinwright::hardware::v1 as pb;

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Known, but not verified.
    Enrolled,
    /// May be given to an instance.
    Provisionable,
    /// An automatic step failed; somebody has to look.
    Failed,
    /// An operator holds it; nothing automatic happens to it.
    Maintenance,
    /// Being removed.
    Deleting,
}

/// There is no way from one state to the other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a machine that is {from} cannot become {to}")]
pub struct Illegal {
    from: State,
    to: State,
}

/// The number names no state of a machine's own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("is none of enrolled, provisionable, failed, maintenance")]
pub struct NoState;

impl State {
    /// The state after the machine may not go, it having been in `before`. After a restart nobody knows what that was:
    /// then somebody has to look.
    pub fn kept(before: Self) -> Self {
        if before == Self::Deleting { Self::Maintenance } else { before }
    }

    /// The state after somebody asked for `to`. Asking for the present one changes nothing.
    pub fn after(self, to: Self) -> Result<Self, Illegal> {
        match (self, to) {
            (from, to) if from == to => Ok(to),
            (Self::Enrolled, Self::Provisionable | Self::Failed)
            | (Self::Provisionable, Self::Enrolled | Self::Failed)
            | (Self::Failed, Self::Enrolled)
            | (Self::Enrolled | Self::Provisionable | Self::Failed, Self::Maintenance)
            | (Self::Maintenance, Self::Enrolled | Self::Provisionable) => Ok(to),
            (from, to) => Err(Illegal { from, to }),
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
    type Error = NoState;

    fn try_from(state: pb::State) -> Result<Self, NoState> {
        match state {
            pb::State::Unspecified => Err(NoState),
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
    fn a_failed_machine_is_not_given_away_before_somebody_looked() {
        assert!(State::Failed.after(State::Provisionable).is_err());
        let looked = State::Failed.after(State::Enrolled).unwrap();
        assert_eq!(looked.after(State::Provisionable), Ok(State::Provisionable));
    }

    #[test]
    fn asking_twice_is_asking_once_and_nobody_can_ask_for_deletion_this_way() {
        for state in ALL {
            assert_eq!(state.after(state), Ok(state));
            assert_eq!(state.after(State::Deleting).is_ok(), state == State::Deleting);
            assert_eq!(State::Deleting.after(state).is_ok(), state == State::Deleting);
        }
    }

    #[test]
    fn a_machine_that_is_kept_is_what_it_was_or_somebody_looks() {
        for state in ALL {
            let kept = State::kept(state);
            let expected = if state == State::Deleting { State::Maintenance } else { state };
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn an_illegal_change_names_both_states() {
        let illegal = State::Maintenance.after(State::Failed).unwrap_err().to_string();
        assert_eq!(illegal, "a machine that is in maintenance cannot become failed");
    }

    #[test]
    fn every_state_has_its_number_on_the_wire() {
        for state in ALL {
            assert_eq!(State::try_from(pb::State::from(state)), Ok(state));
        }
    }
}
