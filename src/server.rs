//! Code shared by the servers of all services.
//!
//! Messages are decoded and encoded here; below, all calls with one request are the same call with
//! bytes.

use std::convert::Infallible;
use std::pin::Pin;
pub use std::sync::Arc;
pub use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::BoxStream;
use prost::Message;
pub use tonic::body::Body;
use tonic::codec::EnabledCompressionEncodings;
pub use tonic::codegen::Service;
pub use tonic::codegen::tokio_stream::Stream;
pub use tonic::server::NamedService;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
pub use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::client::{BytesCodec, decode};

/// The response of a server to a call.
pub type Answer = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;
type Handled<T> = BoxFuture<'static, Result<Response<T>, Status>>;
type Handler<T> = Box<dyn FnOnce(Request<Bytes>) -> Handled<T> + Send>;

/// Limits of the sizes of messages, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Of requests; 4 MiB if it is not set.
    pub decoding: Option<usize>,
    /// Of responses; none if it is not set.
    pub encoding: Option<usize>,
}

/// Answers a call with one response.
pub fn unary<Q, S, F>(
    limits: Limits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<Q>) -> F + Send + 'static,
) -> Answer
where
    Q: Message + Default + 'static,
    S: Message + 'static,
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
{
    let handler = move |request| -> Handled<Bytes> {
        let request = match decode_request(request) {
            Ok(request) => request,
            Err(status) => return async move { Err(status) }.boxed(),
        };
        let response = handle(request);
        async move { Ok(response.await?.map(|message| message.encode_to_vec().into())) }.boxed()
    };
    unary_bytes(limits, request, Box::new(handler))
}

/// Answers a call whose responses are a stream.
pub fn server_streaming<Q, S, R, F>(
    limits: Limits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<Q>) -> F + Send + 'static,
) -> Answer
where
    Q: Message + Default + 'static,
    S: Message + 'static,
    R: Stream<Item = Result<S, Status>> + Send + 'static,
    F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
{
    let encoded = |message: Result<S, Status>| message.map(|it| Bytes::from(it.encode_to_vec()));
    let handler = move |request| -> Handled<Responses> {
        let request = match decode_request(request) {
            Ok(request) => request,
            Err(status) => return async move { Err(status) }.boxed(),
        };
        let response = handle(request);
        async move { Ok(response.await?.map(|messages| Responses(messages.map(encoded).boxed()))) }
            .boxed()
    };
    stream_bytes(limits, request, Box::new(handler))
}

/// Answers a call with streams in both directions.
pub fn streaming<Q, S, R, F>(
    limits: Limits,
    request: http::Request<Body>,
    handle: impl FnOnce(Request<Streaming<Q>>) -> F + Send + 'static,
) -> Answer
where
    Q: Message + Default + Send + 'static,
    S: Message + Send + 'static,
    R: Stream<Item = Result<S, Status>> + Send + 'static,
    F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
{
    let service = BothStreams(Some(handle));
    let codec = ProstCodec::<S, Q>::default();
    async move { Ok(grpc(codec, limits).streaming(service, request).await) }.boxed()
}

/// Answers a call that the service does not have.
pub fn unimplemented() -> Answer {
    std::future::ready(Ok(Status::unimplemented("").into_http())).boxed()
}

fn unary_bytes(limits: Limits, request: http::Request<Body>, handler: Handler<Bytes>) -> Answer {
    let service = OneRequest(Some(handler));
    async move { Ok(grpc(BytesCodec, limits).unary(service, request).await) }.boxed()
}

fn stream_bytes(
    limits: Limits,
    request: http::Request<Body>,
    handler: Handler<Responses>,
) -> Answer {
    let service = OneRequest(Some(handler));
    async move { Ok(grpc(BytesCodec, limits).server_streaming(service, request).await) }.boxed()
}

fn grpc<C: tonic::codec::Codec>(codec: C, limits: Limits) -> Grpc<C> {
    let none = EnabledCompressionEncodings::default();
    Grpc::new(codec)
        .apply_compression_config(none, none)
        .apply_max_message_size_config(limits.decoding, limits.encoding)
}

fn decode_request<M: Message + Default>(request: Request<Bytes>) -> Result<Request<M>, Status> {
    let (metadata, extensions, bytes) = request.into_parts();
    Ok(Request::from_parts(metadata, extensions, decode(&bytes)?))
}

/// The responses of a stream, encoded.
struct Responses(BoxStream<'static, Result<Bytes, Status>>);

impl Stream for Responses {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// A handler of one request. It is called once.
struct OneRequest<T>(Option<Handler<T>>);

impl<T: 'static> OneRequest<T> {
    fn handle(&mut self, request: Request<Bytes>) -> Handled<T> {
        match self.0.take() {
            Some(handler) => handler(request),
            None => async { Err(Status::internal("a second request")) }.boxed(),
        }
    }
}

impl UnaryService<Bytes> for OneRequest<Bytes> {
    type Response = Bytes;
    type Future = Handled<Bytes>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.handle(request)
    }
}

impl ServerStreamingService<Bytes> for OneRequest<Responses> {
    type Response = Bytes;
    type ResponseStream = Responses;
    type Future = Handled<Responses>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.handle(request)
    }
}

/// A handler of a stream of requests. It is called once.
struct BothStreams<H>(Option<H>);

impl<Q, S, R, F, H> StreamingService<Q> for BothStreams<H>
where
    S: 'static,
    R: Stream<Item = Result<S, Status>> + Send + 'static,
    F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    H: FnOnce(Request<Streaming<Q>>) -> F,
{
    type Response = S;
    type ResponseStream = R;
    type Future = Handled<R>;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Self::Future {
        match self.0.take() {
            Some(handle) => handle(request).boxed(),
            None => async { Err(Status::internal("a second request")) }.boxed(),
        }
    }
}

/// Implements the server of a service, whose trait has a function for each path.
macro_rules! server {
    ($service:ident, $server:ident, $name:literal, $($path:literal => $kind:ident $call:ident,)*) => {
        impl<T> $server<T> {
            /// A server of `service`.
            pub fn new(service: T) -> Self {
                Self::from_arc(Arc::new(service))
            }

            /// A server of `service`.
            pub fn from_arc(service: Arc<T>) -> Self {
                Self(service, Limits::default())
            }

            /// Limits the size of a request, in bytes. The default is 4 MiB.
            #[must_use]
            pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
                self.1.decoding = Some(limit);
                self
            }

            /// Limits the size of a response, in bytes. There is no limit by default.
            #[must_use]
            pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
                self.1.encoding = Some(limit);
                self
            }
        }

        impl<T> Clone for $server<T> {
            fn clone(&self) -> Self {
                Self(Arc::clone(&self.0), self.1)
            }
        }

        impl<T> NamedService for $server<T> {
            const NAME: &'static str = $name;
        }

        impl<T: $service> Service<http::Request<Body>> for $server<T> {
            type Response = http::Response<Body>;
            type Error = std::convert::Infallible;
            type Future = Answer;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Answer {
                let (service, limits) = (Arc::clone(&self.0), self.1);
                match request.uri().path() {
                    $($path => $kind(limits, request, move |it| async move {
                        service.$call(it).await
                    }),)*
                    _ => unimplemented(),
                }
            }
        }
    };
}

pub(crate) use server;
