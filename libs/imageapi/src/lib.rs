//! The ImageAPI 0.2.0: its HTTP requests and JSON bodies, from and to the messages of the contract
//! (`tinwright.node.v1`). No listener, no clock, no store: functions from values to values.
//!
//! A request passes through the modules in this order, and the first error is the response:
//!
//! - `operation`: the table of operations; finds the one of a method and a path.
//! - `headers`: `Content-Type` and `Accept`.
//! - `query`: the query parameters; `reader`: the JSON body, as values of the properties in the tables of `schema`.
//! - `validate`: required, enum, pattern, length and read-only.
//! - `convert`: rules that involve more than one property, and the conversion to messages. It also converts back.
//!
//! [`encode()`] makes the response of a result, [`ApiError`] that of an error. [`description()`] is the API description, from which
//! clients are generated; a test compares it with the tables.
//!
//! Paths are relative to the base path ([`BASE_PATH`]), which is removed by the caller. The ImageAPI wraps no call in
//! authentication; that, too, is left to the caller.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod convert;
mod decode;
mod description;
mod encode;
mod error;
mod fields;
mod headers;
mod operation;
mod query;
mod reader;
mod schema;
mod secrets;
mod validate;

pub use decode::{Call, DecodeOptions, MAX_BODY_BYTES, Request, decode};
pub use description::description;
pub use encode::encode;
pub use error::{ApiError, canonical_text};
pub use operation::{BASE_PATH, Operation};
pub use secrets::Secrets;
