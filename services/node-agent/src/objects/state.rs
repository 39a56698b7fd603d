//! The states of an object.
//!
//! ```text
//! Creating ──created──▶ Ready ──delete──▶ Deleting ──(removed)
//!     │                  │ ▲ ╲                │
//!     │                  │ │  ╲ vanished      │ refused: back to Ready or Vanished
//!     │           unused │ ╰───╲──────────────╯
//!     ╰──failed──▶ Collecting ◀─╲─unused─ Vanished ──delete──▶ Deleting
//!                      │
//!                      ╰──(removed, after as many attempts as it takes)
//! ```

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectState {
    /// Its kernel steps are under way. Not visible.
    Creating,
    /// It can be used.
    Ready,
    /// The kernel does not have it any more. It can be deleted.
    Vanished,
    /// A call deletes it.
    Deleting {
        /// It had vanished before.
        vanished: bool,
    },
    /// Nobody uses it: its teardown is tried until it succeeds.
    Collecting,
}

/// Something that changes the state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// All steps of the creation succeeded.
    Created,
    /// A step of the creation failed.
    Failed,
    /// The kernel does not have it any more.
    Vanished,
    /// A call begins to delete it.
    Delete,
    /// The deletion failed; the kernel still has it.
    Refused,
    /// Its count became 0.
    Unused,
}

/// An event that is impossible in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impossible in the state {state:?}: {event:?}")]
pub(crate) struct IllegalTransition {
    state: ObjectState,
    event: Event,
}

impl ObjectState {
    /// Returns the state after `event`.
    pub(crate) fn after(self, event: Event) -> Result<Self, IllegalTransition> {
        match (self, event) {
            (Self::Creating, Event::Created) => Ok(Self::Ready),
            (Self::Creating | Self::Collecting, Event::Failed) => Ok(Self::Collecting),
            (Self::Ready | Self::Vanished, Event::Vanished) => Ok(Self::Vanished),
            (Self::Ready, Event::Delete) => Ok(Self::Deleting { vanished: false }),
            (Self::Vanished, Event::Delete) => Ok(Self::Deleting { vanished: true }),
            // The teardown that the collection would try is tried by the call.
            (Self::Collecting, Event::Delete | Event::Refused | Event::Vanished) => Ok(self),
            (Self::Deleting { vanished: false }, Event::Refused) => Ok(Self::Ready),
            (Self::Deleting { .. }, Event::Vanished)
            | (Self::Deleting { vanished: true }, Event::Refused) => Ok(Self::Vanished),
            // The call that deletes it goes on. If it is refused, the count is looked at again.
            (Self::Deleting { .. }, Event::Unused) => Ok(self),
            (Self::Ready | Self::Vanished | Self::Collecting, Event::Unused) => {
                Ok(Self::Collecting)
            }
            (Self::Creating, Event::Vanished | Event::Delete | Event::Refused | Event::Unused)
            | (Self::Ready | Self::Vanished, Event::Created | Event::Failed | Event::Refused)
            | (Self::Deleting { .. }, Event::Created | Event::Failed | Event::Delete)
            | (Self::Collecting, Event::Created) => Err(IllegalTransition { state: self, event }),
        }
    }
}
