//! The server: one socket for requests, and a task with its own socket for each transfer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use runtime::clock::Clock;
use tftp::packet::FileRequest;
use tftp::{ClientPacket, ErrorCode, TransferOutcome, error_packet};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::{Admission, Limits};
use super::files::FileSource;
use super::requested_file::RequestedFile;
use super::session::{Served, Session, SessionSocket};
use crate::datagram::{Arrival, Socket};

/// The longest request that is read. RFC 2347 allows 512 bytes.
const MAX_REQUEST_BYTES: usize = 1024;
/// Packets of a client that may wait for its transfer if all transfers share one port.
const MAX_QUEUED_PACKETS: usize = 32;

/// Settings of the server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits of requests and transfers.
    pub limits: Limits,
    /// True if transfers are sent from the port that receives requests, for networks that filter other ports.
    pub single_port: bool,
    /// The clock of transfers and limits.
    pub clock: Clock,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestResult {
    /// There was a transfer.
    Transfer(TransferOutcome),
    /// There was no transfer; the client got this error code.
    Refused(u16),
    /// An error of the server ended it.
    Failed,
}

impl RequestResult {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Transfer(TransferOutcome::Complete) => "complete",
            Self::Transfer(TransferOutcome::SizeProbe) => "size_probe",
            Self::Transfer(TransferOutcome::Aborted(_)) => "aborted",
            Self::Transfer(TransferOutcome::TimedOut) => "timed_out",
            Self::Transfer(TransferOutcome::Restarted) => "restarted",
            Self::Refused(_) => "refused",
            Self::Failed => "broken",
        }
    }
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// The client's address and port.
    pub client: SocketAddrV4,
    /// The file that the client requested. None: the name that it sent stands for none.
    pub file: Option<RequestedFile>,
    /// The result.
    pub result: RequestResult,
    /// Bytes that the client acknowledged, rounded up to whole blocks.
    pub acknowledged_bytes: u64,
}

/// Called for each request that has ended, for metrics and boot timelines. Must not block.
pub type Observer = Arc<dyn Fn(FinishedRequest) + Send + Sync>;

/// Identifies a request in progress: the same request from the same port is a repetition.
type RequestKey = (SocketAddrV4, Arc<FileRequest>);

/// The TFTP server.
pub struct Server {
    socket: Arc<Socket>,
    files: Arc<dyn FileSource>,
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

/// The running sessions. A key is in the maps exactly as long as its task runs.
#[derive(Default)]
struct Sessions {
    tasks: JoinSet<()>,
    keys: HashMap<Id, RequestKey>,
    /// Notified when a request is repeated.
    repeated: HashMap<RequestKey, Arc<Notify>>,
    /// The queues of clients' packets if all transfers share one port.
    queues: HashMap<SocketAddrV4, mpsc::Sender<Vec<u8>>>,
}

impl Server {
    /// Creates a server that receives requests at `socket`, which must be an IPv4 socket.
    pub fn new(
        socket: UdpSocket,
        files: Arc<dyn FileSource>,
        settings: Settings,
        observer: Observer,
    ) -> io::Result<Self> {
        let socket = Arc::new(Socket::new(socket)?);
        Ok(Self { socket, files, settings: Arc::new(settings), observer })
    }

