//! A TCP proxy before a server, which holds and cuts connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Down,
    /// To the server.
    Up,
}

/// A proxy. It ends with its owner.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

struct Shared {
    server: SocketAddr,
    /// True while bytes to the server wait.
    holds_up: watch::Sender<bool>,
    table: Mutex<Table>,
}

struct Table {
    /// Cancelled to cut the present connections.
    connections: CancellationToken,
    /// True while new connections are closed at once.
    is_closed: bool,
    /// The bytes of this direction until the next cut.
    cut_after: Option<(Direction, usize)>,
    cuts: usize,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.stop.cancel();
    }
}

impl Proxy {
    /// Starts a proxy before `server`, at a free port of the loopback interface.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = CancellationToken::new();
        let table = Table { connections, is_closed: false, cut_after: None, cuts: 0 };
        let (holds_up, table) = (watch::Sender::new(false), Mutex::new(table));
        let shared = Arc::new(Shared { server, holds_up, table });
        let stop = CancellationToken::new();
        let accepting = accept(listener, shared.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Self { address, shared, stop }
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        let mut table = self.shared.table.lock().unwrap();
        std::mem::take(&mut table.connections).cancel();
    }

    /// Cuts all connections, and accepts none.
    pub fn close(&self) {
        self.shared.table.lock().unwrap().is_closed = true;
        self.cut();
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.shared.table.lock().unwrap().is_closed = false;
    }

    /// Lets bytes to the server wait, or go on.
    pub fn hold_up(&self, holds: bool) {
        self.shared.holds_up.send_replace(holds);
    }

    /// Cuts a connection after it has transmitted this number of bytes in this direction, once; none does not.
    pub fn cut_after(&self, cut: Option<(Direction, usize)>) {
        self.shared.table.lock().unwrap().cut_after = cut;
    }

    /// Returns the number of cuts after a number of bytes.
    pub fn cuts(&self) -> usize {
        self.shared.table.lock().unwrap().cuts
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let cut = {
            let table = shared.table.lock().unwrap();
            if table.is_closed {
                continue;
            }
            table.connections.clone()
        };
        tokio::spawn(connection(client, shared.clone(), cut.child_token()));
    }
}

async fn connection(client: TcpStream, shared: Arc<Shared>, cut: CancellationToken) {
    let Ok(server) = TcpStream::connect(shared.server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        transmit(from_client, to_server, Direction::Up, &shared, &cut),
        transmit(from_server, to_client, Direction::Down, &shared, &cut),
    );
}

/// Transmits one direction of a connection until its end or `cut`, which also ends the other direction.
async fn transmit(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    shared: &Shared,
    cut: &CancellationToken,
) {
    let copied = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if direction == Direction::Up {
                let mut holds = shared.holds_up.subscribe();
                holds.wait_for(|holds| !holds).await.unwrap();
            }
            let (length, is_last) = shared.allowed(direction, length);
            if to.write_all(&buffer[..length]).await.is_err() || is_last {
                return;
            }
        }
    };
    cut.run_until_cancelled(copied).await;
    cut.cancel();
}

impl Shared {
    /// Returns how many of `length` bytes may be transmitted, and true if the connection is cut after them.
    fn allowed(&self, direction: Direction, length: usize) -> (usize, bool) {
        let mut table = self.table.lock().unwrap();
        match table.cut_after {
            Some((of, left)) if of == direction && left <= length => {
                table.cut_after = None;
                table.cuts += 1;
                (left, true)
            }
            Some((of, left)) if of == direction => {
                table.cut_after = Some((of, left - length));
                (length, false)
            }
            _ => (length, false),
        }
    }
}
