//! Serves one request: connects a [`Transfer`] with a socket and a file.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::{Pin, pin};
use std::sync::Arc;

use runtime::clock::Clock;
use tftp::packet::FileRequest;
use tftp::{
    Burst, ErrorCode, Event, NextStep, NotTftp, Packet, Transfer, TransferMode, TransferOptions,
    TransferOutcome,
};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

use super::file_reader::FileReader;
use super::files::{FileError, FileSource, OpenFile};
use super::requested_file::RequestedFile;
use super::server::{RequestResult, Settings};
use crate::datagram::{Arrival, Socket, send_all};

/// The longest packet that a client sends in a transfer: an error and its text.
const MAX_PACKET_BYTES: usize = 512;

/// The socket of the server, if all transfers share it.
#[derive(Debug)]
pub(super) struct SharedSocket {
    pub(super) socket: Arc<Socket>,
    /// The arrival of the request.
    pub(super) arrival: Arrival,
    /// The client's packets.
    pub(super) packets: mpsc::Receiver<Vec<u8>>,
}

#[derive(Debug)]
enum SessionSocket {
    Own(UdpSocket),
    Shared(SharedSocket),
}

/// The conversation with one client.
#[derive(Debug)]
pub(super) struct Session {
    socket: SessionSocket,
    client: SocketAddrV4,
    /// Notified when the request is repeated.
    repeated: Arc<Notify>,
}

/// The error that refuses a request.
struct RequestRefused(ErrorCode, String);

impl From<FileError> for RequestRefused {
    fn from(error: FileError) -> Self {
        if let FileError::Unreadable(source) = &error {
            tracing::error!(error = source as &dyn std::error::Error, "file cannot be read");
        }
        Self(error.code(), error.to_string())
    }
}

impl Session {
    /// Opens a socket at `local`, the address that received the request, on the first free port of the settings.
    pub(super) async fn open(
        client: SocketAddrV4,
        local: Ipv4Addr,
        repeated: Arc<Notify>,
        settings: &Settings,
    ) -> io::Result<Self> {
        let mut in_use = io::ErrorKind::AddrInUse.into();
        for port in settings.ports.clone() {
            match UdpSocket::bind((local, port)).await {
                Ok(socket) => {
                    return Ok(Self { socket: SessionSocket::Own(socket), client, repeated });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => in_use = error,
                Err(error) => return Err(error),
            }
        }
        Err(in_use)
    }

    /// Creates a session on the server's own socket.
    pub(super) fn on_shared_socket(shared: SharedSocket, repeated: Arc<Notify>) -> Self {
        let client = shared.arrival.source;
        Self { client, socket: SessionSocket::Shared(shared), repeated }
    }

    /// Serves `request` to its end. Returns the acknowledged bytes too.
    pub(super) async fn serve(
        &mut self,
        request: &FileRequest,
        files: &dyn FileSource,
        settings: &Settings,
    ) -> (RequestResult, u64) {
        let (mode, file) = match self.open_file(request, files).await {
            Ok(opened) => opened,
            Err(RequestRefused(code, text)) => {
                self.send_packet(&Packet::error(code, &text)).await;
                return (RequestResult::Refused(code.0), 0);
            }
        };
        let size = (mode == TransferMode::Octet).then_some(file.size);
        let options = TransferOptions::negotiate(&request.options, size, &settings.options);
        let mut transfer = Transfer::new(options, settings.clock.monotonic());
        let file = FileReader::new(file.content, mode);
        let result = match self.run(&mut transfer, file, &settings.clock).await {
            Ok(outcome) => {
                if outcome == TransferOutcome::TimedOut {
                    self.send_packet(&Packet::error(ErrorCode::UNDEFINED, "timed out")).await;
                }
                RequestResult::Transfer(outcome)
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "transfer ended: file cannot be read"
                );
                let packet = Packet::error(ErrorCode::UNDEFINED, "file cannot be read");
                self.send_packet(&packet).await;
                RequestResult::Failed
            }
        };
        (result, transfer.acknowledged_bytes())
    }

