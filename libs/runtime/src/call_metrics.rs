//! One tracing span for each call, and the metrics that are usual for gRPC servers.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::{Code, Status};
use tracing::{Instrument as _, Span, field};

use crate::access;
use crate::clock::Clock;
use crate::forwarding;
use crate::identity::Caller;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    grpc_service: &'static str,
    grpc_method: &'static str,
}

impl Method {
    /// True if the call streams changes until its caller leaves.
    fn is_watch(self) -> bool {
        self.grpc_method.starts_with("Watch")
    }
}

/// The call and its status code.
type Handled = (Method, [(&'static str, Cow<'static, str>); 1]);

/// Counts calls by status code, and measures how long they take. A call with a stream ends with the stream.
#[derive(Clone, Debug)]
pub struct CallMetrics(Arc<Metrics>);

#[derive(Debug)]
struct Metrics {
    handled: Family<Handled, Counter>,
    seconds: Family<Method, Histogram, fn() -> Histogram>,
    /// Open streams of watches.
    watchers: Family<Method, Gauge>,
}

impl CallMetrics {
    /// Registers the metrics in `registry`, which should add no prefix: other gRPC servers use the same names.
    pub fn new(registry: &mut Registry) -> Self {
        let handled = Family::default();
        let help = "Calls that have ended, by call and status code";
        registry.register("grpc_server_handled", help, handled.clone());
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_1, 4.0, 10));
        let seconds = Family::new_with_constructor(histogram);
        registry.register(
            "grpc_server_handling_seconds",
            "Duration of calls, in seconds, by call",
            seconds.clone(),
        );
        let watchers = Family::default();
        registry.register("tinwright_watchers", "Open watches, by call", watchers.clone());
        Self(Arc::new(Metrics { handled, seconds, watchers }))
    }

    /// Begins to measure the call `path`.
    fn begin(&self, path: &str) -> RunningCall {
        // The peer chooses a path that is not in the table of calls: such a path must not become a label.
        let known = access::known_path(path).and_then(|known| known.strip_prefix('/'));
        let (grpc_service, grpc_method) =
            known.and_then(|known| known.split_once('/')).unwrap_or(("unknown", "unknown"));
        let method = Method { grpc_service, grpc_method };
        if method.is_watch() {
            self.0.watchers.get_or_create(&method).inc();
        }
        RunningCall {
            metrics: self.0.clone(),
            method,
            began: Clock::system().monotonic(),
            is_counted: false,
        }
    }
}

/// A call that has not ended. Dropped before its end, it counts as cancelled.
#[derive(Debug)]
struct RunningCall {
    metrics: Arc<Metrics>,
    method: Method,
    began: Instant,
    is_counted: bool,
}

impl RunningCall {
    fn end(mut self, code: Code) {
        self.count(code);
    }

    fn count(&mut self, code: Code) {
        if std::mem::replace(&mut self.is_counted, true) {
            return;
        }
        let elapsed = Clock::system().monotonic().saturating_duration_since(self.began);
        let handled = (self.method, [("grpc_code", code_name(code))]);
        self.metrics.handled.get_or_create(&handled).inc();
        self.metrics.seconds.get_or_create(&self.method).observe(elapsed.as_secs_f64());
        if self.method.is_watch() {
            self.metrics.watchers.get_or_create(&self.method).dec();
        }
        tracing::debug!(?code, seconds = elapsed.as_secs_f64(), "call ended");
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.count(Code::Cancelled);
    }
}

/// The name of a code in the metrics of other gRPC servers.
fn code_name(code: Code) -> Cow<'static, str> {
    if code == Code::Ok {
        "OK".into()
    } else if code == Code::Cancelled {
        "Canceled".into()
    } else {
        format!("{code:?}").into()
    }
}

/// The body of a response, which ends the call with the status in its trailers.
struct CountedBody {
    body: Body,
    call: Option<(RunningCall, Span)>,
    /// The code of a response that ends without a status.
    end: Code,
}

