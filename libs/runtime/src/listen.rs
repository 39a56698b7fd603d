//! Sockets to listen on: bound here, or inherited from the process that started this one (`LISTEN_FDS`, systemd.socket(5)).
//!
//! An inherited socket is matched by its name in `LISTEN_FDNAMES`. All are opened before any work begins, so that a port
//! in use is an error at the start.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// A socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("listening for {name} on {address}")]
    Bind {
        /// The name of the socket.
        name: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The inherited socket cannot be used.
    #[error("the inherited socket {name}")]
    Inherited {
        /// The name of the socket.
        name: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// The sockets a process was started with, and those it binds itself.
pub struct Sockets {
    inherited: ListenFd,
    names: Vec<String>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Sockets {
    /// Reads the inherited sockets out of the environment.
    pub fn from_env() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').map(str::to_owned).collect();
        Self { inherited: ListenFd::from_env(), names }
    }

    /// Every inherited socket named `name`.
    pub fn inherited(&mut self, name: &'static str) -> Result<Vec<TcpListener>, Error> {
        let mut found = Vec::new();
        for at in 0..self.names.len() {
            if self.names[at] == name {
                found.extend(self.take(name, at)?);
            }
        }
        Ok(found)
    }

    fn take(&mut self, name: &'static str, at: usize) -> Result<Option<TcpListener>, Error> {
        let mut taken = || {
            let Some(listener) = self.inherited.take_tcp_listener(at)? else { return Ok(None) };
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Some)
        };
        taken().map_err(|source| Error::Inherited { name, source })
    }

    /// The inherited socket named `name`, else one bound to `address`.
    pub async fn tcp(
        &mut self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<TcpListener, Error> {
        if let Some(listener) = self.inherited(name)?.into_iter().next() {
            return Ok(listener);
        }
        Self::bind(name, address).await
    }

    /// A socket bound to `address`.
    pub async fn bind(name: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|source| Error::Bind { name, address, source })
    }
}
