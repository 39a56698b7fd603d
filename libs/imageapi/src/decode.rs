//! Requests of the ImageAPI as calls of the contract.

use http::{HeaderMap, Method};
use tinwright::node::v1::ImageCall;
use tinwright::node::v1::image_call::{
    Call as Message, DeleteContainer, DeleteObject, ListAttachments, ListContainers, ListMounts,
    SetContainerState,
};

use crate::convert::{
    attachment_kind, container_state, mount_kind, new_attachment, new_container, new_mount,
};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::operation::{Operation, find};
use crate::schema::ObjectSchema;
use crate::validate::Validator;
use crate::{headers, query, reader};

/// The longest body of a request, in bytes. A listener need not read more than one byte beyond.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// A request, without its body.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path below [`BASE_PATH`](crate::BASE_PATH), with a slash at its beginning.
    pub path: &'a str,
    /// The query without the question mark, as it is in the URL.
    pub query: Option<&'a str>,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// Switches of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecodeOptions {
    /// Accepts monitors of RBD images that have a port (`192.0.2.1:6789`) or are IPv6 addresses in brackets. The API description
    /// has IPv4 addresses without a port only.
    pub rbd_monitor_ports: bool,
}

/// A call, and the operation that it belongs to, which [`encode`](crate::encode()) needs for the response.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// The message.
    pub message: ImageCall,
}

/// Decodes a request. What only the node knows is left to it: objects that exist, their states, files, devices and modules.
///
/// # Errors
/// In the order of the checks: 404 unknown path, 405 method, 415 content type, 406 accepted types, 422 query, 400 body too large or
/// not JSON, 422 properties, 400 or 501 definitions.
pub fn decode(
    request: &Request<'_>,
    body: &[u8],
    options: DecodeOptions,
) -> Result<Call, ApiError> {
    let (path, route) = find(request.method, request.path)?;
    headers::check_content_type(request.headers, body)?;
    headers::check_accept(request.headers)?;
    let query = query::read(route.query, request.query.unwrap_or_default())?;
    let object = || read_body(body, path.object, options);
    let call = match route.operation {
        Operation::ListAttachments => Message::ListAttachments(list_attachments(query)),
        Operation::CreateAttachment => Message::CreateAttachment(new_attachment(object()?)?),
        Operation::DeleteAttachment => Message::DeleteAttachment(delete_object(query)),
        Operation::ListMounts => Message::ListMounts(list_mounts(query)),
        Operation::CreateMount => Message::CreateMount(new_mount(object()?)?),
        Operation::DeleteMount => Message::DeleteMount(delete_object(query)),
        Operation::ListContainers => Message::ListContainers(list_containers(query)),
        Operation::CreateContainer => Message::CreateContainer(new_container(object()?)?),
        Operation::DeleteContainer => Message::DeleteContainer(delete_container(query)?),
        Operation::SetContainerState => Message::SetContainerState(set_container_state(query)?),
    };
    Ok(Call { operation: route.operation, message: ImageCall { call: Some(call) } })
}

/// Reads and validates the body of a creation. The body is named after `object` in messages.
fn read_body(
    body: &[u8],
    object: &'static ObjectSchema,
    options: DecodeOptions,
) -> Result<Fields, ApiError> {
    if body.len() > MAX_BODY_BYTES {
        let cause = format!("it has more than {MAX_BODY_BYTES} bytes");
        return Err(reader::parse_error(object.name, &cause));
    }
    let validator = Validator { place: "body", rbd_monitor_ports: options.rbd_monitor_ports };
    let fields = reader::read(body, object.name, object)?;
    let fields = fields.ok_or_else(|| validator.required(object.name))?;
    validator.check(&fields)?;
    Ok(fields)
}

/// With an id, other filters are ignored.
fn list_attachments(mut query: Fields) -> ListAttachments {
    let id = query.integer("id");
    let kind = query.text("kind").filter(|_| id.is_none()).unwrap_or_default();
    ListAttachments { id, kind: attachment_kind(&kind).into() }
}

/// As [`list_attachments`].
fn list_mounts(mut query: Fields) -> ListMounts {
    let id = query.integer("id");
    let kind = query.text("kind").filter(|_| id.is_none()).unwrap_or_default();
    ListMounts { id, kind: mount_kind(&kind).into() }
}

/// With an id or a name, the state is ignored.
fn list_containers(mut query: Fields) -> ListContainers {
    let (id, name) = id_or_name(&mut query);
    let state = query.text("state").filter(|_| id.is_none() && name.is_none());
    ListContainers { id, name, state: container_state(&state.unwrap_or_default()).into() }
}

fn delete_object(mut query: Fields) -> DeleteObject {
    DeleteObject {
        id: query.integer("id").unwrap_or_default(),
        force: query.boolean("force").unwrap_or_default(),
    }
}

fn delete_container(mut query: Fields) -> Result<DeleteContainer, ApiError> {
    let (id, name) = identified(&mut query)?;
    Ok(DeleteContainer { id, name, force: query.boolean("force").unwrap_or_default() })
}

fn set_container_state(mut query: Fields) -> Result<SetContainerState, ApiError> {
    let (id, name) = identified(&mut query)?;
    let state = container_state(&query.text("state").unwrap_or_default());
    Ok(SetContainerState { id, name, state: state.into() })
}

/// Takes the id or the name of a container; an error if there is neither.
fn identified(query: &mut Fields) -> Result<(Option<i64>, Option<String>), ApiError> {
    match id_or_name(query) {
        (None, None) => {
            let message = "either ID or Name must be provided";
            Err(ApiError::new(http::StatusCode::BAD_REQUEST, message))
        }
        found => Ok(found),
    }
}

/// Takes the id or the name of a container. With an id, the name is ignored.
fn id_or_name(query: &mut Fields) -> (Option<i64>, Option<String>) {
    let id = query.integer("id");
    let name = query.text("name").filter(|_| id.is_none());
    (id, name)
}
