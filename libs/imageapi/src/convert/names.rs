//! The values of enums in JSON: the names of the contract without prefix, in lower case.

use tinwright::node::v1::container::{Namespace, State};
use tinwright::node::v1::{AttachmentKind, Base, MountKind};

/// Returns the name in the contract of the JSON value `text`.
fn full_name(prefix: &str, text: &str) -> String {
    format!("{prefix}{}", text.to_ascii_uppercase())
}

/// Returns the value in JSON of the name `full` of the contract.
fn json_name(prefix: &str, full: &str) -> String {
    full.strip_prefix(prefix).unwrap_or_default().to_ascii_lowercase()
}

/// Returns the kind of attachments `text`, or unspecified if it is empty.
pub(crate) fn attachment_kind(text: &str) -> AttachmentKind {
    AttachmentKind::from_str_name(&full_name("ATTACHMENT_KIND_", text)).unwrap_or_default()
}

/// Returns the kind of mounts `text`, or unspecified if it is empty.
pub(crate) fn mount_kind(text: &str) -> MountKind {
    MountKind::from_str_name(&full_name("MOUNT_KIND_", text)).unwrap_or_default()
}

/// Returns the state `text`, or unspecified if it is empty.
pub(crate) fn container_state(text: &str) -> State {
    State::from_str_name(&full_name("STATE_", text)).unwrap_or_default()
}

/// Returns `state` in JSON, or none if it is unspecified.
pub(super) fn state_text(state: State) -> Option<String> {
    (state != State::Unspecified).then(|| json_name("STATE_", state.as_str_name()))
}

/// Returns the base `text`.
pub(super) fn base(text: &str) -> Base {
    Base::from_str_name(&full_name("BASE_", text)).unwrap_or_default()
}

/// Returns `base` in JSON, or none if it is unspecified.
pub(super) fn base_text(base: Base) -> Option<String> {
    (base != Base::Unspecified).then(|| json_name("BASE_", base.as_str_name()))
}

/// Returns the namespace `text`.
pub(super) fn namespace(text: &str) -> Namespace {
    Namespace::from_str_name(&full_name("NAMESPACE_", text)).unwrap_or_default()
}

/// Returns `namespace` in JSON, or none if it is unspecified.
pub(super) fn namespace_text(namespace: Namespace) -> Option<String> {
    (namespace != Namespace::Unspecified).then(|| json_name("NAMESPACE_", namespace.as_str_name()))
}
