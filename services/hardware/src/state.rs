//! The lifecycle of a machine; `docs/reference/hardware-states.md` describes it for users.
//!
//! ```text
//! enrolled ◀──▶ provisionable               verified, or set by an operator
//! enrolled, provisionable ──▶ failed        an automatic step failed
//! failed ──▶ enrolled                       an operator has looked at it
//! enrolled, provisionable, failed ──▶ maintenance ──▶ enrolled, provisionable
//! any of these ──▶ deleting ──▶ (gone)      or back, if deleting was refused; to maintenance, if it was interrupted and refused
//! ```
//!
//! Provisioning, in use and deprovisioning are states of the instance that occupies the machine.

use tinwright::hardware::v1::State;

/// Returned for a change of state that is not allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a machine that is {} cannot become {}", describe(*from), describe(*to))]
pub struct IllegalStateChange {
    from: State,
    to: State,
}

/// Returns the state after a request for `to`. A request for the present state changes nothing.
pub fn after(from: State, to: State) -> Result<State, IllegalStateChange> {
    match (from, to) {
        (from, to) if from == to => Ok(to),
        (State::Enrolled, State::Provisionable | State::Failed)
        | (State::Provisionable, State::Enrolled | State::Failed)
        | (State::Failed, State::Enrolled)
        | (State::Enrolled | State::Provisionable | State::Failed, State::Maintenance)
        | (State::Maintenance, State::Enrolled | State::Provisionable) => Ok(to),
        (from, to) => Err(IllegalStateChange { from, to }),
    }
}

fn describe(state: State) -> &'static str {
    match state {
        State::Unspecified => "in no state",
        State::Enrolled => "enrolled",
        State::Provisionable => "provisionable",
        State::Failed => "failed",
        State::Maintenance => "in maintenance",
        State::Deleting => "being deleted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 5] =
        [State::Enrolled, State::Provisionable, State::Failed, State::Maintenance, State::Deleting];

    #[test]
    fn a_failed_machine_becomes_provisionable_only_by_way_of_enrolled() {
        assert!(after(State::Failed, State::Provisionable).is_err());
        let looked = after(State::Failed, State::Enrolled).unwrap();
        assert_eq!(after(looked, State::Provisionable), Ok(State::Provisionable));
    }

    #[test]
    fn repeating_a_request_changes_nothing_and_deleting_cannot_be_requested() {
        for state in ALL {
            assert_eq!(after(state, state), Ok(state));
            assert_eq!(after(state, State::Deleting).is_ok(), state == State::Deleting);
            assert_eq!(after(State::Deleting, state).is_ok(), state == State::Deleting);
        }
    }

    #[test]
    fn the_reference_page_has_every_change() {
        let mut table = String::from("| from | to |\n|---|---|\n");
        for from in ALL {
            for to in ALL.into_iter().filter(|to| *to != from && after(from, *to).is_ok()) {
                table += &format!("| {from:?} | {to:?} |\n");
            }
        }
        let page = include_str!("../../../docs/reference/hardware-states.md");
        assert!(page.contains(&format!("\n{table}\n")), "the page needs:\n{table}");
    }

    #[test]
    fn an_illegal_change_names_both_states() {
        let illegal = after(State::Maintenance, State::Failed).unwrap_err().to_string();
        assert_eq!(illegal, "a machine that is in maintenance cannot become failed");
    }
}
