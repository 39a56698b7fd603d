//! The wire contract of Tinwright: types and clients generated from `proto/`, and code that servers and clients share.
//!
//! - [`hardware`], [`instance`], [`workflow`], [`power`], [`address`], [`identity`], [`image`], [`netboot`], [`metadata`], [`node`], [`event`], [`common`]: one module a proto package.
//! - [`hegel`]: Tinkerbell's, as published.
//! - [`id`], [`mac`]: ids and Ethernet addresses as types. [`machine_uuid`]: SMBIOS UUIDs of machines.
//! - [`calls`]: who may make each call.
//! - [`client`], [`server`]: code shared by the generated clients and servers of all services.
//! - [`nouns`]: the kinds of objects, and the states of each.
//! - [`object`]: the fields that all objects share.
//! - [`tenant`]: names of tenants.
//! - [`boot_image`]: the image of a boot by virtual media.
//! - [`check`]: rules that more than one service's fields follow.
//! - [`disk_hint`]: the root disk of a machine.
//! - [`status`]: errors as callers see them, with `google.rpc` details.
//! - [`json`]: any message from and to its canonical JSON.
//! - [`options`]: our options of fields and calls.
//! - [`field_mask`]: the fields that an update replaces.
//! - [`requests`]: what the requests of the same call of all nouns have in common.
//! - [`secret`]: the fields that views and logs leave out.
//! - [`watch`]: the events of a watch.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod boot_image;
pub mod calls;
pub mod check;
pub mod client;
pub mod disk_hint;
pub mod field_mask;
pub mod id;
pub mod json;
pub mod mac;
pub mod machine_uuid;
pub mod nouns;
pub mod object;
pub mod options;
pub mod requests;
pub mod secret;
pub mod server;
mod states;
pub mod status;
pub mod tenant;
pub mod watch;

pub use id::types::*;
pub use id::{BootId, Id, LeaseId, ProcessId};
pub use mac::Mac;
pub use object::{Bounded, Object, Stored};
pub use requests::Attributes;
pub use tenant::TenantName;

/// The types and clients that `build.rs` generates, in modules named after the proto packages.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all)]
#[allow(clippy::wildcard_enum_match_arm)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/tinwright_packages.rs"));
    include!(concat!(env!("OUT_DIR"), "/hegel_packages.rs"));
}

pub use generated::tinwright::{
    address, common, event, hardware, identity, image, instance, metadata, netboot, node, power,
    store, workflow,
};

/// Tinkerbell's metadata over gRPC.
pub mod hegel {
    pub use crate::generated::hegel::*;

    /// Its proto file, as an encoded `FileDescriptorSet`.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hegel.bin"));
}

/// Every proto file of ours and what it imports, as an encoded `FileDescriptorSet`: for reflection and JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
