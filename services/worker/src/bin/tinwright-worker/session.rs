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
        self.report_leftover_result().await;
        self.machine.refresh_links().await;
        let inventory = self.machine.report(&self.link).await;
        let mut actions = pin!(self.run_actions());
        tokio::select! {
            () = &mut actions => return,
            () = self.machine.report_neighbours(&self.link, inventory) => {}
        }
        actions.await;
    }

    async fn run_actions(&self) {
        loop {
            let start = Clock::system().monotonic();
            let expired = self.link.is_expired();
            let step = if expired { self.reboot().await } else { self.step().await };
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

    /// Calls NextAction once, and runs the action in the response.
    async fn step(&self) -> CallOutcome {
        let holder = Some(self.holder.clone());
        // This process runs no action now. An action of an earlier process ended with it.
        let request = NextActionRequest { holder, running_lease_id: String::new() };
        match self.link.repeat(request, LONG_POLL_TIMEOUT).await {
            Ok(NextActionResponse { assignment: Some(assignment), .. }) => {
                self.run_assignment(assignment).await
            }
            Ok(NextActionResponse { reboot: true, .. }) => self.reboot().await,
            Ok(NextActionResponse { assignment: None, reboot: false }) => CallOutcome::Idle,
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

    /// Reports the result that a crashed worker did not report. An action that was interrupted by the crash has no result:
    /// the control plane detects the restart.
    async fn report_leftover_result(&self) {
        let attempt = match self.journal.read(ATTEMPT).await {
            Ok(attempt) => attempt,
            Err(error) => {
                return tracing::error!(error = runtime::cause(&error), "journal not readable");
            }
        };
        match attempt {
            None => {}
            Some(AttemptRecord::Running { lease_id, action }) => {
                tracing::warn!(
                    lease.id = lease_id,
                    action,
                    "action was interrupted by a crash of the worker"
                );
                leftover_processes::kill_all(&lease_id).await;
                self.clear_attempt().await;
            }
            Some(AttemptRecord::Ended { finish }) => {
                tracing::info!(
                    lease.id = finish.lease_id,
                    "reporting the result of a crashed worker"
                );
                // The command of a reaction may still be running.
                leftover_processes::kill_all(&finish.lease_id).await;
                if self.finish_action(finish).await == CallOutcome::Done {
                    self.clear_attempt().await;
                }
            }
        }
    }
}