    async fn open_file(
        &self,
        request: &FileRequest,
        files: &dyn FileSource,
    ) -> Result<(TransferMode, OpenFile), RequestRefused> {
        let unknown_mode = || RequestRefused(ErrorCode::UNDEFINED, "unknown mode".into());
        let mode = TransferMode::of(request).ok_or_else(unknown_mode)?;
        let file = RequestedFile::parse(&request.name)
            .map_err(|error| RequestRefused(ErrorCode::ACCESS_VIOLATION, error.to_string()))?;
        if file == RequestedFile::Refused {
            return Err(FileError::NotFound.into());
        }
        Ok((mode, files.open(&file, *self.client.ip()).await?))
    }

    async fn run(
        &mut self,
        transfer: &mut Transfer,
        mut file: FileReader,
        clock: &Clock,
    ) -> io::Result<TransferOutcome> {
        let mut timer = pin!(tokio::time::sleep_until(transfer.deadline().into()));
        let mut next = NextStep::Send;
        loop {
            match next {
                NextStep::End(outcome) => return Ok(outcome),
                NextStep::Wait => {}
                NextStep::Send => {
                    while transfer.needs_block() {
                        transfer.push_block(file.next(transfer.block_bytes()).await?);
                    }
                    self.send(transfer.next_burst(clock.monotonic())).await;
                }
            }
            // A timer that is set too early is checked when it fires: setting it for each block costs more.
            let deadline = Instant::from(transfer.deadline());
            if timer.is_elapsed() || deadline < timer.deadline() {
                timer.as_mut().reset(deadline);
            }
            let event = self.next_event(timer.as_mut()).await;
            next = transfer.handle(&event, clock.monotonic());
        }
    }

    /// Waits for the next event of this transfer, at most until `timer` fires.
    async fn next_event(&mut self, mut timer: Pin<&mut Sleep>) -> Event {
        loop {
            let received = tokio::select! {
                biased;
                received = self.socket.receive(self.client) => received,
                () = self.repeated.notified() => return Event::RequestRepeated,
                () = timer.as_mut() => return Event::DeadlinePassed,
            };
            match received {
                Ok(Packet::Ack(block)) => return Event::Acknowledged(block),
                Ok(Packet::Error { code, .. }) => return Event::ClientError(code),
                Ok(
                    Packet::Read(_) | Packet::Write(_) | Packet::Data { .. } | Packet::OptionAck(_),
                )
                | Err(_) => {}
            }
        }
    }

    async fn send_packet(&self, packet: &Packet) {
        self.send(Burst::one(&packet.encode())).await;
    }

    /// Sends `burst`. A packet that cannot be sent counts as lost on the way: it is retransmitted.
    async fn send(&self, Burst { bytes, packet_bytes }: Burst<'_>) {
        let sent = match &self.socket {
            SessionSocket::Own(socket) => {
                send_all(socket, bytes, packet_bytes, self.client, None).await
            }
            SessionSocket::Shared(SharedSocket { socket, arrival, .. }) => {
                let Arrival { local, interface, .. } = *arrival;
                socket.send_all(bytes, packet_bytes, self.client, local, interface).await
            }
        };
        if let Err(error) = sent {
            tracing::debug!(error = &error as &dyn std::error::Error, "packet not sent");
        }
    }
}

impl SessionSocket {
    /// Receives the next packet of `client`. Other senders get an error (RFC 1350, section 4).
    async fn receive(&mut self, client: SocketAddrV4) -> Result<Packet, NotTftp> {
        let socket = match self {
            Self::Own(socket) => socket,
            Self::Shared(SharedSocket { packets, .. }) => match packets.recv().await {
                Some(packet) => return Packet::parse(&packet),
                // The server has stopped: the transfer goes on by its timer.
                None => return std::future::pending().await,
            },
        };
        let mut buffer = [0; MAX_PACKET_BYTES];
        loop {
            // An error of the network is temporary; if it is not, the deadline ends the transfer.
            let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
            if source == SocketAddr::V4(client) {
                return Packet::parse(buffer.get(..length).unwrap_or_default());
            }
            let error = Packet::error(ErrorCode::UNKNOWN_TRANSFER, "unknown transfer").encode();
            let _ = socket.send_to(&error, source).await;
        }
    }
}
