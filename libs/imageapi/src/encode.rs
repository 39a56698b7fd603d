//! Results of calls as responses of the ImageAPI.

use bytes::Bytes;
use http::Response;
use tinwright::node::v1::ImageResult;
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Message;

use crate::convert::{attachment_fields, container_fields, mount_fields};
use crate::error::{ApiError, json_response};
use crate::fields::Fields;
use crate::operation::Operation;
use crate::secrets::Secrets;

/// Returns the response of `operation` with `result`. A result that does not belong to the operation is an internal error.
pub fn encode(operation: Operation, result: ImageResult, secrets: Secrets) -> Response<Bytes> {
    use Operation as Op;
    let status = operation.success_status();
    let one = |fields: Fields| json_response(status, &fields);
    let all = |fields: Vec<Fields>| json_response(status, &fields);
    match (operation, result.result) {
        (_, Some(Message::Error(error))) => ApiError::from(error).into(),
        (Op::ListAttachments, Some(Message::Attachments(list))) => {
            all(list.attachments.iter().map(|it| attachment_fields(it, secrets)).collect())
        }
        (Op::ListMounts, Some(Message::Mounts(list))) => {
            all(list.mounts.iter().map(|it| mount_fields(it, secrets)).collect())
        }
        (Op::ListContainers, Some(Message::Containers(list))) => {
            all(list.containers.iter().map(|it| container_fields(it, secrets)).collect())
        }
        (Op::CreateAttachment | Op::DeleteAttachment, Some(Message::Attachment(it))) => {
            one(attachment_fields(&it, secrets))
        }
        (Op::CreateMount | Op::DeleteMount, Some(Message::Mount(it))) => {
            one(mount_fields(&it, secrets))
        }
        (
            Op::CreateContainer | Op::DeleteContainer | Op::SetContainerState,
            Some(Message::Container(it)),
        ) => one(container_fields(&it, secrets)),
        _ => ApiError::with_reason(Reason::Internal, "the result is of another operation").into(),
    }
}
