//! Processes with one store, agents on streams to some of them, and calls for their nodes.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod calls;
mod instances;
mod site;
mod streams;
mod support;
