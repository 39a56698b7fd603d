//! The conversation with the control plane: one action after the other, until the machine is to leave this boot.
//!
//! ```text
//! result left over? ─FinishAction─▶ NextAction ──assignment──▶ attempt ─▶ NextAction …
//!                                       │ ▲ nothing
//!                                       │ └──┘
//!                                       └──reboot──▶ leave
//! ```
//!
//! A workflow's end is not the worker's: the next one is taken without a reboot.

mod attempt;
mod ending;
mod feed;
mod log;
mod order;
mod reaction;
mod telling;

use std::time::Duration;

use runtime::Clock;
use tinwright::workflow::v1::{Holder, NextActionRequest, NextActionResponse};
use worker::Terminal;

use crate::journal::{Journal, Page};
use crate::link::Link;
use crate::orphans;
use crate::power::Power;
use crate::retry::REFUSED_RETRY_DELAY;
use attempt::Attempt;

/// The shortest time between two questions for work: a server that answers at once is not to be worn out.
const PACE: Duration = Duration::from_secs(1);

/// All that the conversation needs.
#[derive(Debug)]
pub(crate) struct Session {
    /// To the control plane.
    pub(crate) link: Link,
    /// What outlives this process.
    pub(crate) journal: Journal,
    /// Which process of which boot asks.
    pub(crate) holder: Holder,
    /// What the site knows the machine as.
    pub(crate) hardware_id: String,
    /// Whom image servers are vouched for by, PEM bundles.
    pub(crate) roots: Vec<Vec<u8>>,
    /// How the machine leaves this boot.
    pub(crate) power: Power,
}

/// What came of one question for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// An action was done and told: there may be another.
    Done,
    /// Nothing came of it.
    Idle,
    /// The machine has left this boot, or would have.
    Left,
}

impl Session {
    /// Takes and does what there is to do; returns once the machine has pretended to leave.
    pub(crate) async fn run(&self) {
        self.report_left_over().await;
        loop {
            let asked = Clock::system().monotonic();
            match self.step().await {
                Step::Done => {}
                Step::Idle => {
                    tokio::time::sleep(PACE.saturating_sub(Clock::system().monotonic() - asked))
                        .await
                }
                Step::Left => return,
            }
        }
    }

    /// Asks once, and does what it is told.
    async fn step(&self) -> Step {
        let holder = Some(self.holder.clone());
        // An action dies with the process that runs it: after a restart none runs any more.
        let request = NextActionRequest { holder, running_lease_id: String::new() };
        match self.link.next_action(request).await {
            Ok(NextActionResponse { assignment: Some(assignment), .. }) => {
                self.take(assignment).await
            }
            Ok(NextActionResponse { reboot: true, .. }) => match self.power.leave(Terminal::Reboot)
            {
                Ok(()) => Step::Left,
                Err(error) => waited("the machine does not reboot", &error).await,
            },
            Ok(NextActionResponse { assignment: None, reboot: false }) => Step::Idle,
            Err(status) => waited("no work is given", &status).await,
        }
    }

    /// Tells the result that a worker before us could not tell any more. What it was doing without a result is nobody's:
    /// the control plane knows what to do with that.
    async fn report_left_over(&self) {
        let left_over = match self.journal.read(Page::Attempt).await {
            Ok(left_over) => left_over,
            Err(error) => {
                return tracing::error!(error = &error as &dyn std::error::Error, "no journal");
            }
        };
        match left_over {
            None => {}
            Some(Attempt::Running { lease_id, action }) => {
                tracing::warn!(lease.id = lease_id, action, "was cut off: its end is unknown");
                orphans::end(&lease_id).await;
                self.forget().await;
            }
            Some(Attempt::Ended { finish }) => {
                tracing::info!(
                    lease.id = finish.lease_id,
                    "telling the result of a worker before us"
                );
                // What was to be run after a bad end may run still.
                orphans::end(&finish.lease_id).await;
                self.tell(finish).await;
                self.forget().await;
            }
        }
    }
}

/// A minute after saying why nothing came of it.
async fn waited(what: &str, error: &(dyn std::error::Error + 'static)) -> Step {
    tracing::error!(error, "{what}; asking again in a minute");
    tokio::time::sleep(REFUSED_RETRY_DELAY).await;
    Step::Idle
}
