//! One tracing span and one count for every call.
//!
//! The outcome of a call whose answer is a stream is counted when the stream begins.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::Status;
use tower::{Layer, Service};
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
pub struct CallMetricsLayer {
    calls: Family<Call, Counter>,
    seconds: Histogram,
}

impl CallMetricsLayer {
    /// Registers the metrics in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let calls = Family::<Call, Counter>::default();
        registry.register("grpc_calls", "Calls, by outcome", calls.clone());
        let seconds = Histogram::new(exponential_buckets(0.000_1, 4.0, 10));
        registry.register("grpc_call_seconds", "Time to the first answer", seconds.clone());
        Self { calls, seconds }
    }

    fn count(&self, call: &str, code: tonic::Code, since: Instant) {
        // A path that is no call of ours is chosen by the peer: it must not become a label.
        let call = if access::audience(call).is_some() { call } else { "unknown" };
        let call = Call { call: call.to_owned(), code: format!("{code:?}") };
        self.calls.get_or_create(&call).inc();
        self.seconds
            .observe(Clock::system().monotonic().saturating_duration_since(since).as_secs_f64());
    }
}

impl<S> Layer<S> for CallMetricsLayer {
    type Service = CallMetrics<S>;

    fn layer(&self, inner: S) -> CallMetrics<S> {
        CallMetrics { inner, layer: Arc::new(self.clone()) }
    }
}

/// A service whose calls are counted.
#[derive(Clone, Debug)]
pub struct CallMetrics<S> {
    inner: S,
    layer: Arc<CallMetricsLayer>,
}

impl<S, B, T> Service<Request<B>> for CallMetrics<S>
where
    S: Service<Request<B>, Response = Response<T>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<T>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<T>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (layer, began) = (self.layer.clone(), Clock::system().monotonic());
        let call = request.uri().path().to_owned();
        let span = span(&call, request.extensions().get().copied());
        let answer = self.inner.call(request).instrument(span.clone());
        Box::pin(async move {
            let answer = answer.await?;
            // A call that fails at once carries its outcome in the headers (gRPC over HTTP/2, Trailers-Only).
            let status = Status::from_header_map(answer.headers());
            let code = status.map_or(tonic::Code::Ok, |status| status.code());
            span.in_scope(|| tracing::debug!(?code, elapsed = ?Clock::system().monotonic().saturating_duration_since(began), "answered"));
            layer.count(&call, code, began);
            Ok(answer)
        })
    }
}

fn span(call: &str, caller: Option<Caller>) -> Span {
    let span = tracing::info_span!("call", call, caller = field::Empty);
    if let Some(Caller(Some(role))) = caller {
        span.record("caller", field::display(role));
    }
    span
}
