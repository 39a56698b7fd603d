//! The daemon's side of the control socket.

use std::fs::File;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::descriptors::path_in;
use crate::record::{CONTROL, RunDirectory};

/// Sends `request` to the supervisor of `directory`, and returns the connection once the supervisor has taken it.
///
/// # Errors
/// No supervisor listens, or it ended meanwhile.
pub(super) async fn request(directory: &RunDirectory, request: &str) -> io::Result<UnixStream> {
    let opened = File::open(&directory.path)?;
    let mut connection = UnixStream::connect(path_in(&opened, CONTROL)).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = [0; 3];
    connection.read_exact(&mut answer).await?;
    if &answer == b"ok\n" { Ok(connection) } else { Err(io::ErrorKind::InvalidData.into()) }
}
