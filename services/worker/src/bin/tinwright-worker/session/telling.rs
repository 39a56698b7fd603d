//! What is told of an action while it runs, and of its log until all of it is there.
//!
//! The server may be away at any time. Of the progress it is told the latest then, of the log all that it misses.

use std::convert::Infallible;
use std::time::Duration;

use runtime::Clock;
use runtime::retry::is_final;
use tinwright::workflow::v1::{AppendLogRequest, ReportProgressRequest};
use tokio::time::{sleep, timeout_at};

use super::Session;
use super::ending::Cause;
use super::feed::{Feed, told};
use super::log::Sent;
use super::order::Order;
use crate::retry::Backoff;

/// The longest time between two reports.
const RENEWAL: Duration = Duration::from_secs(15);
/// The shortest time between two reports, and between two pieces of a log while its action runs.
const PACE: Duration = Duration::from_secs(1);

impl Session {
    /// Keeps the lease and tells how far the action is, until there is a reason to stop it.
    pub(super) async fn reason_to_stop(&self, order: &Order, feed: &Feed) -> Cause {
        tokio::select! {
            () = sleep(order.limit) => Cause::Overdue,
            // Of one in the background the control plane knows already all that it wants to.
            cause = self.tell_progress(order, feed), if !order.background => cause,
        }
    }

    async fn tell_progress(&self, order: &Order, feed: &Feed) -> Cause {
        let (mut last, mut backoff) = (feed.follow(), Backoff::default());
        let mut due = Clock::system().monotonic() + RENEWAL;
        loop {
            let _news_or_due = timeout_at(due.into(), last.changed()).await;
            let progress = last.borrow_and_update().as_ref().map(told);
            let (workflow_id, lease_id) = (order.workflow_id.clone(), order.lease_id.clone());
            let request = ReportProgressRequest { workflow_id, lease_id, progress };
            match self.link.report_progress(request).await {
                Ok(answer) if answer.stop => return Cause::Unwanted,
                Ok(_) => {
                    backoff.reset("ReportProgress");
                    due = Clock::system().monotonic() + RENEWAL;
                    sleep(PACE).await;
                }
                Err(status) if is_final(status.code()) => {
                    return Cause::Superseded;
                }
                Err(status) => {
                    backoff.wait("ReportProgress", &status).await;
                    due = Clock::system().monotonic();
                }
            }
        }
    }

    /// Sends the log as it is written, for ever.
    pub(super) async fn send_log(&self, order: &Order, feed: &Feed, sent: &mut Sent) -> Infallible {
        loop {
            sleep(PACE).await;
            self.send_piece(order, feed, sent).await;
        }
    }

    /// Sends the next piece of the log; says whether there was one.
    pub(super) async fn send_piece(&self, order: &Order, feed: &Feed, sent: &mut Sent) -> bool {
        let data = feed.log.piece(sent.offset());
        if data.is_empty() || sent.is_refused() {
            return false;
        }
        let (workflow_id, lease_id) = (order.workflow_id.clone(), order.lease_id.clone());
        let (offset, length) = (sent.offset() as u64, data.len());
        let request = AppendLogRequest { workflow_id, lease_id, offset, data };
        match self.link.append_log(request).await {
            Ok(response) if response.next_offset < offset => sent.missing(response.next_offset),
            Ok(_) => sent.taken(length),
            Err(status) => {
                let error = &status as &dyn std::error::Error;
                tracing::warn!(error, "the log is not wanted");
                sent.refuse();
            }
        }
        true
    }
}
