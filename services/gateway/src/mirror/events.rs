//! Streams as server-sent events (HTML Standard §9.2).
//!
//! ```text
//! event: hardware             the case of the message's oneof, if it has one
//! data: {"hardware": {…}}     the message
//!
//! event: error                the stream ends with an error
//! data: {"code": …}           its problem document
//! ```

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderName, HeaderValue};
use prost_reflect::MessageDescriptor;
use runtime::Clock;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::call::Messages;
use super::transcode::Transcoder;
use crate::errors::Problem;

/// The interval of comments that keep the connection open, and show that the client is there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Keeps proxies from collecting events.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The ends of a stream.
pub(super) struct Limits {
    /// The gateway stops.
    pub(super) stop: CancellationToken,
    /// The end of the client's credential, by this clock; none if it has none.
    pub(super) end: Option<(Clock, SystemTime)>,
}

/// Returns the response with the messages of the type `output` as events, within `limits`.
pub(super) fn response(
    output: MessageDescriptor,
    messages: Messages,
    transcoder: Transcoder,
    limits: Limits,
) -> Response {
    let events = Events { output, messages, transcoder, limits };
    let events = stream::unfold(Some(events), |events| async {
        let mut events = events?;
        Some(match events.next().await? {
            Ok(event) => (Ok::<_, Infallible>(event), Some(events)),
            // The last event.
            Err(status) => (Ok(error(status)), None),
        })
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    let mut response = Sse::new(events.boxed()).keep_alive(keep_alive).into_response();
    response.headers_mut().extend([NO_BUFFERING]);
    response
}

struct Events {
    output: MessageDescriptor,
    messages: Messages,
    transcoder: Transcoder,
    limits: Limits,
}

impl Events {
    /// Returns the next event; none at the end.
    async fn next(&mut self) -> Option<Result<Event, Status>> {
        let Limits { stop, end } = &self.limits;
        let expired = async {
            match end {
                Some((clock, end)) => clock.sleep_until(*end).await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => {
                return Some(Err(Status::unavailable("the server stops: open it again")));
            }
            () = expired => {
                return Some(Err(Status::unauthenticated("the credential has expired")));
            }
            next = self.messages.message() => next,
        };
        let bytes = next.transpose()?;
        Some(bytes.and_then(|bytes| self.event(&bytes)))
    }

    fn event(&self, bytes: &[u8]) -> Result<Event, Status> {
        let json = self.transcoder.json(&self.output, bytes)?;
        let json =
            String::from_utf8(json).map_err(|_| Status::internal("the event is not text"))?;
        let event = match self.transcoder.case(&self.output, bytes) {
            Some(case) => Event::default().event(case),
            None => Event::default(),
        };
        Ok(event.data(json))
    }
}

fn error(status: Status) -> Event {
    Event::default().event("error").data(Problem::from(status).document().to_string())
}
