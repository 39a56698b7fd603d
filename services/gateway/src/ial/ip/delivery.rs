//! The body of an answer with a new grant: of the grant, nobody can say at first whether the platform will know.
//!
//! ```text
//! in use ─▶ text ─▶ flushed ─▶ end ─▶ connection whole for 10 s ─▶ confirmed
//!             └────────┴─ connection lost, request cancelled ─▶ released
//! ```
//!
//! An answer may be lost on the way after the last byte was given to the system. Then the connection breaks, and the grant stays in use
//! without being confirmed: its machine can be decommissioned, which releases it.
//!
//! The length of the body is not announced, so that the server asks for its end after the text. Before the end the body waits once, and the
//! server flushes what it has: a connection that was closed fails there.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame};
use runtime::serve::ConnectionEnd;
use tinwright::address::v1 as addr;
use tokio::runtime::Handle;

use crate::ClientChannel;

/// The time after which the platform has an answer, if its connection did not end. The gateway ends those whose peer's system acknowledges
/// nothing for a shorter time.
const RECEIVED_AFTER: Duration = Duration::from_secs(10);
/// Timeout of all attempts to confirm a received grant.
const CONFIRM_TIME: Duration = Duration::from_secs(10 * 60);
/// The time between two attempts, which doubles.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// A grant that the platform does not know yet. Drop releases it, unless a repeated call may have got it, too.
#[derive(Debug)]
pub(super) struct Unknown {
    grants: Option<ClientChannel>,
    id: String,
    has_key: bool,
}

impl Unknown {
    /// The grant, which was just created.
    pub(super) fn new(grants: ClientChannel, grant: &addr::Grant) -> Self {
        Self { grants: Some(grants), id: grant.id.clone(), has_key: !grant.key.is_empty() }
    }

    /// Confirms the grant later, because its answer was sent over a connection with this end.
    fn sent(&mut self, end: Option<ConnectionEnd>) {
        let (Some(grants), Ok(runtime)) = (self.grants.take(), Handle::try_current()) else {
            return;
        };
        let (Some(end), id) = (end, self.id.clone()) else { return };
        runtime.spawn(async move {
            match tokio::time::timeout(RECEIVED_AFTER, end.reached()).await {
                Ok(()) => tracing::info!(grant = id, "not confirmed: its connection has ended"),
                Err(_) => confirm(grants, id).await,
            }
        });
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        let (Some(grants), Ok(runtime)) = (self.grants.take(), Handle::try_current()) else {
            return;
        };
        if self.has_key {
            return;
        }
        let id = std::mem::take(&mut self.id);
        runtime.spawn(async move {
            let request = addr::ReleaseGrantRequest { id: id.clone(), revision: 0 };
            match runtime::call(grants, request).await {
                Ok(_) => tracing::info!(grant = id, "grant released: its answer was not sent"),
                // It is released with its machine.
                Err(error) => tracing::warn!(grant = id, error = error.message(), "not released"),
            }
        });
    }
}

async fn confirm(grants: ClientChannel, id: String) {
    let attempts = async {
        let mut delay = FIRST_DELAY;
        loop {
            let request = addr::ConfirmGrantRequest { id: id.clone(), use_only: false };
            match runtime::call(grants.clone(), request).await {
                Ok(_) => return Ok(()),
                Err(error) if is_temporary(error.code()) => tokio::time::sleep(delay).await,
                Err(error) => return Err(error.message().to_owned()),
            }
            delay = (delay * 2).min(MAX_DELAY);
        }
    };
    let confirmed = tokio::time::timeout(CONFIRM_TIME, attempts).await;
    if let Err(error) = confirmed.unwrap_or_else(|_| Err("no answer in time".into())) {
        // The platform may have released it already.
        tracing::info!(grant = id, error, "grant not confirmed");
    }
}

fn is_temporary(code: tonic::Code) -> bool {
    use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, Unavailable, Unknown};
    [Aborted, Cancelled, DeadlineExceeded, Unavailable, Unknown].contains(&code)
}

/// The answer.
#[derive(Debug)]
pub(super) struct Delivery {
    text: Option<Bytes>,
    is_flushed: bool,
    grant: Unknown,
    end: Option<ConnectionEnd>,
}

impl Delivery {
    /// An answer with the text, for a grant, over a connection with this end.
    pub(super) fn new(text: String, grant: Unknown, end: Option<ConnectionEnd>) -> Self {
        Self { text: Some(text.into()), is_flushed: false, grant, end }
    }
}

impl Body for Delivery {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(text) = self.text.take() {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        if !self.is_flushed {
            self.is_flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let end = self.end.take();
        self.grant.sent(end);
        Poll::Ready(None)
    }
}
