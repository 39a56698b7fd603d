//! The TFTP protocol for a server that files are read from (RFC 1350, 2347, 2348, 2349, 7440), without a socket, a clock
//! or a file: bytes and the time are arguments.
//!
//! - [`packet`]: the packets of RFC 1350 and the option acknowledgement of RFC 2347.
//! - [`file_name`]: checks the name in a request, and finds the file names that it may stand for.
//! - [`negotiation`]: the transfer mode, and the options that a transfer uses.
//! - [`transfer`]: one transfer as a state machine; [`window`]: the blocks that are not yet acknowledged; `pacing`: how many
//!   of them are sent at once, and the retransmission timeout.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod file_name;
pub mod negotiation;
mod pacing;
pub mod packet;
pub mod transfer;
pub mod window;

pub use file_name::{InvalidFileName, check_file_name, possible_file_names};
pub use negotiation::{TransferMode, TransferOptions};
pub use packet::{ClientPacket, ErrorCode, FileRequest, Options, error_packet};
pub use transfer::{Event, NextStep, Transfer, TransferOutcome};
pub use window::Burst;
