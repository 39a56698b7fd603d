//! The rules for the containers of a stack. What only a node knows is left to it: files, devices and modules.

use std::collections::BTreeSet;

use prost::Message as _;
use tinwright::check;
use tinwright::node::v1 as pb;
use tinwright::node::v1::attachment::{Definition as Attached, Loopback, Rbd};
use tinwright::node::v1::container::{Namespace, State};
use tinwright::node::v1::mount::{Bind, Definition as Mounted};
use tinwright::status::Violations;

/// The most containers of a stack.
pub const MAX_CONTAINERS: usize = 16;
/// The most bytes of the containers of a version, so that all versions fit one record.
pub const MAX_BYTES: usize = 32 * 1024;
/// The longest chain of mounts and attachments in each other.
const MAX_DEPTH: usize = 32;
/// The most lower directories of an overlay.
const MAX_LOWER: usize = 64;
/// The longest name of a container.
const MAX_NAME_BYTES: usize = 128;

/// Adds the violations of `containers`, and replaces them by their stored form: to run, without fields that a node sets.
pub fn normalize(containers: &mut [pb::Container], wrong: &mut Violations) {
    let bytes: usize = containers.iter().map(pb::Container::encoded_len).sum();
    if bytes > MAX_BYTES {
        wrong.add("containers", format!("have {bytes} bytes, at most {MAX_BYTES} are allowed"));
    }
    let mut names = BTreeSet::new();
    wrong.each("containers", containers, MAX_CONTAINERS, |container, wrong| {
        if !names.insert(container.name.clone()) {
            wrong.add("name", format!("{:?} is that of another container", container.name));
        }
        normalize_container(container, wrong);
    });
}

fn normalize_container(container: &mut pb::Container, wrong: &mut Violations) {
    let state = container.state();
    let pb::Container { id, name, mount, command, systemd: _, namespaces, logfile, refs, .. } =
        container;
    (*refs, *logfile) = (0, String::new());
    is_new(*id, wrong);
    wrong.take("name", container_name(name));
    if command.trim().is_empty() {
        wrong.add("command", "is missing");
    }
    if !matches!(state, State::Unspecified | State::Running) {
        wrong.add("state", "is neither RUNNING nor unset: a container of a stack is to run");
    }
    let is_known = |number: &i32| Namespace::try_from(*number).is_ok_and(|it| it as i32 != 0);
    if !namespaces.iter().all(is_known) {
        wrong.add("namespaces", "has an unknown one");
    }
    required("mount", mount.as_mut(), wrong, |mount, wrong| normalize_mount(mount, 1, wrong));
    container.set_state(State::Running);
}

/// Letters, digits, dots, underscores and hyphens, as the ImageAPI has it; not empty, because the node finds the container by its name.
fn container_name(name: &str) -> Result<(), String> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed);
    let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
    let wanted = "letters, digits, dots, underscores and hyphens, 1 to 128 of them";
    if is_valid { Ok(()) } else { Err(format!("{shown:?} has not the form: {wanted}")) }
}

/// A reference to an object of one node makes no sense in a stack of many.
fn is_new(id: i64, wrong: &mut Violations) {
    if id != 0 {
        wrong.add("id", "is set: a stack has definitions only");
    }
}

fn required<T>(
    field: &str,
    value: Option<T>,
    wrong: &mut Violations,
    check: impl FnMut(T, &mut Violations),
) {
    match value {
        Some(value) => wrong.nest(field, [value], check),
        None => wrong.add(field, "is missing"),
    }
}

fn texts(fields: &[(&str, &String)], wrong: &mut Violations) {
    for (field, text) in fields {
        if text.is_empty() {
            wrong.add(*field, "is missing");
        } else {
            wrong.take(*field, check::length(text, 4096));
        }
    }
}

