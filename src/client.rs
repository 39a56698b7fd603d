//! Code shared by the clients of all services.
//!
//! Messages are encoded and decoded here; below, all calls with one response are the same call with
//! bytes.

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::body::Body;
pub use tonic::client::Grpc;
use tonic::client::GrpcService;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
pub use tonic::{IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// A call, by its request.
pub trait Call: Message + 'static {
    /// The response, or each response of a stream.
    type Response: Message + Default + 'static;
    /// The path in HTTP: `/package.Service/Method`.
    const PATH: &'static str;
}

/// A channel on which a client makes its calls.
pub trait GrpcClient: GrpcService<Body, Error: Into<Error>, ResponseBody: ResponseBody> {}

impl<T: GrpcService<Body, Error: Into<Error>, ResponseBody: ResponseBody>> GrpcClient for T {}

/// The body of a response.
pub trait ResponseBody:
    http_body::Body<Data = Bytes, Error: Into<Error> + Send> + Send + 'static
{
}

impl<B: http_body::Body<Data = Bytes, Error: Into<Error> + Send> + Send + 'static> ResponseBody
    for B
{
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Makes a call with one response.
///
/// Errors are the server's, and INTERNAL for a response that is no message of its type. UNKNOWN if
/// the channel is not ready.
pub async fn unary<R: Call>(
    client: &mut Grpc<impl GrpcClient>,
    request: impl IntoRequest<R>,
) -> Result<Response<R::Response>, Status> {
    let request = request.into_request().map(|message| message.encode_to_vec().into());
    decode_response(unary_bytes(client, request, R::PATH).await?)
}

/// Makes a call whose responses are a stream. Resolves once the server begins it.
pub async fn server_streaming<R: Call>(
    client: &mut Grpc<impl GrpcClient>,
    request: impl IntoRequest<R>,
) -> Result<Response<Streaming<R::Response>>, Status> {
    ready(client).await?;
    let codec = ProstCodec::<R, R::Response>::default();
    client.server_streaming(request.into_request(), PathAndQuery::from_static(R::PATH), codec).await
}

/// Makes a call with streams in both directions.
pub async fn streaming<R: Call>(
    client: &mut Grpc<impl GrpcClient>,
    request: impl IntoStreamingRequest<Message = R>,
) -> Result<Response<Streaming<R::Response>>, Status> {
    ready(client).await?;
    let codec = ProstCodec::<R, R::Response>::default();
    let request = request.into_streaming_request();
    client.streaming(request, PathAndQuery::from_static(R::PATH), codec).await
}

async fn unary_bytes(
    client: &mut Grpc<impl GrpcClient>,
    request: Request<Bytes>,
    path: &'static str,
) -> Result<Response<Bytes>, Status> {
    ready(client).await?;
    client.unary(request, PathAndQuery::from_static(path), BytesCodec).await
}

async fn ready(client: &mut Grpc<impl GrpcClient>) -> Result<(), Status> {
    let ready = client.ready().await;
    ready.map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))
}

fn decode_response<M: Message + Default>(response: Response<Bytes>) -> Result<Response<M>, Status> {
    let (metadata, bytes, extensions) = response.into_parts();
    Ok(Response::from_parts(metadata, decode(&bytes)?, extensions))
}

/// Decodes a message of a call.
pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// Leaves messages as they are: encoded.
#[derive(Clone, Copy, Debug)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Implements what the clients of all services have, besides their calls.
macro_rules! client {
    ($client:ident) => {
        impl<T: GrpcClient> $client<T> {
            /// A client that makes its calls on `channel`.
            pub fn new(channel: T) -> Self {
                Self(Grpc::new(channel))
            }

            /// Limits the size of a response, in bytes. The default is 4 MiB.
            #[must_use]
            pub fn max_decoding_message_size(self, limit: usize) -> Self {
                Self(self.0.max_decoding_message_size(limit))
            }

            /// Limits the size of a request, in bytes. There is no limit by default.
            #[must_use]
            pub fn max_encoding_message_size(self, limit: usize) -> Self {
                Self(self.0.max_encoding_message_size(limit))
            }
        }
    };
}

pub(crate) use client;
