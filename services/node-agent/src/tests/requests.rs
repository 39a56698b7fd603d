//! Definitions and calls.
#![allow(clippy::wildcard_enum_match_arm)]

use tinwright::node::v1::attachment::{self, Local, Loopback, Rbd, RbdOptions};
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{
    Call, DeleteContainer, DeleteObject, ListAttachments, ListContainers, ListMounts,
    SetContainerState,
};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;
use tinwright::node::v1::mount::{self, AttachmentMount, Bind, Nfs, Overlay};
use tinwright::node::v1::{Attachment, Base, Container, ImageCall, Mount};

use crate::Node;

pub(crate) fn local(path: &str) -> Attachment {
    let definition = attachment::Definition::Local(Local { path: path.into() });
    Attachment { definition: Some(definition), ..Attachment::default() }
}

pub(crate) fn loopback(base: Mount, path: &str) -> Attachment {
    let loopback = Loopback {
        path: path.into(),
        base: Base::Mount.into(),
        mount: Some(Box::new(base)),
        read_partitions: None,
    };
    let definition = attachment::Definition::Loopback(Box::new(loopback));
    Attachment { definition: Some(definition), ..Attachment::default() }
}

pub(crate) fn rbd(image: &str) -> Attachment {
    let options =
        RbdOptions { name: "images".into(), secret: "c2VjcmV0".into(), ..RbdOptions::default() };
    let rbd = Rbd {
        monitors: vec!["192.0.2.1".into()],
        pool: "images".into(),
        image: image.into(),
        options: Some(options),
        ..Rbd::default()
    };
    let definition = attachment::Definition::Rbd(rbd);
    Attachment { definition: Some(definition), ..Attachment::default() }
}

pub(crate) fn attach_mount(attachment: Attachment) -> Mount {
    let attach = AttachmentMount {
        attach: Some(Box::new(attachment)),
        fs_type: "squashfs".into(),
        mount_options: vec!["ro".into()],
    };
    let definition = mount::Definition::Attach(Box::new(attach));
    Mount { definition: Some(definition), ..Mount::default() }
}

pub(crate) fn bind(path: &str) -> Mount {
    let bind = Bind { path: path.into(), base: Base::Root.into(), ..Bind::default() };
    Mount { definition: Some(mount::Definition::Bind(Box::new(bind))), ..Mount::default() }
}

pub(crate) fn bind_over(base: Mount, path: &str) -> Mount {
    let bind = Bind {
        path: path.into(),
        base: Base::Mount.into(),
        mount: Some(Box::new(base)),
        ..Bind::default()
    };
    Mount { definition: Some(mount::Definition::Bind(Box::new(bind))), ..Mount::default() }
}

pub(crate) fn bind_reference(id: i64, path: &str) -> Mount {
    bind_over(mount_reference(id), path)
}

pub(crate) fn nfs(path: &str) -> Mount {
    let nfs = Nfs { host: "192.0.2.2".into(), path: path.into(), ..Nfs::default() };
    Mount { definition: Some(mount::Definition::Nfs(nfs)), ..Mount::default() }
}

pub(crate) fn overlay(lower: Vec<Mount>) -> Mount {
    let overlay = Overlay { lower, ..Overlay::default() };
    Mount { definition: Some(mount::Definition::Overlay(overlay)), ..Mount::default() }
}

pub(crate) fn mount_reference(id: i64) -> Mount {
    Mount { id, ..Mount::default() }
}

pub(crate) fn attachment_reference(id: i64) -> Attachment {
    Attachment { id, ..Attachment::default() }
}

pub(crate) fn container(name: &str, mount: Mount) -> Container {
    Container {
        name: name.into(),
        mount: Some(mount),
        command: "/sbin/init".into(),
        ..Container::default()
    }
}

pub(crate) fn running(name: &str, mount: Mount) -> Container {
    Container { state: State::Running.into(), ..container(name, mount) }
}

/// The mount of a stack of five layers: overlay, file system, loop device, NFS, below a container.
pub(crate) fn stack() -> Mount {
    overlay(vec![attach_mount(loopback(nfs("/export"), "/image.squashfs"))])
}

/// A call's result, or the reason of its error.
pub(crate) async fn call(node: &Node, id: Option<&str>, call: Call) -> Result<Outcome, Reason> {
    match node.call(id, ImageCall { call: Some(call) }).await.result.unwrap() {
        Outcome::Error(error) => Err(error.reason()),
        outcome => Ok(outcome),
    }
}

pub(crate) async fn post_attachment(
    node: &Node,
    attachment: Attachment,
) -> Result<Attachment, Reason> {
    match call(node, None, Call::CreateAttachment(attachment)).await? {
        Outcome::Attachment(attachment) => Ok(attachment),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn post_mount(node: &Node, mount: Mount) -> Result<Mount, Reason> {
    match call(node, None, Call::CreateMount(mount)).await? {
        Outcome::Mount(mount) => Ok(mount),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn post_container(node: &Node, posted: Container) -> Result<Container, Reason> {
    container_of(call(node, None, Call::CreateContainer(posted)).await?)
}

pub(crate) async fn set_state(node: &Node, id: i64, state: State) -> Result<Container, Reason> {
    let request = SetContainerState { id: Some(id), name: None, state: state.into() };
    container_of(call(node, None, Call::SetContainerState(request)).await?)
}

pub(crate) async fn delete_container(
    node: &Node,
    id: i64,
    force: bool,
) -> Result<Container, Reason> {
    let request = DeleteContainer { id: Some(id), name: None, force };
    container_of(call(node, None, Call::DeleteContainer(request)).await?)
}

pub(crate) async fn delete_mount(node: &Node, id: i64, force: bool) -> Result<Mount, Reason> {
    match call(node, None, Call::DeleteMount(DeleteObject { id, force })).await? {
        Outcome::Mount(mount) => Ok(mount),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn delete_attachment(
    node: &Node,
    id: i64,
    force: bool,
) -> Result<Attachment, Reason> {
    match call(node, None, Call::DeleteAttachment(DeleteObject { id, force })).await? {
        Outcome::Attachment(attachment) => Ok(attachment),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn get_attachment(node: &Node, id: i64) -> Result<Attachment, Reason> {
    let list = ListAttachments { id: Some(id), ..ListAttachments::default() };
    match call(node, None, Call::ListAttachments(list)).await? {
        Outcome::Attachments(mut list) => Ok(list.attachments.remove(0)),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn get_mount(node: &Node, id: i64) -> Result<Mount, Reason> {
    let list = ListMounts { id: Some(id), ..ListMounts::default() };
    match call(node, None, Call::ListMounts(list)).await? {
        Outcome::Mounts(mut list) => Ok(list.mounts.remove(0)),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn get_container(node: &Node, id: i64) -> Result<Container, Reason> {
    let list = ListContainers { id: Some(id), ..ListContainers::default() };
    match call(node, None, Call::ListContainers(list)).await? {
        Outcome::Containers(mut list) => Ok(list.containers.remove(0)),
        other => panic!("{other:?}"),
    }
}

/// Waits until the container `id` is in the state `state`.
pub(crate) async fn reaches(node: &Node, id: i64, state: State) {
    let mut changes = node.changes();
    while get_container(node, id).await.unwrap().state() != state {
        changes.changed().await.unwrap();
    }
}

fn container_of(outcome: Outcome) -> Result<Container, Reason> {
    match outcome {
        Outcome::Container(container) => Ok(container),
        other => panic!("{other:?}"),
    }
}
