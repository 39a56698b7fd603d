//! One transfer with its own socket: the thin part between [`Transfer`] and the network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

use super::blocks::Blocks;
use super::files::{File, Files, Refusal};
use super::name::Name;
use super::negotiation::{Mode, Terms};
use super::packet::{Code, NotTftp, Packet, Request};
use super::server::{Settings, Verdict};
use super::transfer::{Event, Next, Outcome, Transfer};
use super::window::Burst;
use crate::datagram::{Arrival, Socket, send_all};

/// The longest packet a client sends here: an error and its text.
const RECEIVED: usize = 512;

/// The server's own socket, where all transfers go by it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The socket.
    pub(super) socket: Arc<Socket>,
    /// How the request came.
    pub(super) arrival: Arrival,
    /// What the client answers.
    pub(super) answers: mpsc::Receiver<Vec<u8>>,
}

/// What a transfer goes by.
#[derive(Debug)]
enum Wire {
    Own(UdpSocket),
    Shared(Shared),
}

/// What a transfer goes by, and whom it talks to.
#[derive(Debug)]
pub(super) struct Line {
    wire: Wire,
    client: SocketAddrV4,
    /// Rung when the same request comes again.
    again: Arc<Notify>,
}

/// Why a request gets an error for an answer.
struct Denied(Code, String);

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        if let Refusal::Unreadable(error) = &refusal {
            tracing::error!(error = error as &dyn std::error::Error, "file cannot be read");
        }
        Self(refusal.code(), refusal.to_string())
    }
}

impl Line {
    /// A socket on `local`, the address the client asked, at the first free of the configured ports.
    pub(super) async fn open(
        client: SocketAddrV4,
        local: Ipv4Addr,
        again: Arc<Notify>,
        settings: &Settings,
    ) -> io::Result<Self> {
        let mut refused = io::ErrorKind::AddrInUse.into();
        for port in settings.ports.clone() {
            match UdpSocket::bind((local, port)).await {
                Ok(socket) => return Ok(Self { wire: Wire::Own(socket), client, again }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// The server's own socket, to the client that asked there.
    pub(super) fn on(shared: Shared, again: Arc<Notify>) -> Self {
        Self { client: shared.arrival.source, wire: Wire::Shared(shared), again }
    }

    /// Serves `request` to its end, and says how many octets the client has of the file.
    pub(super) async fn serve(
        &mut self,
        request: &Request,
        files: &dyn Files,
        settings: &Settings,
    ) -> (Verdict, u64) {
        let (mode, file) = match self.find(request, files).await {
            Ok(found) => found,
            Err(Denied(code, text)) => {
                self.say(&Packet::error(code, &text)).await;
                return (Verdict::Refused(code.0), 0);
            }
        };
        let size = (mode == Mode::Octet).then_some(file.size);
        let terms = Terms::agree(&request.options, size, &settings.offer);
        let mut transfer = Transfer::new(terms, Instant::now().into_std());
        let ended = self.run(&mut transfer, Blocks::new(file.content, mode)).await;
        let delivered = transfer.delivered();
        match ended {
            Ok(outcome) => {
                if outcome == Outcome::TimedOut {
                    self.say(&Packet::error(Code::UNDEFINED, "timed out")).await;
                }
                (Verdict::Served(outcome), delivered)
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "transfer broke off");
                self.say(&Packet::error(Code::UNDEFINED, "file cannot be read")).await;
                (Verdict::Broken, delivered)
            }
        }
    }

    async fn find(&self, request: &Request, files: &dyn Files) -> Result<(Mode, File), Denied> {
        let mode =
            Mode::of(request).ok_or_else(|| Denied(Code::UNDEFINED, "unknown mode".into()))?;
        let name = Name::try_from(request.name.as_slice());
        let name = name.map_err(|bad| Denied(Code::ACCESS_VIOLATION, bad.to_string()))?;
        if name == Name::Refused {
            return Err(Refusal::NotFound.into());
        }
        Ok((mode, files.open(&name, *self.client.ip()).await?))
    }

    async fn run(&mut self, transfer: &mut Transfer, mut blocks: Blocks) -> io::Result<Outcome> {
        let mut clock = pin!(tokio::time::sleep_until(transfer.deadline().into()));
        let mut next = Next::Send;
        loop {
            match next {
                Next::End(outcome) => return Ok(outcome),
                Next::Wait => {}
                Next::Send => {
                    while transfer.wants() {
                        transfer.push(blocks.next(transfer.block()).await?);
                    }
                    self.send(transfer.burst(Instant::now().into_std())).await;
                }
            }
            // One that is set too early is looked at when it rings: to set it for every block costs more.
            let deadline = Instant::from(transfer.deadline());
            if clock.is_elapsed() || deadline < clock.deadline() {
                clock.as_mut().reset(deadline);
            }
            let event = self.event(clock.as_mut()).await;
            next = transfer.on(&event, Instant::now().into_std());
        }
    }

    /// Waits for what concerns this transfer, or until `clock` rings.
    async fn event(&mut self, mut clock: Pin<&mut Sleep>) -> Event {
        loop {
            let received = tokio::select! {
                biased;
                received = self.wire.receive(self.client) => received,
                () = self.again.notified() => return Event::AskedAgain,
                () = clock.as_mut() => return Event::Overdue,
            };
            match received {
                Ok(Packet::Ack(block)) => return Event::Acked(block),
                Ok(Packet::Error { code, .. }) => return Event::Failed(code),
                Ok(
                    Packet::Read(_) | Packet::Write(_) | Packet::Data { .. } | Packet::OptionAck(_),
                )
                | Err(_) => {}
            }
        }
    }

    async fn say(&self, packet: &Packet) {
        self.send(Burst::one(&packet.encode())).await;
    }

    /// What cannot be sent counts as lost on the way, and is sent again.
    async fn send(&self, Burst { octets, each }: Burst<'_>) {
        let sent = match &self.wire {
            Wire::Own(socket) => send_all(socket, octets, each, self.client, None).await,
            Wire::Shared(Shared { socket, arrival: Arrival { local, interface, .. }, .. }) => {
                socket.send_all(octets, each, self.client, *local, *interface).await
            }
        };
        if let Err(error) = sent {
            tracing::debug!(error = &error as &dyn std::error::Error, "packet not sent");
        }
    }
}

impl Wire {
    /// The next packet from `client`. Another one is told that it is not meant.
    async fn receive(&mut self, client: SocketAddrV4) -> Result<Packet, NotTftp> {
        let socket = match self {
            Self::Own(socket) => socket,
            Self::Shared(Shared { answers, .. }) => match answers.recv().await {
                Some(packet) => return Packet::parse(&packet),
                // The server is at its end: what is under way goes on by the clock.
                None => return std::future::pending().await,
            },
        };
        let mut buffer = [0; RECEIVED];
        loop {
            // An error here is a passing trouble of the network's; the deadline ends what it does not.
            let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
            if source == SocketAddr::V4(client) {
                return Packet::parse(buffer.get(..length).unwrap_or_default());
            }
            let stranger = Packet::error(Code::UNKNOWN_TRANSFER, "unknown transfer").encode();
            let _ = socket.send_to(&stranger, source).await;
        }
    }
}
