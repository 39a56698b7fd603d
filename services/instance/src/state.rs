//! The lifecycle of an instance; `docs/reference/instance-lifecycle.md` describes it for users.
//!
//! ```text
//! queued ──Began──▶ provisioning ──Installed──▶ active
//! queued ──Unusable──▶ failed, released       the machine may not be used, and was not changed
//! queued, provisioning, reinstalling ──Failed──▶ failed
//! failed, released or not ──Retry──▶ queued
//! active, failed ──Reinstall──▶ reinstalling ──Installed──▶ active
//! queued ──Reserved──▶ active                 nothing is to be done with the machine
//! active ──ScriptNotLoaded──▶ provisioning    its custom script was started, and then could not be loaded
//! any but released ──Delete──▶ deprovisioning ──Cleaned──▶ (gone)        released ──Delete──▶ (gone)
//! deprovisioning ──Failed──▶ deprovision_failed ──Retry──▶ deprovisioning
//! ```
//!
//! The instance occupies its machine in every state but released and gone. Repeating an event changes nothing.

use std::fmt;

use tinwright::instance::v1 as pb;

/// The position of an instance in its lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Holds the claim on its machine; the machine was not changed yet.
    Queued,
    /// The machine is being installed.
    Provisioning,
    /// The machine is installed and belongs to its owner.
    Active,
    /// The machine is being installed again.
    Reinstalling,
    /// Provisioning failed; the machine stays claimed.
    Failed,
    /// Provisioning failed before the machine was changed, and the claim was dropped. Shown as failed.
    Released,
    /// The machine is being cleaned.
    Deprovisioning,
    /// Cleaning failed; the machine stays claimed.
    DeprovisionFailed,
    /// The record was deleted. Never stored.
    Gone,
}

/// A change in the life of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work on the machine began, or none is needed.
    Began,
    /// The machine may not be used, and was not changed.
    Unusable,
    /// The machine is only to be kept.
    Reserved,
    /// The machine is installed, and its system has phoned home if that is required; or it runs its stack as a node.
    Installed,
    /// The machine could not load its custom script after all.
    ScriptNotLoaded,
    /// Provisioning or cleaning failed.
    Failed,
    /// A caller asked to repeat the step that failed.
    Retry,
    /// A caller asked to install the machine again.
    Reinstall,
    /// A caller asked to delete the instance.
    Delete,
    /// The machine is clean.
    Cleaned,
}

/// Returned for an event that the state does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state} cannot {event}")]
pub struct IllegalTransition {
    state: State,
    event: Event,
}

/// Returned for a stored number that is no state of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a state of an instance")]
pub struct UnknownState(i32);

impl State {
    /// Returns the state after `event`.
    pub fn after(self, event: Event) -> Result<Self, IllegalTransition> {
        match (self, event) {
            (Self::Queued | Self::Provisioning, Event::Began) => Ok(Self::Provisioning),
            (Self::Queued | Self::Active, Event::Reserved) => Ok(Self::Active),
            (Self::Queued | Self::Released, Event::Unusable) => Ok(Self::Released),
            (Self::Reinstalling, Event::Began) => Ok(Self::Reinstalling),
            (Self::Provisioning | Self::Reinstalling | Self::Active, Event::Installed) => {
                Ok(Self::Active)
            }
            (Self::Provisioning | Self::Active, Event::ScriptNotLoaded) => Ok(Self::Provisioning),
            (
                Self::Queued | Self::Provisioning | Self::Reinstalling | Self::Failed,
                Event::Failed,
            ) => Ok(Self::Failed),
            (Self::Active | Self::Failed | Self::Reinstalling, Event::Reinstall) => {
                Ok(Self::Reinstalling)
            }
            (Self::Failed | Self::Released, Event::Retry) => Ok(Self::Queued),
            // A repeated retry finds the state that the first one led to.
            (Self::Queued | Self::Provisioning | Self::Deprovisioning, Event::Retry) => Ok(self),
            (Self::DeprovisionFailed, Event::Retry) => Ok(Self::Deprovisioning),
            (Self::Deprovisioning | Self::DeprovisionFailed, Event::Failed) => {
                Ok(Self::DeprovisionFailed)
            }
            (Self::Released, Event::Delete) => Ok(Self::Gone),
            (state, Event::Delete) if state != Self::Gone => Ok(Self::Deprovisioning),
            (Self::Deprovisioning | Self::Gone, Event::Cleaned) => Ok(Self::Gone),
            (state, event) => Err(IllegalTransition { state, event }),
        }
    }

    /// True if the instance holds the claim on its machine.
    pub fn occupies(self) -> bool {
        !matches!(self, Self::Released | Self::Gone)
    }

    /// True if the reconciler has work to do.
    pub fn needs_work(self) -> bool {
        matches!(
            self,
            Self::Queued | Self::Provisioning | Self::Reinstalling | Self::Deprovisioning
        )
    }

    /// True if the instance is being deleted: of its record, callers may change only the clean-up template.
    pub fn is_being_deleted(self) -> bool {
        matches!(self, Self::Deprovisioning | Self::DeprovisionFailed | Self::Gone)
    }

