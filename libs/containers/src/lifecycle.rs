//! The states of a container, as pure transitions.
//!
//! ```text
//! created ──started──> running ──stop──> stopping ──ended──> exited ──started──> running
//!    │                    └──ended (0)──> exited
//!    └──failed──> dead <──┘  ended (other status, signal), supervisor lost        dead ──started──> running
//! ```
//!
//! A requested stop ends in `exited` whatever the status of the process was. Events carry the number of the run they
//! belong to: an event of an earlier run changes nothing.

use crate::record::End;

/// A state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Never started.
    Created,
    /// The process runs.
    Running,
    /// A stop was requested, and processes are left.
    Stopping,
    /// It ended by request, or by itself with status 0.
    Exited,
    /// It ended with another status or by a signal, or failed to start.
    Dead,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// State `running`.
    Run,
    /// State `exited`.
    Stop,
    /// Deletion.
    Delete,
    /// Deletion that kills what runs.
    ForceDelete,
}

/// The work that a request leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the state is as requested.
    Nothing,
    /// Start a new run.
    Start,
    /// Send the stop request to the supervisor.
    Stop,
    /// Kill the run, wait for its end, then delete.
    KillAndDelete,
    /// Delete the record.
    Delete,
}

/// The request cannot be granted while the container is in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container is {}", .0.name())]
pub struct Busy(pub State);

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The image's program executes.
    Started,
    /// A stop was requested.
    StopRequested,
    /// The run is over and no process of it is left.
    Ended(End),
}

/// The state of a container and the number of its last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// The current state.
    pub state: State,
    /// The number of the last run, from 1; 0 if there was none.
    pub run: u64,
}

impl State {
    /// The state's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
            Self::Dead => "dead",
        }
    }

    /// Returns the work that `request` leads to.
    ///
    /// # Errors
    /// [`Busy`] if the request has to wait for another state.
    pub fn decide(self, request: Request) -> Result<Action, Busy> {
        match (self, request) {
            (Self::Created | Self::Exited | Self::Dead, Request::Run) => Ok(Action::Start),
            (Self::Running, Request::Run) => Ok(Action::Nothing),
            (Self::Stopping, Request::Run) => Err(Busy(self)),
            (Self::Running, Request::Stop) => Ok(Action::Stop),
            (Self::Created | Self::Stopping | Self::Exited | Self::Dead, Request::Stop) => {
                Ok(Action::Nothing)
            }
            (Self::Created | Self::Exited | Self::Dead, Request::Delete | Request::ForceDelete) => {
                Ok(Action::Delete)
            }
            (Self::Running | Self::Stopping, Request::Delete) => Err(Busy(self)),
            (Self::Running | Self::Stopping, Request::ForceDelete) => Ok(Action::KillAndDelete),
        }
    }

    /// The state after `event`; repeating an event changes nothing.
    #[must_use]
    pub fn after(self, event: &Event) -> Self {
        match (self, event) {
            (Self::Created | Self::Exited | Self::Dead, Event::Started) => Self::Running,
            (Self::Running, Event::StopRequested) => Self::Stopping,
            (Self::Created | Self::Running, Event::Ended(End::Exited(0))) => Self::Exited,
            (Self::Created | Self::Running, Event::Ended(_)) => Self::Dead,
            (Self::Exited | Self::Dead, Event::Ended(End::NotStarted(_))) => Self::Dead,
            (Self::Stopping, Event::Ended(_)) => Self::Exited,
            (Self::Running | Self::Stopping, Event::Started)
            | (Self::Created | Self::Stopping | Self::Exited | Self::Dead, Event::StopRequested)
            | (Self::Exited | Self::Dead, Event::Ended(_)) => self,
        }
    }
}

impl Lifecycle {
    /// A container that was never started.
    pub fn new() -> Self {
        Self { state: State::Created, run: 0 }
    }

    /// Reserves the number of the next run. The caller holds the container's lock from here to the run's first event.
    pub fn next_run(&mut self) -> u64 {
        self.run += 1;
        self.run
    }

    /// Applies `event` of run `run`. False, and nothing changes, if `run` is not the last one.
    pub fn apply(&mut self, run: u64, event: &Event) -> bool {
        let current = run == self.run;
        if current {
            self.state = self.state.after(event);
        }
        current
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Fault;

    const STATES: [State; 5] =
        [State::Created, State::Running, State::Stopping, State::Exited, State::Dead];

    fn decisions(request: Request) -> [Result<Action, Busy>; 5] {
        STATES.map(|state| state.decide(request))
    }

    fn successors(event: &Event) -> [State; 5] {
        STATES.map(|state| state.after(event))
    }

    #[test]
    fn requests_follow_the_table_of_states() {
        use Action::{Delete, KillAndDelete, Nothing, Start, Stop};
        let busy = |state| Err(Busy(state));
        let (running, stopping) = (State::Running, State::Stopping);
        assert_eq!(
            decisions(Request::Run),
            [Ok(Start), Ok(Nothing), busy(stopping), Ok(Start), Ok(Start)]
        );
        assert_eq!(
            decisions(Request::Stop),
            [Ok(Nothing), Ok(Stop), Ok(Nothing), Ok(Nothing), Ok(Nothing)]
        );
        assert_eq!(
            decisions(Request::Delete),
            [Ok(Delete), busy(running), busy(stopping), Ok(Delete), Ok(Delete)]
        );
        let killed = Ok(KillAndDelete);
        assert_eq!(
            decisions(Request::ForceDelete),
            [Ok(Delete), killed, killed, Ok(Delete), Ok(Delete)]
        );
    }

    #[test]
    fn an_end_is_exited_after_a_stop_or_with_status_zero_and_else_dead() {
        use State::{Dead, Exited};
        assert_eq!(
            successors(&Event::Ended(End::Exited(0))),
            [Exited, Exited, Exited, Exited, Dead]
        );
        for end in [End::Exited(3), End::Signaled(9), End::Lost] {
            assert_eq!(successors(&Event::Ended(end)), [Dead, Dead, Exited, Exited, Dead]);
        }
        let failed =
            End::NotStarted(Fault { invalid: false, step: "mount".into(), cause: "busy".into() });
        assert_eq!(successors(&Event::Ended(failed)), [Dead, Dead, Exited, Dead, Dead]);
    }

    #[test]
    fn a_stop_request_leads_from_running_to_stopping_only() {
        let [created, running, stopping, exited, dead] = successors(&Event::StopRequested);
        assert_eq!([created, exited, dead], [State::Created, State::Exited, State::Dead]);
        assert_eq!([running, stopping], [State::Stopping; 2]);
        assert_eq!(State::Stopping.after(&Event::Started), State::Stopping);
    }

    #[test]
    fn an_event_of_an_earlier_run_changes_nothing() {
        let mut lifecycle = Lifecycle::new();
        let first = lifecycle.next_run();
        assert!(lifecycle.apply(first, &Event::Started));
        assert!(lifecycle.apply(first, &Event::Ended(End::Exited(1))));
        let second = lifecycle.next_run();
        assert!(lifecycle.apply(second, &Event::Started));
        assert!(!lifecycle.apply(first, &Event::Ended(End::Exited(0))));
        assert_eq!(lifecycle, Lifecycle { state: State::Running, run: 2 });
    }
}
