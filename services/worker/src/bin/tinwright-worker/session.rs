//! The session with the control plane: runs one action after the other, until an action or the control plane ends this boot.
//!
//! ```text
//! unreported result? ─FinishAction─▶ ReportInventory ─▶ NextAction ──assignment──▶ attempt ─▶ NextAction …
//!                                                           │ ▲ no action
//!                                                           │ └──┘
//!                                                           └──reboot──▶ end of this boot
//! ```
//!
//! Neighbours on the network that are found later are reported beside the actions, which never wait for them.
//!
//! After the end of a workflow, the worker continues with the next workflow without a reboot. When the certificate is expired,
//! the boot ends after the running action, whose result is lost.

mod assignment;
mod attempt;
mod log;
mod outcome;
mod progress;
mod reaction;
mod reporting;

use std::pin::pin;
use std::time::Duration;

use image_signature::PublicKeys;
use machine::control_plane::ControlPlaneClient;
use machine::journal::Journal;
use machine::retry_policy::REFUSED_RETRY_DELAY;
use reqwest::Url;
use runtime::Clock;
use tinwright::workflow::v1::{Holder, NextActionRequest, NextActionResponse};
use worker::Terminal;

use crate::inventory::MachineFiles;
use crate::leftover_processes;
use crate::power::Power;
use attempt::{ATTEMPT, AttemptRecord};

/// Timeout of a long poll: the server holds the call up to 50 s while there is no action, plus the timeout of a call.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(65);
/// What this worker can do that older ones cannot.
const ABILITIES: [&str; 2] = ["map", "relative_url"];
/// The minimum time between two NextAction calls without an action.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The session of one worker process.
#[derive(Debug)]
pub(crate) struct Session {
    /// The control plane.
    pub(crate) link: ControlPlaneClient,
    /// State that survives a crash.
    pub(crate) journal: Journal,
    /// Boot and process of this worker.
    pub(crate) holder: Holder,
    /// Id of the machine's hardware record.
    pub(crate) hardware_id: String,
    /// Certificate authorities trusted for image servers, as PEM bundles.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Keys of which an image needs a signature. None: images need none.
    pub(crate) image_keys: Option<PublicKeys>,
    /// The server that this machine was booted from.
    pub(crate) boot_server: Url,
    /// Ends the boot, or prints that it would.
    pub(crate) power: Power,
    /// Files that describe this machine.
    pub(crate) machine: MachineFiles,
}

/// The result of one NextAction call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOutcome {
    /// An action ended and was reported. The next action may be available at once.
    Done,
    /// No action was run, or its result was refused.
    Idle,
    /// The boot ended, or would have without a dry run.
    BootEnded,
}

impl Session {
    /// Runs actions. Returns only after a dry run of ending the boot.
    pub(crate) async fn run(&self) {
        let running = self.report_leftover_result().await;
        self.machine.refresh_links().await;
        let inventory = self.machine.report(&self.link).await;
        let mut actions = pin!(self.run_actions(running));
        tokio::select! {
            () = &mut actions => return,
            () = self.machine.report_neighbours(&self.link, inventory) => {}
        }
        actions.await;
    }

    /// Runs actions, first the one under the lease `running`, with which an earlier process was not finished.
    async fn run_actions(&self, mut running: Option<String>) {
        loop {
            let start = Clock::system().monotonic();
            let expired = self.link.is_expired();
            let step = if expired { self.reboot().await } else { self.step(&mut running).await };
            match step {
                CallOutcome::Done => {}
                CallOutcome::Idle => {
                    let elapsed = Clock::system().monotonic() - start;
                    tokio::time::sleep(MIN_POLL_INTERVAL.saturating_sub(elapsed)).await;
                }
                CallOutcome::BootEnded => return,
            }
        }
    }

    /// Calls NextAction once, and runs the action in the response. `running` is empty once there is a response.
    async fn step(&self, running: &mut Option<String>) -> CallOutcome {
        let request = NextActionRequest {
            holder: Some(self.holder.clone()),
            running_lease_id: running.clone().unwrap_or_default(),
            abilities: ABILITIES.map(str::to_owned).to_vec(),
        };
        match self.link.repeat(request, LONG_POLL_TIMEOUT).await {
            Ok(NextActionResponse { assignment: Some(assignment), .. }) => {
                let goes_on = running.take().is_some_and(|lease| lease == assignment.lease_id);
                self.run_assignment(assignment, goes_on).await
            }
            Ok(NextActionResponse { reboot: true, .. }) => self.reboot().await,
            Ok(NextActionResponse { assignment: None, reboot: false }) => {
                *running = None;
                CallOutcome::Idle
            }
            Err(status) => {
                let error = runtime::cause(&status);
                tracing::error!(error, "NextAction refused; retrying in a minute");
                self.wait_for_retry().await;
                CallOutcome::Idle
            }
        }
    }

    async fn reboot(&self) -> CallOutcome {
        match self.power.end_boot(Terminal::Reboot) {
            Ok(()) => CallOutcome::BootEnded,
            Err(error) => {
                let error = runtime::cause(&error);
                tracing::error!(error, "reboot failed; retrying in a minute");
                self.wait_for_retry().await;
                CallOutcome::Idle
            }
        }
    }

    /// Waits a minute, or until the certificate is expired.
    async fn wait_for_retry(&self) {
        let _expired = tokio::time::timeout(REFUSED_RETRY_DELAY, self.link.expired()).await;
    }

    /// Reports the result that a crashed worker did not report. Returns the lease of an action that was interrupted by the crash and can go on.
    /// Another one has no result: the control plane detects the restart.
    async fn report_leftover_result(&self) -> Option<String> {
        let attempt = self.journal.read(ATTEMPT).await.inspect_err(|error| {
            tracing::error!(error = runtime::cause(error), "journal not readable");
        });
        match attempt.ok().flatten()? {
            AttemptRecord::Running { lease_id, action, can_go_on } => {
                tracing::warn!(
                    lease.id = lease_id,
                    action,
                    can_go_on,
                    "action was interrupted by a crash of the worker"
                );
                leftover_processes::kill_all(&lease_id).await;
                if can_go_on {
                    // It stays in the journal: this process may crash, too, before it goes on.
                    return Some(lease_id);
                }
                self.clear_attempt().await;
                None
            }
            AttemptRecord::Ended { finish } => {
                tracing::info!(
                    lease.id = finish.lease_id,
                    "reporting the result of a crashed worker"
                );
                // The command of a reaction may still be running.
                leftover_processes::kill_all(&finish.lease_id).await;
                if self.finish_action(finish).await == CallOutcome::Done {
                    self.clear_attempt().await;
                }
                None
            }
        }
    }
}
