//! The conversion of objects: from validated properties to messages, and from messages to properties.
//!
//! Here are the rules that involve more than one property: a kind needs its definition, a reference is an id and nothing else, a base
//! that is a mount needs that mount. Rules about the node itself are left to the node. What is not
//! used is shown all the same (`unused`).

mod attachment;
mod container;
mod limits;
mod mount;
mod names;
mod rbd_options;
mod unused;

pub(crate) use attachment::{attachment_fields, new_attachment};
pub(crate) use container::{container_fields, new_container};
pub(crate) use mount::{mount_fields, new_mount};
pub(crate) use names::{attachment_kind, container_state, mount_kind};
