//! Calls of any program of ours, by the descriptors that its own reflection returns.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::{Stream, stream};
use prost_reflect::prost::Message as _;
use prost_reflect::prost::bytes::Bytes;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use runtime::{Caller, Channel};
use serde_json::Value;
use tinwright::client::BytesCodec;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};
use tonic_reflection::pb::v1 as reflection;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::recording::RecordedCall;
use crate::process::{Process, soon};

/// A client of a program. It records its calls.
pub(crate) struct Client<'a> {
    process: &'a Process,
    /// Connections by caller.
    channels: RefCell<BTreeMap<String, Channel>>,
    /// The contract of the program.
    pub(crate) pool: DescriptorPool,
    pub(crate) calls: RefCell<Vec<RecordedCall>>,
}

impl<'a> Client<'a> {
    pub(crate) async fn of(process: &'a Process) -> Self {
        let pool = described(process.channel().await).await;
        Self { process, channels: RefCell::default(), pool, calls: RefCell::default() }
    }

    async fn channel(&self, caller: &Caller) -> Channel {
        let name = caller.to_string();
        let open = self.channels.borrow().get(&name).cloned();
        match open {
            Some(open) => open,
            None => {
                let new = self.process.channel_as(self.process, caller).await;
                self.channels.borrow_mut().insert(name, new.clone());
                new
            }
        }
    }

    /// Makes the call `name` as `caller`, with the request that `json` spells. Records it, and
    /// returns the only response, or the last one.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        name: &str,
        json: Value,
    ) -> Result<Value, Status> {
        let method = method(&self.pool, name);
        let request = encoded(&method.input(), json);
        let responses = self.responses(caller, &method, request.clone()).await?;
        let last = responses.last().map(|bytes| decoded(&method.output(), bytes));
        self.record(caller, &method, vec![request], responses);
        Ok(last.unwrap_or_default())
    }

    /// Returns all responses to `request`; those of a watch until it is synced.
    pub(crate) async fn responses(
        &self,
        caller: &Caller,
        method: &MethodDescriptor,
        request: Bytes,
    ) -> Result<Vec<Bytes>, Status> {
        let mut begun = self.begin(caller, method, stream::iter([request])).await?;
        let mut responses = Vec::new();
        while let Some(response) = soon(begun.message()).await? {
            let is_synced = !decoded(&method.output(), &response)["synced"].is_null();
            responses.push(response);
            if is_synced {
                break;
            }
        }
        Ok(responses)
    }

    /// Begins a call whose requests are a stream.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        method: &MethodDescriptor,
        requests: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Streaming<Bytes>, Status> {
        let mut grpc = Grpc::new(self.channel(caller).await);
        grpc.ready().await.unwrap();
        let path = format!("/{}", path(method)).parse().unwrap();
        let begun = grpc.streaming(Request::new(requests), path, BytesCodec);
        Ok(soon(begun).await?.into_inner())
    }

    pub(crate) fn record(
        &self,
        caller: &Caller,
        method: &MethodDescriptor,
        requests: Vec<Bytes>,
        responses: Vec<Bytes>,
    ) {
        let (path, caller) = (path(method), caller.to_string());
        self.calls.borrow_mut().push(RecordedCall { path, caller, requests, responses });
    }
}

/// Returns the path of a call without its first slash.
pub(crate) fn path(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// Returns every call of `pool`.
pub(crate) fn methods(pool: &DescriptorPool) -> impl Iterator<Item = MethodDescriptor> {
    let services = pool.services().collect::<Vec<_>>().into_iter();
    services.flat_map(|service| service.methods().collect::<Vec<_>>())
}

/// Returns the call whose path ends with `name`, such as `PowerService/CreateBmc`.
pub(crate) fn method(pool: &DescriptorPool, name: &str) -> MethodDescriptor {
    let is_named = |path: &str| path.strip_suffix(name).is_some_and(|it| it.ends_with(['.', '/']));
    let found = methods(pool).find(|it| path(it) == name || is_named(&path(it)));
    found.unwrap_or_else(|| panic!("no call {name}"))
}

/// Returns the message that `json` spells.
pub(crate) fn encoded(message: &MessageDescriptor, json: Value) -> Bytes {
    let read = DynamicMessage::deserialize(message.clone(), json.clone());
    let read = read.unwrap_or_else(|error| panic!("{}: {error}: {json}", message.full_name()));
    read.encode_to_vec().into()
}

/// Returns the message in `bytes` as JSON. Unknown fields are an error.
pub(crate) fn decoded(message: &MessageDescriptor, bytes: &[u8]) -> Value {
    let read = DynamicMessage::decode(message.clone(), bytes);
    let read = read.unwrap_or_else(|error| panic!("{}: {error}", message.full_name()));
    let unknown: Vec<_> = read.unknown_fields().map(|field| field.number()).collect();
    assert!(unknown.is_empty(), "{} has no fields {unknown:?}", message.full_name());
    spelled(&read)
}

/// Returns `message` as JSON, with the names of fields as in the contract.
pub(crate) fn spelled(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

/// Returns the contract of the program behind `channel`, as its reflection describes it.
async fn described(channel: Channel) -> DescriptorPool {
    let mut client = ServerReflectionClient::new(channel);
    let ask = async |client: &mut ServerReflectionClient<Channel>, message| {
        let message_request = Some(message);
        let request = reflection::ServerReflectionRequest { message_request, ..Default::default() };
        let responses = client.server_reflection_info(stream::iter([request])).await.unwrap();
        let response = responses.into_inner().message().await.unwrap().unwrap();
        response.message_response.unwrap()
    };
    let list = ask(&mut client, MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(list) = list else { panic!("{list:?}") };
    let ours = list.service.into_iter().filter(|it| it.name.starts_with("tinwright."));
    let mut wanted: Vec<_> =
        ours.map(|service| MessageRequest::FileContainingSymbol(service.name)).collect();
    let (mut files, mut names) = (Vec::new(), BTreeSet::new());
    while let Some(next) = wanted.pop() {
        let MessageResponse::FileDescriptorResponse(found) = ask(&mut client, next).await else {
            panic!("no file");
        };
        for bytes in found.file_descriptor_proto {
            let file = FileDescriptorProto::decode(bytes.as_slice()).unwrap();
            if names.insert(file.name().to_owned()) {
                let needed = file.dependency.iter().filter(|it| !names.contains(*it));
                wanted.extend(needed.cloned().map(MessageRequest::FileByFilename));
                files.push(file);
            }
        }
    }
    DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file: files }).unwrap()
}
