//! A wire to a server that breaks after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A gate. Dropping it breaks its connections.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    /// Bytes that the server still gets. At zero, there is no connection.
    left: Arc<AtomicI64>,
    _wires: JoinSet<()>,
}

impl Gate {
    /// An open gate to `server`.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let mut wires = JoinSet::new();
        wires.spawn(accept(listener, server, left.clone()));
        Self { address, left, _wires: wires }
    }

    /// Breaks every connection after further `bytes` to the server.
    pub(crate) fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    /// True if the connections are broken.
    pub(crate) fn is_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }

    /// Takes connections again.
    pub(crate) fn mend(&self) {
        self.left.store(i64::MAX, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, left: Arc<AtomicI64>) {
    let mut wires = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        if left.load(Ordering::SeqCst) <= 0 {
            continue;
        }
        let Ok(far) = TcpStream::connect(server).await else { continue };
        wires.spawn(join(near, far, left.clone()));
    }
}

/// Joins two connections until one ends.
async fn join(near: TcpStream, far: TcpStream, left: Arc<AtomicI64>) {
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = copy(near_read, far_write, Some(&left)) => {}
        () = copy(far_read, near_write, None) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: Option<&AtomicI64>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let Some(left) = left {
            let length = i64::try_from(length).unwrap();
            if left.fetch_sub(length, Ordering::SeqCst) <= length {
                left.store(0, Ordering::SeqCst);
                return;
            }
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
