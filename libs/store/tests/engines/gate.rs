//! A wire to a server that can be cut, and one that goes silent: the server answers, nobody hears it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::peer;

pub(crate) struct Gate {
    port: u16,
    to: u16,
    silent: Arc<AtomicBool>,
    wires: JoinSet<()>,
}

impl Gate {
    /// An open gate to `port`.
    pub(crate) async fn to(to: u16) -> Self {
        let silent = Arc::new(AtomicBool::new(false));
        let mut gate = Self { port: peer::free_port(), to, silent, wires: JoinSet::new() };
        gate.mend().await;
        gate
    }

    pub(crate) fn url(&self) -> String {
        peer::url(self.port)
    }

    /// Breaks every connection, and takes no new one.
    pub(crate) async fn cut(&mut self) {
        self.wires.shutdown().await;
    }

    /// Takes connections again.
    pub(crate) async fn mend(&mut self) {
        let listener = TcpListener::bind((peer::loopback(), self.port)).await.unwrap();
        self.wires.spawn(accept(listener, self.to, self.silent.clone()));
    }

    /// From now on nothing comes back through the gate.
    pub(crate) fn silence(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, to: u16, silent: Arc<AtomicBool>) {
    let mut wires = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let Ok(far) = TcpStream::connect((peer::loopback(), to)).await else { continue };
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        wires.spawn(copy(near_read, far_write, Arc::default()));
        wires.spawn(copy(far_read, near_write, silent.clone()));
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silent: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !silent.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
