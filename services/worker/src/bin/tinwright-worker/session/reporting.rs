//! Reports progress while an action runs, and sends its log until all of it is sent.
//!
//! The server may be unreachable at any time. After that it gets the latest progress and all missing parts of the log.

use std::convert::Infallible;
use std::time::Duration;

use machine::control_plane::CALL_TIMEOUT;
use machine::retry_policy::Backoff;
use runtime::Clock;
use runtime::retry::is_final;
use tinwright::workflow::v1::{AppendLogRequest, ReportProgressRequest};
use tokio::time::{sleep, timeout_at};

use super::Session;
use super::assignment::ActionAttempt;
use super::log::LogPosition;
use super::outcome::CancelReason;
use super::progress::to_proto;

/// The longest time between two reports, which also renew the lease.
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// The minimum time between two reports, and between two pieces of the log of a running action.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(1);

impl Session {
    /// Waits for a reason to cancel the action. Meanwhile it reports progress, which renews the lease.
    pub(super) async fn wait_for_cancellation(&self, attempt: &ActionAttempt) -> CancelReason {
        tokio::select! {
            () = sleep(attempt.limit) => CancelReason::Timeout,
            // No reports for a background action: the control plane treats it as done.
            cause = self.report_progress(attempt), if !attempt.background => cause,
        }
    }

    async fn report_progress(&self, attempt: &ActionAttempt) -> CancelReason {
        let (mut last, mut backoff) = (attempt.recorder.subscribe(), Backoff::default());
        let mut due = Clock::system().monotonic() + MAX_REPORT_INTERVAL;
        loop {
            let _changed_or_due = timeout_at(due.into(), last.changed()).await;
            let progress = last.borrow_and_update().as_ref().map(to_proto);
            let (workflow_id, lease_id) = (attempt.workflow_id.clone(), attempt.lease_id.clone());
            let request = ReportProgressRequest { workflow_id, lease_id, progress };
            match self.link.once(request, CALL_TIMEOUT).await {
                Ok(response) if response.stop => return CancelReason::Requested,
                Ok(_) => {
                    backoff.reset("ReportProgress");
                    due = Clock::system().monotonic() + MAX_REPORT_INTERVAL;
                    sleep(MIN_REPORT_INTERVAL).await;
                }
                Err(status) if is_final(status.code()) => {
                    return CancelReason::LeaseLost;
                }
                Err(status) => {
                    backoff.wait("ReportProgress", &status).await;
                    due = Clock::system().monotonic();
                }
            }
        }
    }

    /// Sends the log while the action writes it. Never returns.
    pub(super) async fn send_log(&self, attempt: &ActionAttempt) -> Infallible {
        loop {
            sleep(MIN_REPORT_INTERVAL).await;
            self.send_piece(attempt).await;
        }
    }

    /// Lets the log of `attempt` begin behind what an earlier process has sent.
    pub(super) async fn continue_log(&self, attempt: &ActionAttempt) {
        let (workflow_id, lease_id) = (attempt.workflow_id.clone(), attempt.lease_id.clone());
        // Nothing is stored behind a gap; the response names its beginning.
        let request =
            AppendLogRequest { workflow_id, lease_id, offset: u64::MAX, data: Vec::new() };
        match self.link.repeat(request, CALL_TIMEOUT).await {
            // A log that is cut stores no more.
            Ok(response) if response.next_offset == u64::MAX => {
                attempt.recorder.position().refused = true;
            }
            Ok(response) => attempt.recorder.position().stored_before = response.next_offset,
            Err(status) => {
                tracing::warn!(error = runtime::cause(&status), "log refused by the control plane");
                attempt.recorder.position().refused = true;
            }
        }
    }

    /// Sends the next piece of the log. Returns false if there is none.
    pub(super) async fn send_piece(&self, attempt: &ActionAttempt) -> bool {
        let recorder = &attempt.recorder;
        let LogPosition { offset, refused, stored_before, .. } = *recorder.position();
        let data = recorder.log.piece(offset);
        if data.is_empty() || refused {
            return false;
        }
        let (workflow_id, lease_id) = (attempt.workflow_id.clone(), attempt.lease_id.clone());
        let (offset, length) = (stored_before.saturating_add(offset as u64), data.len());
        let request = AppendLogRequest { workflow_id, lease_id, offset, data };
        match self.link.repeat(request, CALL_TIMEOUT).await {
            Ok(response) if response.next_offset < offset => {
                recorder.position().missing(response.next_offset.saturating_sub(stored_before));
            }
            Ok(_) => recorder.position().advance(length),
            Err(status) => {
                tracing::warn!(error = runtime::cause(&status), "log refused by the control plane");
                recorder.position().refused = true;
            }
        }
        true
    }
}
