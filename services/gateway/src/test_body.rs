//! The body of a gRPC response, for services in tests.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};

/// Returns the body with one message and the status OK.
pub(crate) fn of_message(
    message: Bytes,
) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    let trailers = HeaderMap::from_iter([status]);
    let frames = [Frame::data(Bytes::from(frame)), Frame::trailers(trailers)];
    StreamBody::new(stream::iter(frames.map(Ok)))
}
