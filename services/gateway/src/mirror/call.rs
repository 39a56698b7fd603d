//! Calls by their descriptor: the request is a dynamic message, and a response stays as the bytes that the service sent.

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tinwright::client::BytesCodec;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};

use crate::ClientChannel;
use crate::routes::CallRoute;

/// The largest response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Messages of a stream, as they were sent.
pub(super) type Messages = Streaming<Bytes>;

/// Makes the call of `route`. Returns its response.
pub(super) async fn unary(
    channel: ClientChannel,
    route: &CallRoute,
    message: &DynamicMessage,
) -> Result<Bytes, Status> {
    let (mut grpc, path) = prepared(channel, route).await?;
    Ok(grpc.unary(encoded(message), path, BytesCodec).await?.into_inner())
}

/// Makes the call of `route`, a stream of responses. Resolves once the stream begins.
pub(super) async fn stream(
    channel: ClientChannel,
    route: &CallRoute,
    message: &DynamicMessage,
) -> Result<Messages, Status> {
    let (mut grpc, path) = prepared(channel, route).await?;
    Ok(grpc.server_streaming(encoded(message), path, BytesCodec).await?.into_inner())
}

async fn prepared(
    channel: ClientChannel,
    route: &CallRoute,
) -> Result<(Grpc<ClientChannel>, PathAndQuery), Status> {
    let path = PathAndQuery::from_maybe_shared(route.rpc());
    let path = path.map_err(|_| Status::internal("the call has no path"))?;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(format!("the service is not reachable: {error}")))?;
    Ok((grpc, path))
}

fn encoded(message: &DynamicMessage) -> Request<Bytes> {
    Request::new(message.encode_to_vec().into())
}