impl CountedBody {
    fn end(&mut self, code: Code) {
        if let Some((call, span)) = self.call.take() {
            span.in_scope(|| call.end(code));
        }
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let status = frame.trailers_ref().and_then(Status::from_header_map);
                if let Some(status) = status {
                    self.end(status.code());
                }
            }
            Some(Err(_)) => self.end(Code::Unknown),
            None => {
                let code = self.end;
                self.end(code);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Makes a call with `next`, and counts it.
pub async fn record<F: Future<Output = Response>>(
    metrics: &CallMetrics,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let call = metrics.begin(access::call_path(&request));
    let span = span(&request);
    // Without a status the client of a call reports this code.
    let end = if access::is_http(&request) { Code::Ok } else { Code::Unknown };
    let response = next(request).instrument(span.clone()).await;
    // A call that fails at once has its status in the headers (gRPC over HTTP/2, Trailers-Only).
    match Status::from_header_map(response.headers()) {
        Some(status) => {
            span.in_scope(|| call.end(status.code()));
            response
        }
        None => response.map(|body| Body::new(CountedBody { body, call: Some((call, span)), end })),
    }
}

/// Returns the span of the call. In a forwarded call `via` is the sender, and access control adds the caller.
fn span(request: &Request) -> Span {
    let call = access::call_path(request);
    let span = tracing::info_span!("call", call, caller = field::Empty, via = field::Empty);
    if let Some(caller) = request.extensions().get::<Caller>() {
        let is_forwarded = request.headers().contains_key(forwarding::KEY);
        span.record(if is_forwarded { "via" } else { "caller" }, field::display(caller));
    }
    span
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use http::HeaderMap;
    use prometheus_client::encoding::text::encode;
    use tower::ServiceExt as _;

    use super::*;
    use crate::test_layer::layered;

    const WATCH: &str = "/tinwright.hardware.v1.HardwareService/WatchHardware";

    /// A response with one frame, and then these trailers, or none.
    struct Stream(Vec<Frame<Bytes>>);

    impl HttpBody for Stream {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop().map(Ok))
        }
    }

    /// Makes the call `path`, which is answered with `frames`, and returns its body and the metrics.
    async fn call(path: &str, frames: Vec<Frame<Bytes>>) -> (Body, Registry) {
        let mut registry = Registry::default();
        let metrics = CallMetrics::new(&mut registry);
        let frames = Arc::new(std::sync::Mutex::new(Some(frames)));
        let handler = post(async move || {
            Response::new(Body::new(Stream(frames.lock().unwrap().take().unwrap())))
        });
        let app = Router::new().fallback(handler);
        let app =
            layered(app, metrics, async move |it, request, next| record(&it, request, next).await);
        let request = Request::post(path).body(Body::empty()).unwrap();
        (app.oneshot(request).await.unwrap().into_body(), registry)
    }

    fn page(registry: &Registry) -> String {
        let mut page = String::new();
        encode(&mut page, registry).unwrap();
        page
    }

    fn trailers(code: &str) -> Frame<Bytes> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        Frame::trailers(trailers)
    }

    async fn read(body: Body) {
        let mut body = std::pin::pin!(body);
        while std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await.is_some() {}
    }

    #[tokio::test]
    async fn a_stream_is_counted_at_its_end_with_the_code_of_its_trailers() {
        let data = Frame::data(Bytes::from_static(b"a"));
        let (body, registry) = call(WATCH, vec![trailers("11"), data]).await;
        assert!(!page(&registry).contains("handled_total{"));
        read(body).await;
        let line = "grpc_server_handled_total{grpc_service=\"tinwright.hardware.v1.HardwareService\",grpc_method=\"WatchHardware\",grpc_code=\"OutOfRange\"} 1";
        assert!(page(&registry).contains(line), "{}", page(&registry));
        assert!(page(&registry).contains("grpc_server_handling_seconds_count{"));
    }

    #[tokio::test]
    async fn a_stream_that_the_client_leaves_is_counted_as_cancelled() {
        let (body, registry) = call(WATCH, vec![trailers("0")]).await;
        let watchers = "tinwright_watchers{grpc_service=\"tinwright.hardware.v1.HardwareService\",grpc_method=\"WatchHardware\"}";
        assert!(page(&registry).contains(&format!("{watchers} 1\n")), "{}", page(&registry));
        drop(body);
        assert!(page(&registry).contains(&format!("{watchers} 0\n")), "{}", page(&registry));
        assert!(page(&registry).contains("grpc_code=\"Canceled\"} 1"), "{}", page(&registry));
    }

    #[tokio::test]
    async fn an_unknown_path_is_no_label() {
        let (body, registry) = call("/forged/path", vec![trailers("0")]).await;
        read(body).await;
        assert!(page(&registry).contains("grpc_method=\"unknown\",grpc_code=\"OK\"} 1"));
        assert!(!page(&registry).contains("forged"));
    }
}
