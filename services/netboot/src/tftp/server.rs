//! The server: one socket for requests, and a task with a socket of its own for every transfer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::{Admission, Limits};
use super::files::Files;
use super::negotiation::Offer;
use super::packet::{Code, Packet, Request};
use super::serving::{Line, Shared};
use super::transfer::Outcome;
use crate::datagram::{Arrival, Socket};

/// The longest request read: RFC 2347 allows 512 octets.
const REQUEST: usize = 1024;
/// How many answers of a client may wait, where there is one port for all.
const INBOX: usize = 32;

/// How the server serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it grants.
    pub offer: Offer,
    /// How much it takes on.
    pub limits: Limits,
    /// The ports transfers are sent from; 0 stands for any free one.
    pub ports: RangeInclusive<u16>,
    /// Whether transfers are sent from the port that was asked, for paths that are closed to any other.
    pub single_port: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let (offer, limits) = (Offer::default(), Limits::default());
        Self { offer, limits, ports: 0..=0, single_port: false }
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
    socket: Arc<Socket>,
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
    /// Where a client's answers go that come to the one port there is.
    inboxes: HashMap<SocketAddrV4, mpsc::Sender<Vec<u8>>>,
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
        let socket = Arc::new(Socket::new(socket)?);
        Ok(Self { socket, files, settings: Arc::new(settings), observer })
    }

    /// Serves until `stop`, then until the transfers begun have ended. Fails when the socket does.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let admission = Admission::new(self.settings.limits);
        let (tasks, keys, repeated) = (JoinSet::new(), HashMap::new(), HashMap::new());
        let inboxes = HashMap::new();
        let mut running = Running { tasks, keys, repeated, inboxes, admission };
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
        // An answer in a transfer is no request, and is not counted as one. One too many counts as lost.
        if let (Some(inbox), [0, 4 | 5, ..]) = (running.inboxes.get(&arrival.source), datagram) {
            let _full = inbox.try_send(datagram.to_vec());
            return Ok(());
        }
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
        self.begin(key, arrival, running);
        Ok(())
    }

    fn begin(&self, key: Key, arrival: Arrival, running: &mut Running) {
        let again = Arc::new(Notify::new());
        let (files, settings, observer) =
            (self.files.clone(), self.settings.clone(), self.observer.clone());
        let Key { client, request } = key.clone();
        let name = String::from_utf8_lossy(&request.name).into_owned();
        let span = tracing::info_span!("tftp", client = %client, file = name);
        let rung = again.clone();
        let shared = self.settings.single_port.then(|| {
            let (inbox, answers) = mpsc::channel(INBOX);
            running.inboxes.insert(client, inbox);
            Shared { socket: self.socket.clone(), arrival, answers }
        });
        let task = async move {
            let line = match shared {
                Some(shared) => Ok(Line::on(shared, rung)),
                None => Line::open(client, arrival.local, rung, &settings).await,
            };
            let (verdict, octets) = match line {
                Ok(mut line) => line.serve(&request, files.as_ref(), &settings).await,
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
            // Unless the next transfer from the same port has one of its own already.
            if self.inboxes.get(&key.client).is_some_and(mpsc::Sender::is_closed) {
                self.inboxes.remove(&key.client);
            }
            self.admission.end(*key.client.ip());
        }
    }
}