    fn to_proto(self) -> pb::State {
        match self {
            Self::Queued => pb::State::Queued,
            Self::Provisioning => pb::State::Provisioning,
            Self::Active => pb::State::Active,
            Self::Reinstalling => pb::State::Reinstalling,
            Self::Failed | Self::Released => pb::State::Failed,
            Self::Deprovisioning => pb::State::Deprovisioning,
            Self::DeprovisionFailed => pb::State::DeprovisionFailed,
            Self::Gone => pb::State::Deleted,
        }
    }

    /// Writes the state into `instance`.
    pub fn write(self, instance: &mut pb::Instance) {
        instance.set_state(self.to_proto());
        instance.released = self == Self::Released;
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_proto().word())
    }
}

/// Words that follow "cannot".
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Began => "begin to be provisioned",
            Self::Unusable => "release its machine",
            Self::Reserved => "be reserved",
            Self::Installed => "become active",
            Self::ScriptNotLoaded => "wait for its script",
            Self::Failed => "fail",
            Self::Retry => "be retried",
            Self::Reinstall => "be reinstalled",
            Self::Delete => "be deleted",
            Self::Cleaned => "be removed",
        })
    }
}

impl TryFrom<&pb::Instance> for State {
    type Error = UnknownState;

    fn try_from(instance: &pb::Instance) -> Result<Self, UnknownState> {
        match instance.state() {
            pb::State::Queued => Ok(Self::Queued),
            pb::State::Provisioning => Ok(Self::Provisioning),
            pb::State::Active => Ok(Self::Active),
            pb::State::Reinstalling => Ok(Self::Reinstalling),
            pb::State::Failed if instance.released => Ok(Self::Released),
            pb::State::Failed => Ok(Self::Failed),
            pb::State::Deprovisioning => Ok(Self::Deprovisioning),
            pb::State::DeprovisionFailed => Ok(Self::DeprovisionFailed),
            pb::State::Unspecified | pb::State::Deleted => Err(UnknownState(instance.state)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATES: [State; 9] = [
        State::Queued,
        State::Provisioning,
        State::Active,
        State::Reinstalling,
        State::Failed,
        State::Released,
        State::Deprovisioning,
        State::DeprovisionFailed,
        State::Gone,
    ];
    const EVENTS: [Event; 10] = [
        Event::Began,
        Event::Unusable,
        Event::Reserved,
        Event::Installed,
        Event::ScriptNotLoaded,
        Event::Failed,
        Event::Retry,
        Event::Reinstall,
        Event::Delete,
        Event::Cleaned,
    ];

    #[test]
    fn every_stored_state_is_read_back() {
        for state in STATES.into_iter().filter(|state| *state != State::Gone) {
            let mut instance = pb::Instance::default();
            state.write(&mut instance);
            assert_eq!(State::try_from(&instance), Ok(state));
        }
        for state in [pb::State::Unspecified as i32, pb::State::Deleted as i32, 1000] {
            let unknown = pb::Instance { state, ..Default::default() };
            assert_eq!(State::try_from(&unknown), Err(UnknownState(state)));
        }
    }

    #[test]
    fn the_reference_page_has_every_transition() {
        let mut table = String::from("| from | event | to |\n|---|---|---|\n");
        for state in STATES.into_iter().filter(|state| *state != State::Gone) {
            for event in EVENTS {
                if let Ok(next) = state.after(event)
                    && next != state
                {
                    table += &format!("| {state:?} | {event:?} | {next:?} |\n");
                }
            }
        }
        let page = include_str!("../../../docs/reference/instance-lifecycle.md");
        assert!(page.contains(&format!("\n{table}\n")), "the page needs:\n{table}");
    }

    #[test]
    fn an_illegal_event_names_state_and_event() {
        let illegal = State::Active.after(Event::Retry).unwrap_err().to_string();
        assert_eq!(illegal, "an instance that is active cannot be retried");
    }

    #[test]
    fn repeating_an_event_changes_nothing() {
        for state in STATES {
            for event in EVENTS {
                let Ok(once) = state.after(event) else { continue };
                if (once, event) != (State::Gone, Event::Delete) {
                    assert_eq!(once.after(event), Ok(once), "{state:?} {event:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_claim_is_dropped_only_for_a_machine_that_is_unchanged_or_clean(
            events in proptest::collection::vec(proptest::sample::select(&EVENTS[..]), 0..40)
        ) {
            let mut state = State::Queued;
            for event in events {
                let Ok(next) = state.after(event) else { continue };
                if state.occupies() && !next.occupies() {
                    let untouched = (state, event) == (State::Queued, Event::Unusable);
                    let clean = (state, event) == (State::Deprovisioning, Event::Cleaned);
                    prop_assert!(untouched || clean, "{state:?} {event:?}");
                }
                if state.is_being_deleted() {
                    prop_assert!(next.is_being_deleted(), "{state:?} {event:?} {next:?}");
                }
                state = next;
            }
        }

        #[test]
        fn a_deleted_instance_stays_deleted(event in proptest::sample::select(&EVENTS[..])) {
            prop_assert!(State::Gone.after(event).is_ok_and(|s| s == State::Gone) == (event == Event::Cleaned));
        }
    }
}
