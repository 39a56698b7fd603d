//! Calls through the API's listener, as clients make them. One program, since each would be linked with the whole server.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod access;
mod addresses;
mod apply;
mod events;
mod given_back;
mod hardware;
mod ial;
mod identity;
mod locations;
mod nodes;
mod openapi;
mod root_disk;
mod support;
mod trust;
