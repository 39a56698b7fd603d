//! Any call of the contract, made by its descriptor.

use std::sync::LazyLock;
use std::time::Duration;

use prost::Message as _;
use prost::bytes::{Buf, BufMut as _};
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use runtime::forwarding;
use runtime::{Caller, Channel};
use serde_json::Value;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{BinaryMetadataKey, BinaryMetadataValue};
use tonic::{Request, Status, Streaming};

/// The limit of what must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// The contract.
pub static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap());

/// Returns every call of the contract.
pub fn methods() -> Vec<MethodDescriptor> {
    POOL.services().flat_map(|it| it.methods().collect::<Vec<_>>()).collect()
}

/// Returns the path of a call.
pub fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// Returns the call whose path ends with `name`, such as `PowerService/CreateBmc`.
pub fn method(name: &str) -> MethodDescriptor {
    let found = methods().into_iter().find(|method| path(method).ends_with(&format!(".{name}")));
    found.unwrap_or_else(|| panic!("no call {name}"))
}

/// Returns the request of `method` that `json` spells.
pub fn request(method: &MethodDescriptor, json: Value) -> DynamicMessage {
    let read = DynamicMessage::deserialize(method.input(), json.clone());
    read.unwrap_or_else(|error| panic!("{}: {error}: {json}", path(method)))
}

/// Returns `message` as JSON.
pub fn json(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

/// A client of any service. Calls may be forwarded for another caller.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    forwarded: Option<Caller>,
}

impl Client {
    /// A client that calls for itself.
    pub fn new(channel: Channel) -> Self {
        Self { channel, forwarded: None }
    }

    /// Sends `caller` as the one whose calls are forwarded.
    pub fn forwarding(self, caller: Caller) -> Self {
        Self { forwarded: Some(caller), ..self }
    }

    /// Makes the call; resolves once its response begins.
    pub async fn begin(
        &self,
        method: &MethodDescriptor,
        message: DynamicMessage,
    ) -> Result<Streaming<DynamicMessage>, Status> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let mut request = Request::new(tokio_stream::once(message));
        if let Some(caller) = &self.forwarded {
            let value = BinaryMetadataValue::from_bytes(caller.to_string().as_bytes());
            request
                .metadata_mut()
                .insert_bin(BinaryMetadataKey::from_static(forwarding::KEY), value);
        }
        let path = path(method).parse().unwrap();
        let begun = grpc.streaming(request, path, DynamicCodec(method.output()));
        let begun = tokio::time::timeout(SOON, begun).await;
        begun
            .unwrap_or_else(|_| panic!("no response: {}", self::path(method)))
            .map(tonic::Response::into_inner)
    }

    /// Makes the call `name` with the request `json`. Returns its only response, or the first one.
    pub async fn call(&self, name: &str, json: Value) -> Result<Value, Status> {
        let method = method(name);
        let mut responses = self.begin(&method, request(&method, json)).await?;
        let first = tokio::time::timeout(SOON, responses.message()).await.unwrap()?.unwrap();
        if !method.is_server_streaming() {
            assert!(responses.message().await?.is_none(), "one response");
        }
        Ok(self::json(&first))
    }
}

/// Encodes requests, and decodes responses of one type.
struct DynamicCodec(MessageDescriptor);

struct DynamicEncoder;

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicEncoder;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        DynamicEncoder
    }

    fn decoder(&mut self) -> Self {
        Self(self.0.clone())
    }
}

impl Encoder for DynamicEncoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item.encode_to_vec());
        Ok(())
    }
}

impl Decoder for DynamicCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let decoded = DynamicMessage::decode(self.0.clone(), bytes);
        decoded.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
