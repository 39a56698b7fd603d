//! Serves one request: connects a [`Transfer`] with a socket and a file.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::pin::{Pin, pin};
use std::sync::Arc;

use runtime::clock::Clock;
use tftp::packet::FileRequest;
use tftp::{
    Burst, ClientPacket, ErrorCode, Event, NextStep, Transfer, TransferMode, TransferOptions,
    TransferOutcome, error_packet,
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

/// The socket of a transfer.
#[derive(Debug)]
pub(super) enum SessionSocket {
    /// On any free port of the address that received the request.
    Own(UdpSocket),
    /// The socket of the server, if all transfers share it.
    Shared {
        socket: Arc<Socket>,
        /// The arrival of the request.
        arrival: Arrival,
        /// The client's packets.
        packets: mpsc::Receiver<Vec<u8>>,
    },
}

/// The end of a session.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) result: RequestResult,
    /// The file that was requested. None: the name stands for none.
    pub(super) file: Option<RequestedFile>,
    pub(super) acknowledged_bytes: u64,
}

/// The conversation with one client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: SessionSocket,
    pub(super) client: SocketAddrV4,
    /// Notified when the request is repeated.
    pub(super) repeated: Arc<Notify>,
}

impl Session {
    /// Serves `request` to its end.
    pub(super) async fn serve(
        &mut self,
        request: &FileRequest,
        files: &dyn FileSource,
        settings: &Settings,
    ) -> Served {
        let mut requested = None;
        let (mode, file) = match self.open_file(request, files, &mut requested).await {
            Ok(opened) => opened,
            Err(error) => {
                if let FileError::Unreadable(source) = &error {
                    tracing::error!(error = runtime::cause(source), "file cannot be read");
                }
                self.send_error(error.code(), &error.to_string()).await;
                let result = RequestResult::Refused(error.code().0);
                return Served { result, file: requested, acknowledged_bytes: 0 };
            }
        };
        let size = (mode == TransferMode::Octet).then_some(file.size());
        let options = TransferOptions::negotiate(&request.options, size);
        let mut transfer = Transfer::new(options, settings.clock.monotonic());
        let result = self.run(&mut transfer, FileReader::new(file, mode), &settings.clock).await;
        let result = match result {
            Ok(outcome) => {
                if outcome == TransferOutcome::TimedOut {
                    self.send_error(ErrorCode::UNDEFINED, "timed out").await;
                }
                RequestResult::Transfer(outcome)
            }
            Err(error) => {
                tracing::error!(
                    error = runtime::cause(&error),
                    "transfer ended: file cannot be read"
                );
                self.send_error(ErrorCode::UNDEFINED, "file cannot be read").await;
                RequestResult::Failed
            }
        };
        Served { result, file: requested, acknowledged_bytes: transfer.acknowledged_bytes() }
    }

    /// Opens the first file that the name of `request` may stand for and that exists. `requested`
    /// is set to it, or to the likeliest one if none exists.
    async fn open_file(
        &self,
        request: &FileRequest,
        files: &dyn FileSource,
        requested: &mut Option<RequestedFile>,
    ) -> Result<(TransferMode, OpenFile), FileError> {
        let mode = TransferMode::of(request).ok_or(FileError::UnknownMode)?;
        for file in RequestedFile::possible(&request.name)? {
            match files.open(&file, *self.client.ip()).await {
                Ok(opened) => {
                    if RequestedFile::parse(&request.name).ok().as_ref() != Some(&file) {
                        tracing::info!(served = %file, "octets after the file name dropped");
                    }
                    *requested = Some(file);
                    return Ok((mode, opened));
                }
                Err(FileError::NotFound) => {
                    requested.get_or_insert(file);
                }
                Err(error) => {
                    *requested = Some(file);
                    return Err(error);
                }
            }
        }
        Err(FileError::NotFound)
    }

    async fn run(
        &mut self,
        transfer: &mut Transfer,
        mut file: FileReader,
        clock: &Clock,
    ) -> io::Result<TransferOutcome> {
        let mut timer = pin!(tokio::time::sleep_until(transfer.deadline.into()));
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
            let deadline = Instant::from(transfer.deadline);
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
                Some(ClientPacket::Ack(block)) => return Event::Acknowledged(block),
                Some(ClientPacket::Error(code)) => return Event::ClientError(code),
                Some(ClientPacket::Read(_) | ClientPacket::Write) | None => {}
            }
        }
    }

    async fn send_error(&self, code: ErrorCode, text: &str) {
        let packet = error_packet(code, text);
        self.send(Burst { bytes: &packet, packet_bytes: packet.len() }).await;
    }

    /// Sends `burst`. A packet that cannot be sent counts as lost on the way: it is retransmitted.
    async fn send(&self, Burst { bytes, packet_bytes }: Burst<'_>) {
        let (socket, source) = match &self.socket {
            SessionSocket::Own(socket) => (socket, None),
            SessionSocket::Shared { socket, arrival, .. } => {
                (&socket.0, Some((arrival.local, arrival.interface)))
            }
        };
        if let Err(error) = send_all(socket, bytes, packet_bytes, self.client, source).await {
            tracing::debug!(error = runtime::cause(&error), "packet not sent");
        }
    }
}

impl SessionSocket {
    /// Receives the next packet of `client`; none if it is no packet of a client. Other senders get an error (RFC 1350, section 4).
    async fn receive(&mut self, client: SocketAddrV4) -> Option<ClientPacket> {
        let socket = match self {
            Self::Own(socket) => socket,
            Self::Shared { packets, .. } => match packets.recv().await {
                Some(packet) => return ClientPacket::parse(&packet),
                // The server has stopped: the transfer goes on by its timer.
                None => return std::future::pending().await,
            },
        };
        let mut buffer = [0; MAX_PACKET_BYTES];
        loop {
            // An error of the network is temporary; if it is not, the deadline ends the transfer.
            let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
            if source == SocketAddr::V4(client) {
                return ClientPacket::parse(buffer.get(..length).unwrap_or_default());
            }
            let error = error_packet(ErrorCode::UNKNOWN_TRANSFER, "unknown transfer");
            let _ = socket.send_to(&error, source).await;
        }
    }
}
