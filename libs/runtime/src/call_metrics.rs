//! One tracing span and one count for every call.
//!
//! The outcome of a call with a stream as its response is counted when the stream begins.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::Status;
use tracing::{Instrument as _, Span, field};

use crate::access;
use crate::clock::Clock;
use crate::identity::Caller;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    call: String,
    code: String,
}

/// Counts calls by outcome, and measures how long they take.
#[derive(Clone, Debug)]
pub struct CallMetrics {
    calls: Family<Call, Counter>,
    seconds: Histogram,
}

impl CallMetrics {
    /// Registers the metrics in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let calls = Family::<Call, Counter>::default();
        registry.register("grpc_calls", "Calls, by outcome", calls.clone());
        let seconds = Histogram::new(exponential_buckets(0.000_1, 4.0, 10));
        registry.register("grpc_call_seconds", "Time to the first answer", seconds.clone());
        Self { calls, seconds }
    }

    fn count(&self, call: &str, code: tonic::Code, elapsed: Duration) {
        // The peer chooses a path that is not in the table of calls: such a path must not become a label.
        let call = if access::audience(call).is_some() { call } else { "unknown" };
        let call = Call { call: call.to_owned(), code: format!("{code:?}") };
        self.calls.get_or_create(&call).inc();
        self.seconds.observe(elapsed.as_secs_f64());
    }
}

/// Middleware that counts one call.
pub async fn record(State(metrics): State<CallMetrics>, request: Request, next: Next) -> Response {
    let began = Clock::system().monotonic();
    let call = request.uri().path().to_owned();
    let span = span(&call, request.extensions().get().copied());
    let response = next.run(request).instrument(span.clone()).await;
    // A call that fails at once carries its outcome in the headers (gRPC over HTTP/2, Trailers-Only).
    let status = Status::from_header_map(response.headers());
    let code = status.map_or(tonic::Code::Ok, |status| status.code());
    let elapsed = Clock::system().monotonic().saturating_duration_since(began);
    span.in_scope(|| tracing::debug!(?code, ?elapsed, "answered"));
    metrics.count(&call, code, elapsed);
    response
}

fn span(call: &str, caller: Option<Caller>) -> Span {
    let span = tracing::info_span!("call", call, caller = field::Empty);
    if let Some(Caller(Some(role))) = caller {
        span.record("caller", field::display(role));
    }
    span
}
