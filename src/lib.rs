//! The wire contract of Tinwright: types and clients generated from `proto/`, and what every side of them shares.
//!
//! - [`hardware`], [`common`]: one module a proto package.
//! - [`id`], [`mac`]: the names things go by, as types.
//! - [`check`]: rules that more than one service's fields follow.
//! - [`fault`]: errors as callers see them, with `google.rpc` details.
//! - [`json`]: any message from and to its canonical JSON.
//! - [`in_process`]: a gRPC channel that never leaves the process.

pub mod check;
pub mod fault;
pub mod id;
pub mod in_process;
pub mod json;
pub mod mac;

pub use id::{HardwareId, Id};
pub use mac::Mac;

/// What every service's calls share.
pub mod common {
    /// Version 1.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::wildcard_enum_match_arm)]
    pub mod v1 {
        tonic::include_proto!("tinwright.common.v1");
    }
}

/// The machines a site owns.
pub mod hardware {
    /// Version 1.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::wildcard_enum_match_arm)]
    pub mod v1 {
        tonic::include_proto!("tinwright.hardware.v1");
    }
}

/// Every proto file and what it imports, as an encoded `FileDescriptorSet`: for reflection and JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
