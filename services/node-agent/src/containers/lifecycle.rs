//! The states of a container, as the contract has them.
//!
//! ```text
//!            start                stop              processes ended
//! created ──────────▶ running ─────────▶ stopping ─────────────────▶ exited ──start──▶ running
//!    ╰──start failed──▶ dead ◀──ended with another status than 0──╯     (ended with status 0: exited)
//!                        ╰──start──▶ running
//! ```

use tinwright::node::v1::container::State;

use crate::kernel::Exit;

/// The consequence of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Act,
    /// The container is as requested already.
    Nothing,
    /// The request is refused.
    Busy,
}

/// True if the container may have processes.
pub(crate) const fn is_alive(state: State) -> bool {
    matches!(state, State::Running | State::Stopping)
}

pub(super) const fn on_start(state: State) -> Action {
    match state {
        State::Running => Action::Nothing,
        State::Stopping => Action::Busy,
        State::Unspecified | State::Created | State::Exited | State::Dead | State::Paused => {
            Action::Act
        }
    }
}

pub(super) const fn on_stop(state: State) -> Action {
    match state {
        State::Running => Action::Act,
        State::Unspecified
        | State::Created
        | State::Stopping
        | State::Exited
        | State::Dead
        | State::Paused => Action::Nothing,
    }
}

/// Returns the state after the end of the processes of a container that was running or stopping.
pub(crate) const fn after_exit(state: State, exit: Exit) -> State {
    match state {
        // A requested stop ends as exited, whatever the status is.
        State::Stopping => State::Exited,
        State::Running | State::Created | State::Unspecified | State::Paused => {
            if exit.is_success() { State::Exited } else { State::Dead }
        }
        State::Exited | State::Dead => state,
    }
}

/// Returns the word for `state` in logs.
pub(super) const fn name(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Created => "created",
        State::Running => "running",
        State::Stopping => "stopping",
        State::Exited => "exited",
        State::Dead => "dead",
        State::Paused => "paused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_table_of_the_contract() {
        let rows = [
            (State::Created, Action::Act, Action::Nothing, None),
            (State::Running, Action::Nothing, Action::Act, Some((State::Exited, State::Dead))),
            (State::Stopping, Action::Busy, Action::Nothing, Some((State::Exited, State::Exited))),
            (State::Exited, Action::Act, Action::Nothing, None),
            (State::Dead, Action::Act, Action::Nothing, None),
        ];
        for (state, start, stop, ended) in rows {
            assert_eq!(on_start(state), start, "{state:?}");
            assert_eq!(on_stop(state), stop, "{state:?}");
            assert_eq!(is_alive(state), ended.is_some(), "{state:?}");
            let Some((with_zero, otherwise)) = ended else { continue };
            assert_eq!(after_exit(state, Exit::Status(0)), with_zero, "{state:?}");
            for exit in [Exit::Status(3), Exit::Signal(9), Exit::Unknown] {
                assert_eq!(after_exit(state, exit), otherwise, "{state:?}");
            }
        }
    }
}
