//! An instance's life.
//!
//! ```text
//! queued ──Began──▶ provisioning ──Installed──▶ active
//! queued ──Unusable──▶ failed, released       the machine could not be used, and nothing was done to it
//! queued, provisioning ──Failed──▶ failed
//! failed, released or not ──Retry──▶ queued
//! any but released ──Delete──▶ deprovisioning ──Cleaned──▶ (gone)        released ──Delete──▶ (gone)
//! deprovisioning ──Failed──▶ deprovision_failed ──Retry──▶ deprovisioning
//! ```
//!
//! In every state but released and gone the instance occupies its machine. Asking twice is asking once.

use std::fmt;

use tinwright::instance::v1 as pb;

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Has the claim on its machine, and nothing more.
    Queued,
    /// The machine is being installed.
    Provisioning,
    /// The machine is its owner's.
    Active,
    /// Provisioning failed; the machine stays claimed.
    Failed,
    /// Provisioning failed before anything was done, and the claim went: on the wire a failed one as well.
    Released,
    /// The machine is being cleaned.
    Deprovisioning,
    /// Cleaning failed; the machine stays claimed.
    DeprovisionFailed,
    /// Nothing is left of it. Never stored: the record goes.
    Gone,
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something is being done to the machine, or nothing has to be.
    Began,
    /// The machine cannot be used, and nothing was done to it.
    Unusable,
    /// The machine is installed, and its system has called home where it has to.
    Installed,
    /// What was under way ended badly.
    Failed,
    /// Somebody wants it tried again.
    Retry,
    /// Somebody wants the machine back.
    Delete,
    /// The machine is clean.
    Cleaned,
}

/// The event does not happen to an instance in that state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state} cannot {event}")]
pub struct Illegal {
    state: State,
    event: Event,
}

/// The stored value is not a state that this version has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a state of an instance")]
pub struct UnknownState(i32);

impl State {
    /// The state after `event`, or why there is none.
    pub fn after(self, event: Event) -> Result<Self, Illegal> {
        match (self, event) {
            (Self::Queued | Self::Provisioning, Event::Began) => Ok(Self::Provisioning),
            (Self::Queued | Self::Released, Event::Unusable) => Ok(Self::Released),
            (Self::Provisioning | Self::Active, Event::Installed) => Ok(Self::Active),
            (Self::Queued | Self::Provisioning | Self::Failed, Event::Failed) => Ok(Self::Failed),
            (Self::Failed | Self::Released, Event::Retry) => Ok(Self::Queued),
            // A retry that comes again finds what it began the first time.
            (Self::Queued | Self::Provisioning | Self::Deprovisioning, Event::Retry) => Ok(self),
            (Self::DeprovisionFailed, Event::Retry) => Ok(Self::Deprovisioning),
            (Self::Deprovisioning | Self::DeprovisionFailed, Event::Failed) => {
                Ok(Self::DeprovisionFailed)
            }
            (Self::Released, Event::Delete) => Ok(Self::Gone),
            (state, Event::Delete) if state != Self::Gone => Ok(Self::Deprovisioning),
            (Self::Deprovisioning | Self::Gone, Event::Cleaned) => Ok(Self::Gone),
            (state, event) => Err(Illegal { state, event }),
        }
    }

    /// Whether its machine is nobody else's.
    pub fn occupies(self) -> bool {
        !matches!(self, Self::Released | Self::Gone)
    }

    /// Whether there is something to be done for it.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Queued | Self::Provisioning | Self::Deprovisioning)
    }

    /// Whether its machine is being taken back: its record may change no more.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Deprovisioning | Self::DeprovisionFailed | Self::Gone)
    }

    fn to_proto(self) -> pb::State {
        match self {
            Self::Queued => pb::State::Queued,
            Self::Provisioning => pb::State::Provisioning,
            Self::Active => pb::State::Active,
            Self::Failed | Self::Released => pb::State::Failed,
            Self::Deprovisioning => pb::State::Deprovisioning,
            Self::DeprovisionFailed => pb::State::DeprovisionFailed,
            Self::Gone => pb::State::Deleted,
        }
    }

    /// Writes it into `instance`.
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

/// In words that follow "cannot".
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Began => "begin to be provisioned",
            Self::Unusable => "let go of its machine",
            Self::Installed => "become active",
            Self::Failed => "fail",
            Self::Retry => "be retried",
            Self::Delete => "be deleted",
            Self::Cleaned => "be done with",
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

    const STATES: [State; 8] = [
        State::Queued,
        State::Provisioning,
        State::Active,
        State::Failed,
        State::Released,
        State::Deprovisioning,
        State::DeprovisionFailed,
        State::Gone,
    ];
    const EVENTS: [Event; 7] = [
        Event::Began,
        Event::Unusable,
        Event::Installed,
        Event::Failed,
        Event::Retry,
        Event::Delete,
        Event::Cleaned,
    ];

    #[test]
    fn every_stored_state_is_read_back_from_the_wire() {
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
    fn an_illegal_event_names_state_and_event() {
        let illegal = State::Active.after(Event::Retry).unwrap_err().to_string();
        assert_eq!(illegal, "an instance that is active cannot be retried");
    }

    #[test]
    fn asking_twice_is_asking_once() {
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
        fn an_occupied_machine_becomes_free_only_untouched_or_clean(
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
                if state.leaves() {
                    prop_assert!(next.leaves(), "{state:?} {event:?} {next:?}");
                }
                state = next;
            }
        }

        #[test]
        fn what_is_gone_stays_gone(event in proptest::sample::select(&EVENTS[..])) {
            prop_assert!(State::Gone.after(event).is_ok_and(|s| s == State::Gone) == (event == Event::Cleaned));
        }
    }
}
