//! The calls of the contract, and who may make them (option `call` in
//! `proto/tinwright/common/v1/options.proto`).

use crate::common::v1::Audience;

/// A call, and who may make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The path of its requests, such as `/tinwright.power.v1.PowerService/GetBmc`.
    pub path: &'static str,
    /// The roles that may make it.
    pub audience: Audience,
    /// True if callers with a tenant may make it, if their role may.
    pub is_open_to_tenants: bool,
    /// The names of the services that make it.
    pub services: &'static [&'static str],
}

/// Defines [`CALLS`].
macro_rules! calls {
    ($($path:literal, $audience:ident, $is_open_to_tenants:literal, $services:expr;)*) => {
        /// The calls of the contract, in the order of their paths.
        pub static CALLS: &[Call] = &[$(Call {
            path: $path,
            audience: Audience::$audience,
            is_open_to_tenants: $is_open_to_tenants,
            services: &$services,
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

impl Call {
    /// True if only processes of the same site may make the call.
    pub fn is_internal(&self) -> bool {
        matches!(self.audience, Audience::Services | Audience::Processes)
    }
}

/// Returns the call with this path.
pub fn find(path: &str) -> Option<&'static Call> {
    let found = CALLS.binary_search_by_key(&path, |call| call.path).ok()?;
    CALLS.get(found)
}
