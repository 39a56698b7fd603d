//! The body of an answer whose grant is pending: it is attached once the answer was sent, and released if it could not be.
//!
//! ```text
//! text ─▶ flushed ─▶ end ─▶ attach
//!   └────────┴─ connection lost, request cancelled ─▶ release
//! ```
//!
//! The length of the body is not announced, so that the server asks for its end after the text. Before the end the body waits once, and the
//! server flushes what it has: a connection that was closed fails there.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tokio::runtime::Handle;

use crate::ClientChannel;

/// The longest time in which a grant of a sent answer is attached: then its pending time is over.
const ATTACH_TIME: Duration = Duration::from_secs(10 * 60);
/// The time between two attempts, which doubles.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// A grant of which the platform does not know yet. Drop releases it, if it was not known before.
#[derive(Debug)]
pub(super) struct Pending {
    grants: Option<GrantServiceClient<ClientChannel>>,
    grant: addr::Grant,
    instance: String,
}

impl Pending {
    /// The grant for an instance.
    pub(super) fn new(
        grants: GrantServiceClient<ClientChannel>,
        grant: &addr::Grant,
        instance: String,
    ) -> Self {
        Self { grants: Some(grants), grant: grant.clone(), instance }
    }

    /// Attaches the grant, in the background.
    fn attach(&mut self) {
        let Some(grants) = self.grants.take() else { return };
        let (grant, instance) = (self.grant.clone(), self.instance.clone());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(attach(grants, grant, instance));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(mut grants) = self.grants.take() else { return };
        if self.grant.state() != addr::GrantState::Pending {
            return;
        }
        let addr::Grant { id, revision, .. } = self.grant.clone();
        // At this revision only: a repeated call may have made the grant known meanwhile.
        let request = addr::ReleaseGrantRequest { id: id.clone(), revision };
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            match grants.release_grant(request).await {
                Ok(_) => tracing::info!(grant = id, "grant released: its answer was not sent"),
                // It ends by itself when its pending time is over.
                Err(error) => tracing::warn!(grant = id, error = error.message(), "not released"),
            }
        });
    }
}

async fn attach(
    mut grants: GrantServiceClient<ClientChannel>,
    grant: addr::Grant,
    instance_id: String,
) {
    let id = grant.id.clone();
    let is_block = !grant.block.ends_with("/32") && !grant.block.ends_with("/128");
    let attempts = async {
        let mut delay = FIRST_DELAY;
        loop {
            let done = if is_block {
                // Blocks are not attached: the platform routes them.
                let request = addr::ConfirmGrantRequest { id: id.clone() };
                grants.confirm_grant(request).await.map(|_| ())
            } else {
                let attachment = addr::Attachment {
                    instance_id: instance_id.clone(),
                    ..addr::Attachment::default()
                };
                let attachment = Some(attachment);
                let request = addr::AttachGrantRequest { id: id.clone(), attachment };
                grants.attach_grant(request).await.map(|_| ())
            };
            match done {
                Ok(()) => return Ok(()),
                Err(error) if is_temporary(error.code()) => tokio::time::sleep(delay).await,
                Err(error) => return Err(error.message().to_owned()),
            }
            delay = (delay * 2).min(MAX_DELAY);
        }
    };
    let attached = tokio::time::timeout(ATTACH_TIME, attempts).await;
    if let Err(error) = attached.unwrap_or_else(|_| Err("no answer in time".into())) {
        tracing::error!(grant = id, instance = instance_id, error, "granted address not attached");
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
    pending: Pending,
}

impl Delivery {
    /// An answer with the text, for a pending grant.
    pub(super) fn new(text: String, pending: Pending) -> Self {
        Self { text: Some(text.into()), is_flushed: false, pending }
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
        self.pending.attach();
        Poll::Ready(None)
    }
}
