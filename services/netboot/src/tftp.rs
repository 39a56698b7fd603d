//! TFTP for firmware (RFC 1350, 2347, 2348, 2349, 7440): reading only.
//!
//! - [`packet`]: the five packets and the answer to options.
//! - [`negotiation`]: what a request's options come to.
//! - [`transfer`]: one transfer as a state machine, without a socket, a clock or a file; [`window`]: what is under way
//!   of it, `pace`: how fast that goes out.
//! - [`name`]: what a file name means; [`files`]: where its bytes come from; [`blocks`]: cutting them.
//! - [`admission`]: how much one client, and all of them, may ask for.
//! - [`server`]: sockets, and a task per transfer.

pub mod admission;
pub mod blocks;
pub mod files;
pub mod name;
pub mod negotiation;
mod pace;
pub mod packet;
pub mod server;
mod serving;
pub mod transfer;
pub mod window;

pub use files::{Directories, File, Files, Refusal};
pub use name::Name;
pub use server::{Ended, Observer, Server};
