//! Requests byte for byte as a client in Go sends them that is generated from the API description: explicit nulls, no content
//! type without a body, missing optional query keys, bodies in chunks.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{error, request};
use imageapi::{ApiError, BASE_PATH};
use serde_json::{Value, json};
use tinwright::node::v1::attachment::{self, Iscsi, Local, RbdOptions};
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{
    Call, DeleteContainer, DeleteObject, ListAttachments, ListContainers, ListMounts,
    SetContainerState,
};
use tinwright::node::v1::mount::{AttachmentMount, Definition};
use tinwright::node::v1::{Attachment, Mount, MountKind};

/// A request in parts.
struct Sent {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Sent {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Splits the bytes of a request as a listener does.
fn parse(bytes: &str) -> Sent {
    let (head, body) = bytes.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let headers: Vec<_> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut request = Sent { method, target, headers, body: body.into() };
    if request.header("transfer-encoding") == Some("chunked") {
        request.body = unchunked(body);
    }
    request
}

/// Joins the chunks of a body (RFC 9112, section 7.1).
fn unchunked(mut body: &str) -> Vec<u8> {
    let mut joined = Vec::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return joined;
        }
        joined.extend_from_slice(&rest.as_bytes()[..size]);
        body = &rest[size + 2..];
    }
}

fn decoded(bytes: &str) -> Result<Call, ApiError> {
    let sent = parse(bytes);
    let target = sent.target.strip_prefix(BASE_PATH).unwrap();
    let headers: Vec<_> = sent.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    request(&sent.method, target, &headers, &sent.body).map(|call| call.message.call.unwrap())
}

fn body(bytes: &str) -> Value {
    serde_json::from_slice(&parse(bytes).body).unwrap()
}

#[test]
fn optional_query_keys_are_missing() {
    let list = decoded(include_str!("data/client/list-attachments.http"));
    assert_eq!(list, Ok(Call::ListAttachments(ListAttachments::default())));
    let by_kind = decoded(include_str!("data/client/list-mounts-by-kind.http"));
    let kind = MountKind::Overlay.into();
    assert_eq!(by_kind, Ok(Call::ListMounts(ListMounts { id: None, kind })));
    let all = decoded(include_str!("data/client/list-containers-all-keys.http"));
    let expected = ListContainers { id: Some(7), ..ListContainers::default() };
    assert_eq!(all, Ok(Call::ListContainers(expected)));
    let delete = decoded(include_str!("data/client/delete-attach.http"));
    assert_eq!(delete, Ok(Call::DeleteAttachment(DeleteObject { id: 7, force: false })));
}

#[test]
fn force_is_sent_when_it_or_the_defaults_are_asked_for() {
    let defaults = include_str!("data/client/delete-mount-with-defaults.http");
    assert!(defaults.contains("force=false"));
    let expected = DeleteObject { id: 44, force: false };
    assert_eq!(decoded(defaults), Ok(Call::DeleteMount(expected)));
    let forced = decoded(include_str!("data/client/delete-container-forced.http"));
    let expected = DeleteContainer { id: None, name: Some("svc".into()), force: true };
    assert_eq!(forced, Ok(Call::DeleteContainer(expected)));
}

#[test]
fn a_patch_and_an_empty_post_have_no_content_type() {
    let patch = include_str!("data/client/set-container-state.http");
    let sent = parse(patch);
    assert_eq!((sent.header("content-length"), sent.header("content-type")), (Some("0"), None));
    let state = State::Exited.into();
    let expected = SetContainerState { id: None, name: Some("svc".into()), state };
    assert_eq!(decoded(patch), Ok(Call::SetContainerState(expected)));
    let empty = include_str!("data/client/attach-without-body.http");
    let sent = parse(empty);
    assert_eq!((sent.header("content-length"), sent.header("content-type")), (Some("0"), None));
    let required = (422, 602, "attach in body is required".to_owned());
    assert_eq!(error(decoded(empty).unwrap_err()), required);
}

#[test]
fn unset_properties_are_null_or_missing() {
    let local = include_str!("data/client/attach-local.http");
    assert_eq!(body(local), json!({"kind": "local", "local": {"path": "/dev/nvme1n1"}}));
    let definition = attachment::Definition::Local(Local { path: "/dev/nvme1n1".into() });
    let expected = Attachment { definition: Some(definition), ..Attachment::default() };
    assert_eq!(decoded(local), Ok(Call::CreateAttachment(expected)));
    let iscsi = decoded(include_str!("data/client/attach-iscsi.http"));
    let definition = attachment::Definition::Iscsi(Iscsi {
        initiator: "iqn.i".into(),
        target: "iqn.t".into(),
        host: "10.20.0.21".into(),
        max_commands: Some(0),
        ..Iscsi::default()
    });
    let expected = Attachment { definition: Some(definition), ..Attachment::default() };
    assert_eq!(iscsi, Ok(Call::CreateAttachment(expected)));
    let mount = include_str!("data/client/mount-by-reference.http");
    assert_eq!(body(mount)["attach"]["mount_options"], Value::Null);
    assert_eq!(body(mount)["attach"]["attach"], json!({"id": 41}));
    let attach = Some(Box::new(Attachment { id: 41, ..Attachment::default() }));
    let definition = AttachmentMount { attach, fs_type: "erofs".into(), mount_options: Vec::new() };
    let definition = Some(Definition::Attach(Box::new(definition)));
    let expected = Mount { definition, ..Mount::default() };
    assert_eq!(decoded(mount), Ok(Call::CreateMount(expected)));
}

#[test]
fn required_properties_that_are_null_are_reported() {
    let nfs = include_str!("data/client/mount-without-values.http");
    let sent = json!({"kind": "nfs", "nfs": {"host": null, "options": null, "path": null}});
    assert_eq!(body(nfs), sent);
    assert_eq!(error(decoded(nfs).unwrap_err()).2, "host in body is required");
    let container = include_str!("data/client/create-container-empty.http");
    assert_eq!(body(container), json!({"command": null, "mount": null, "namespaces": null}));
    assert_eq!(error(decoded(container).unwrap_err()).2, "command in body is required");
}

#[test]
fn a_nested_container_is_decoded_as_it_was_sent() {
    let sent = include_str!("data/client/create-container.http");
    let Ok(Call::CreateContainer(container)) = decoded(sent) else { panic!() };
    assert_eq!(container.command, "/sbin/init");
    assert_eq!(
        (container.name.as_str(), container.systemd, container.state()),
        ("n2", true, State::Running)
    );
    let Some(Definition::Overlay(overlay)) = container.mount.unwrap().definition else { panic!() };
    let [bind, rbd, nfs, reference] = &overlay.lower[..] else { panic!() };
    let Some(Definition::Bind(bind)) = &bind.definition else { panic!() };
    assert_eq!((bind.ro, bind.recursive), (Some(true), Some(false)));
    let Some(Definition::Attach(attach)) = &rbd.definition else { panic!() };
    let Some(attachment::Definition::Rbd(rbd)) = &attach.attach.as_ref().unwrap().definition else {
        panic!()
    };
    let options = RbdOptions {
        name: "images-ro".into(),
        secret: "QVFE".into(),
        ro: true,
        ..RbdOptions::default()
    };
    assert_eq!((rbd.snapshot.as_str(), rbd.options.as_ref()), ("gold", Some(&options)));
    let Some(Definition::Nfs(nfs)) = &nfs.definition else { panic!() };
    assert_eq!((nfs.ro, nfs.version.as_ref(), nfs.options.len()), (None, None, 0));
    assert_eq!(*reference, Mount { id: 12, ..Mount::default() });
}
