//! The server: one socket for requests, and a task with a socket of its own for every transfer.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::{Admission, Limits};
use super::files::Files;
use super::negotiation::Offer;
use super::packet::{Code, Packet, Request};
use super::serving::Line;
use super::transfer::Outcome;
use crate::datagram::{Arrival, Socket};

/// The longest request read: RFC 2347 allows 512 octets.
const REQUEST: usize = 1024;

/// How the server serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it grants.
    pub offer: Offer,
    /// How much it takes on.
    pub limits: Limits,
    /// The ports transfers are sent from; 0 stands for any free one.
    pub ports: RangeInclusive<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { offer: Offer::default(), limits: Limits::default(), ports: 0..=0 }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// There was a transfer.
    Served(Outcome),
    /// There was none; the client got this error code.
    Refused(u16),
    /// The server could not go on.
    Broken,
}

impl Verdict {
    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Served(outcome) => outcome.label(),
            Self::Refused(_) => "refused",
            Self::Broken => "broken",
        }
    }
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Who asked.
    pub client: SocketAddrV4,
    /// For what, as sent.
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
    /// Octets the client acknowledged, rounded up to a block.
    pub octets: u64,
}

/// Told of every request that has ended: for metrics and boot timelines. Must not block.
pub type Observer = Arc<dyn Fn(Ended) + Send + Sync>;

/// A request in progress. The same one from the same port is a repetition, not another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: SocketAddrV4,
    request: Arc<Request>,
}

/// The TFTP server.
pub struct Server {
    socket: Socket,
    files: Arc<dyn Files>,
    settings: Arc<Settings>,
    observer: Observer,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("socket", &self.socket)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What runs, and what is counted. A key lives exactly as long as its task.
struct Running {
    tasks: JoinSet<()>,
    keys: HashMap<Id, Key>,
    repeated: HashMap<Key, Arc<Notify>>,
    admission: Admission,
}

impl Server {
    /// Serves `files` to who asks at `socket`, which must be an IPv4 one.
    pub fn new(
        socket: UdpSocket,
        files: Arc<dyn Files>,
        settings: Settings,
        observer: Observer,
    ) -> io::Result<Self> {
        Ok(Self { socket: Socket::new(socket)?, files, settings: Arc::new(settings), observer })
    }

    /// Serves until `stop`, then until the transfers begun have ended. Fails when the socket does.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let admission = Admission::new(self.settings.limits);
        let (tasks, keys, repeated) = (JoinSet::new(), HashMap::new(), HashMap::new());
        let mut running = Running { tasks, keys, repeated, admission };
        let mut buffer = [0; REQUEST];
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = running.tasks.join_next_with_id() => running.forget(ended),
                arrival = self.socket.receive(&mut buffer) => {
                    let arrival = arrival?;
                    let datagram = buffer.get(..arrival.length).unwrap_or_default();
                    if let Err(error) = self.take(arrival, datagram, &mut running) {
                        self.deny(arrival, error).await;
                    }
                }
            }
        }
        while running.tasks.join_next().await.is_some() {}
        Ok(())
    }

    /// Begins a transfer, or says with which error to answer. What is not a request and not an error is one.
    fn take(&self, arrival: Arrival, datagram: &[u8], running: &mut Running) -> Result<(), Packet> {
        let source = *arrival.source.ip();
        let busy = |_| Packet::error(Code::UNDEFINED, "busy");
        running.admission.request(source, Instant::now().into_std()).map_err(busy)?;
        let request = match Packet::parse(datagram) {
            Ok(Packet::Read(request)) => Arc::new(request),
            Ok(Packet::Write(_)) => {
                return Err(Packet::error(Code::ACCESS_VIOLATION, "access violation"));
            }
            // Nobody answers an error, and an acknowledgement has lost its way.
            Ok(Packet::Error { .. } | Packet::Ack(_)) => return Ok(()),
            Ok(Packet::Data { .. } | Packet::OptionAck(_)) | Err(_) => {
                return Err(Packet::error(
                    Code::ILLEGAL_OPERATION,
                    "only read requests are served here",
                ));
            }
        };
        let key = Key { client: arrival.source, request };
        if let Some(again) = running.repeated.get(&key) {
            again.notify_one();
            return Ok(());
        }
        running.admission.begin(source).map_err(busy)?;
        self.begin(key, arrival.local, running);
        Ok(())
    }

    fn begin(&self, key: Key, local: Ipv4Addr, running: &mut Running) {
        let again = Arc::new(Notify::new());
        let (files, settings, observer) =
            (self.files.clone(), self.settings.clone(), self.observer.clone());
        let Key { client, request } = key.clone();
        let name = String::from_utf8_lossy(&request.name).into_owned();
        let span = tracing::info_span!("tftp", client = %client, file = name);
        let rung = again.clone();
        let task = async move {
            let (verdict, octets) = match Line::open(client, local, rung, &settings).await {
                Ok(line) => line.serve(&request, files.as_ref(), &settings).await,
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "no socket for a transfer"
                    );
                    (Verdict::Broken, 0)
                }
            };
            tracing::info!(result = verdict.label(), octets, "request ended");
            observer(Ended { client, name, verdict, octets });
        };
        let id = running.tasks.spawn(task.instrument(span)).id();
        running.keys.insert(id, key.clone());
        running.repeated.insert(key, again);
    }

    async fn deny(&self, arrival: Arrival, error: Packet) {
        let sent = self
            .socket
            .send(&error.encode(), arrival.source, arrival.local, arrival.interface)
            .await;
        if let Err(error) = sent {
            tracing::debug!(error = &error as &dyn std::error::Error, "error not sent");
        }
    }
}

impl Running {
    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        if let Some(key) = self.keys.remove(&id) {
            self.repeated.remove(&key);
            self.admission.end(*key.client.ip());
        }
    }
}
