//! The TFTP server for firmware: reading only. The protocol is in the crate `tftp`.
//!
//! - [`requested_file`]: the meaning of a file name; [`files`]: finding and opening files; [`file_reader`]: reading them in
//!   blocks.
//! - [`admission`]: limits for one client, and for all together.
//! - [`server`]: receives requests; `session`: a task with its own socket for each transfer.

pub mod admission;
pub mod file_reader;
pub mod files;
pub mod requested_file;
pub mod server;
mod session;

pub use files::{Directories, DiskFile, FileError, FileSource, OpenDirectoryError, OpenFile};
pub use requested_file::RequestedFile;
pub use server::{FinishedRequest, RequestResult, Server};
