//! A proxy in front of a registry, which cuts layers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A proxy. Clones share it.
#[derive(Clone)]
pub(super) struct Cuts {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Layers that may pass.
    open: Arc<Semaphore>,
}

struct State {
    /// Numbers of bytes after which the next answers with a layer are cut.
    cuts: Vec<u64>,
    /// Heads of the requests for layers.
    requests: Vec<String>,
}

impl Cuts {
    /// Starts a proxy of `registry`, which cuts the first answers with a layer after these numbers of
    /// bytes. No layer passes until [`Self::open`].
    pub(super) async fn start(registry: SocketAddr, cuts: &[u64]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { cuts: cuts.to_vec(), requests: Vec::new() };
        let (state, open) = (Arc::new(Mutex::new(state)), Arc::new(Semaphore::new(0)));
        let proxy = Self { address, state, open };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that goes away ends its connection only.
                tokio::spawn(accepting.clone().forward(client, registry));
            }
        });
        proxy
    }

    /// Lets layers pass.
    pub(super) fn open(&self) {
        self.open.close();
    }

    /// Returns the heads of the requests for layers.
    pub(super) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Forwards a connection with one request.
    async fn forward(self, mut client: TcpStream, registry: SocketAddr) -> std::io::Result<()> {
        let mut server = TcpStream::connect(registry).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        server.write_all(&head).await?;
        let head = String::from_utf8(head).unwrap();
        if !head.split("\r\n").next().unwrap().contains("/blobs/") {
            return copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
        let limit = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(head.to_lowercase());
            if state.cuts.is_empty() { u64::MAX } else { state.cuts.remove(0) }
        };
        // It ends when the semaphore is closed.
        drop(self.open.acquire().await);
        tokio::io::copy(&mut server.take(limit), &mut client).await.map(drop)
    }
}