    /// Serves until `stop`, then until the running transfers have ended. Fails if the socket fails.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let mut sessions = Sessions::default();
        let mut admission = Admission::new(self.settings.limits);
        let mut buffer = [0; MAX_REQUEST_BYTES];
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = sessions.tasks.join_next_with_id() => {
                    if let Some(client) = sessions.remove(ended) {
                        admission.end_transfer(*client.ip());
                    }
                }
                arrival = self.socket.receive(&mut buffer) => {
                    let arrival = arrival?;
                    let datagram = buffer.get(..arrival.length).unwrap_or_default();
                    let started = self.receive(arrival, datagram, &mut sessions, &mut admission);
                    if let Err(error) = started {
                        self.send_error(arrival, error).await;
                    }
                }
            }
        }
        while sessions.tasks.join_next().await.is_some() {}
        Ok(())
    }

    /// Starts a transfer, or returns the error packet to send.
    fn receive(
        &self,
        arrival: Arrival,
        datagram: &[u8],
        sessions: &mut Sessions,
        admission: &mut Admission,
    ) -> Result<(), Vec<u8>> {
        // An acknowledgement or error in a transfer does not count as a request. One that the queue has no room for is lost.
        if let (Some(queue), [0, 4 | 5, ..]) = (sessions.queues.get(&arrival.source), datagram) {
            let _full = queue.try_send(datagram.to_vec());
            return Ok(());
        }
        let source = *arrival.source.ip();
        let busy = || Err(error_packet(ErrorCode::UNDEFINED, "busy"));
        if !admission.request(source, self.settings.clock.monotonic()) {
            return busy();
        }
        let request = match ClientPacket::parse(datagram) {
            Some(ClientPacket::Read(request)) => Arc::new(request),
            Some(ClientPacket::Write) => {
                return Err(error_packet(ErrorCode::ACCESS_VIOLATION, "access violation"));
            }
            // RFC 1350, section 7: an error is not acknowledged. An acknowledgement belongs to a transfer that has ended.
            Some(ClientPacket::Error(_) | ClientPacket::Ack(_)) => return Ok(()),
            None => {
                let text = "only read requests are served here";
                return Err(error_packet(ErrorCode::ILLEGAL_OPERATION, text));
            }
        };
        let key = (arrival.source, request);
        if let Some(repeated) = sessions.repeated.get(&key) {
            repeated.notify_one();
            return Ok(());
        }
        if !admission.start_transfer(source) {
            return busy();
        }
        self.start_session(key, arrival, sessions);
        Ok(())
    }

    fn start_session(&self, key: RequestKey, arrival: Arrival, sessions: &mut Sessions) {
        let repeated = Arc::new(Notify::new());
        let (files, settings, observer) =
            (self.files.clone(), self.settings.clone(), self.observer.clone());
        let (client, request) = key.clone();
        let file_name = String::from_utf8_lossy(&request.name).into_owned();
        let span = tracing::info_span!("tftp", client = %client, file = file_name);
        let shared = self.settings.single_port.then(|| {
            let (queue, packets) = mpsc::channel(MAX_QUEUED_PACKETS);
            sessions.queues.insert(client, queue);
            SessionSocket::Shared { socket: self.socket.clone(), arrival, packets }
        });
        let repetition = repeated.clone();
        let task = async move {
            let socket = match shared {
                Some(shared) => Ok(shared),
                None => UdpSocket::bind((arrival.local, 0)).await.map(SessionSocket::Own),
            };
            let Served { result, file, acknowledged_bytes } = match socket {
                Ok(socket) => {
                    let mut session = Session { socket, client, repeated: repetition };
                    session.serve(&request, files.as_ref(), &settings).await
                }
                Err(error) => {
                    tracing::error!(error = runtime::cause(&error), "transfer refused: no socket");
                    Served { result: RequestResult::Failed, file: None, acknowledged_bytes: 0 }
                }
            };
            tracing::info!(result = result.label(), bytes = acknowledged_bytes, "request ended");
            observer(FinishedRequest { client, file, result, acknowledged_bytes });
        };
        let id = sessions.tasks.spawn(task.instrument(span)).id();
        sessions.keys.insert(id, key.clone());
        sessions.repeated.insert(key, repeated);
    }

    async fn send_error(&self, arrival: Arrival, error: Vec<u8>) {
        let Arrival { source, local, interface, .. } = arrival;
        if let Err(error) = self.socket.send(&error, source, local, interface).await {
            tracing::debug!(error = runtime::cause(&error), "error packet not sent");
        }
    }
}

impl Sessions {
    /// Removes a session that has ended. Returns its client.
    fn remove(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) -> Option<SocketAddrV4> {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let key = self.keys.remove(&id)?;
        self.repeated.remove(&key);
        // The next transfer from the same port may have inserted its queue already.
        if self.queues.get(&key.0).is_some_and(mpsc::Sender::is_closed) {
            self.queues.remove(&key.0);
        }
        Some(key.0)
    }
}