fn normalize_mount(mount: &mut pb::Mount, depth: usize, wrong: &mut Violations) {
    (mount.mountpoint, mount.refs) = (String::new(), 0);
    mount.unused_definitions.clear();
    is_new(mount.id, wrong);
    if depth > MAX_DEPTH {
        return wrong.add("", format!("is nested deeper than {MAX_DEPTH}"));
    }
    match &mut mount.definition {
        None => wrong.add("", "has no definition: attach, bind, nfs or overlay"),
        Some(Mounted::Attach(it)) => {
            texts(&[("attach.fs_type", &it.fs_type)], wrong);
            required("attach.attach", it.attach.as_deref_mut(), wrong, |it, wrong| {
                normalize_attachment(it, depth + 1, wrong);
            });
        }
        Some(Mounted::Bind(it)) => bind(it, depth, wrong),
        Some(Mounted::Nfs(it)) => texts(&[("nfs.host", &it.host), ("nfs.path", &it.path)], wrong),
        Some(Mounted::Overlay(it)) => {
            (it.workdir, it.upperdir) = (String::new(), String::new());
            if it.lower.is_empty() {
                wrong.add("overlay.lower", "is empty");
            }
            wrong.each("overlay.lower", &mut it.lower, MAX_LOWER, |lower, wrong| {
                normalize_mount(lower, depth + 1, wrong);
            });
        }
    }
}

fn bind(it: &mut Bind, depth: usize, wrong: &mut Violations) {
    texts(&[("bind.path", &it.path)], wrong);
    let base = it.base();
    based("bind", base, it.mount.as_deref_mut(), depth, wrong);
}

/// A base mount is there exactly if the path begins in it.
fn based(
    field: &str,
    base: pb::Base,
    mount: Option<&mut pb::Mount>,
    depth: usize,
    wrong: &mut Violations,
) {
    match (base, mount) {
        (pb::Base::Unspecified, _) => wrong.add(format!("{field}.base"), "is missing"),
        (pb::Base::Root, None) => {}
        (pb::Base::Root, Some(_)) => {
            wrong.add(format!("{field}.mount"), "is set, but the base is the root directory");
        }
        (pb::Base::Mount, mount) => {
            required(&format!("{field}.mount"), mount, wrong, |mount, wrong| {
                normalize_mount(mount, depth + 1, wrong);
            });
        }
    }
}

fn normalize_attachment(attachment: &mut pb::Attachment, depth: usize, wrong: &mut Violations) {
    (attachment.device_file, attachment.refs) = (String::new(), 0);
    attachment.unused_definitions.clear();
    is_new(attachment.id, wrong);
    if depth > MAX_DEPTH {
        return wrong.add("", format!("is nested deeper than {MAX_DEPTH}"));
    }
    match &mut attachment.definition {
        None => wrong.add("", "has no definition: iscsi, local, loopback or rbd"),
        Some(Attached::Iscsi(it)) => {
            let fields = [
                ("iscsi.initiator", &it.initiator),
                ("iscsi.target", &it.target),
                ("iscsi.host", &it.host),
            ];
            texts(&fields, wrong);
        }
        Some(Attached::Local(it)) => texts(&[("local.path", &it.path)], wrong),
        Some(Attached::Loopback(it)) => loopback(it, depth, wrong),
        Some(Attached::Rbd(it)) => rbd(it, wrong),
    }
}

fn loopback(it: &mut Loopback, depth: usize, wrong: &mut Violations) {
    texts(&[("loopback.path", &it.path)], wrong);
    let base = it.base();
    based("loopback", base, it.mount.as_deref_mut(), depth, wrong);
}

/// A basic view has no secret, so one that is written back is refused rather than stored without it.
fn rbd(it: &mut Rbd, wrong: &mut Violations) {
    it.device_id = 0;
    texts(&[("rbd.pool", &it.pool), ("rbd.image", &it.image)], wrong);
    if it.monitors.is_empty() {
        wrong.add("rbd.monitors", "is empty");
    }
    required("rbd.options", it.options.as_ref(), wrong, |options, wrong| {
        texts(&[("name", &options.name), ("secret", &options.secret)], wrong);
    });
}

#[cfg(test)]
mod tests;
