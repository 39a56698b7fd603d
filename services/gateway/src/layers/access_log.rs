//! The access log: the id of each request, a line for each response, and metrics.
//!
//! | response | line |
//! |---|---|
//! | to a known client, a change or a failure | info |
//! | to a known client, another one: such requests are many | debug |
//! | to a stranger, a failure | info, one line a second for all strangers; the others at debug |
//! | to a stranger, a success | debug |
//!
//! A stranger is a client that has not authenticated itself. Everybody can be one, so what strangers send is cut, counted and limited.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use runtime::serve::ConnectionAddresses;
use runtime::telemetry::{LimitedLog, beginning};
use uuid::Uuid;

use super::{DoorName, LayerState};
use crate::authentication::RequestClient;

/// The header with the id of a request, which logs name. A client may choose it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a request's id.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// Maximum length of a path, and of a method, in a line.
const MAX_LOGGED_BYTES: usize = 256;

/// The limit on lines about strangers.
pub(super) type StrangersLog = LimitedLog;

macro_rules! answered {
    ($answer:ident, $level:ident, $strangers:expr) => {
        tracing::$level!(
            door = $answer.door,
            method = beginning($answer.method.as_str(), MAX_LOGGED_BYTES),
            path = beginning($answer.path, MAX_LOGGED_BYTES),
            status = $answer.status.as_u16(),
            caller = $answer.caller,
            remote = $answer.remote.map(tracing::field::display),
            request.id = $answer.id.to_str().unwrap_or_default(),
            elapsed = ?$answer.elapsed,
            strangers = $strangers,
            "answered"
        )
    };
}

/// The facts in a line.
struct Answer<'a> {
    door: &'static str,
    method: &'a Method,
    path: &'a str,
    status: StatusCode,
    caller: Option<&'a str>,
    remote: Option<SocketAddr>,
    id: &'a HeaderValue,
    elapsed: Duration,
}

impl Answer<'_> {
    /// Writes the line. At `now`, the limit on lines about strangers may lower its level.
    fn log(&self, strangers: &StrangersLog, now: Instant) {
        if is_plain_read(self.method, self.status) {
            return self.write_debug();
        }
        match self.caller {
            Some(_) => self.write_info(None),
            None if !is_failure(self.status) => self.write_debug(),
            None => match strangers.count(now) {
                None => self.write_debug(),
                counted => self.write_info(counted),
            },
        }
    }

    fn write_debug(&self) {
        answered!(self, debug, None::<u64>);
    }

    /// Writes a line with the number of failures of strangers since the last one, if it is one of them.
    fn write_info(&self, strangers: Option<u64>) {
        answered!(self, info, strangers);
    }
}

pub(super) async fn logged(
    State(shared): State<Arc<LayerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let clock = &shared.settings.clock;
    let began = clock.monotonic();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let remote = request.extensions().get::<ConnectionAddresses>().map(|peers| peers.remote);
    let client = RequestClient::default();
    request.extensions_mut().insert(client.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    let now = clock.monotonic();
    let elapsed = now.saturating_duration_since(began);
    let door = response.extensions().get::<DoorName>().map_or("none", |door| door.0);
    let status = response.status();
    shared.metrics.record(door, status.as_u16(), elapsed.as_secs_f64());
    let caller = client.get().map(|client| &**client.caller.subject());
    let answer =
        Answer { door, method: &method, path: &path, status, caller, remote, id: &id, elapsed };
    answer.log(&shared.strangers, now);
    response
}

/// True if the request changed nothing and did not fail: such requests are many.
pub(super) fn is_plain_read(method: &Method, status: StatusCode) -> bool {
    method.is_safe() && !is_failure(status)
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Returns the id that the client chose, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_id = |value: &&HeaderValue| {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        (1..=MAX_REQUEST_ID_BYTES).contains(&value.len()) && value.as_bytes().iter().all(allowed)
    };
    let chosen = headers.get(REQUEST_ID).filter(is_id).cloned();
    chosen.unwrap_or_else(|| {
        HeaderValue::from_str(&Uuid::now_v7().to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("none"))
    })
}
