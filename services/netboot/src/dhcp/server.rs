//! The sockets: packets in, [`answer`](super::answer()), packets out.
//!
//! One loop a port. An answer takes microseconds and waits for nobody, so the kernel's receive buffer is the only queue, and
//! a rack that is powered on at once finds room in it.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::{Destination, Link, MessageType, Packet, Port, Received, Silence, answer};
use crate::Mac;
use crate::boots::Boots;
use crate::datagram::{Arrival, Socket};
use crate::metrics::Metrics;

/// The longest request read.
const LONGEST: usize = 4096;

/// Answers DHCP on one link.
#[derive(Debug)]
pub struct Server {
    /// Who boots what.
    pub boots: Arc<Boots>,
    /// The link.
    pub link: Link,
    /// What is counted.
    pub metrics: Metrics,
    /// Told which machine's firmware asked for an address: the first sign of a new boot.
    pub firmware: mpsc::Sender<String>,
    /// When an address was last found in use by somebody else.
    pub declined: Mutex<HashMap<Mac, Instant>>,
}

/// A socket on `port` of the interface. No other server on this host may share the port: it would take packets unseen.
pub fn bind(interface: &str, port: u16) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
    Socket::new(UdpSocket::from_std(socket.into())?)
}

impl Server {
    /// Answers what comes to `socket`, which is `port`, until `stop`. Fails when the socket does.
    pub async fn run(
        self: Arc<Self>,
        socket: Socket,
        port: Port,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut buffer = vec![0; LONGEST];
        while let Some(arrival) = stop.run_until_cancelled(socket.receive(&mut buffer)).await {
            let arrival = arrival?;
            let datagram = buffer.get(..arrival.length).unwrap_or_default();
            let Some((reply, to)) = self.judge(datagram, &arrival, port) else { continue };
            let sent = socket.send(&reply, to, self.link.id, arrival.interface).await;
            if let Err(error) = sent {
                tracing::warn!(error = &error as &dyn std::error::Error, %to, "answer not sent");
            }
        }
        Ok(())
    }

    /// The answer to a datagram and where it goes, if it is answered.
    fn judge(
        &self,
        datagram: &[u8],
        arrival: &Arrival,
        port: Port,
    ) -> Option<(Vec<u8>, SocketAddrV4)> {
        let request = match Packet::parse_request(datagram) {
            Ok(request) => request,
            Err(malformed) => {
                self.metrics.dropped(malformed.label());
                return None;
            }
        };
        let mac = request.mac();
        let known = mac.and_then(|mac| self.boots.index().by_mac(mac));
        let decision =
            self.boots.decision(known.as_ref(), self.boots.index().feed(), SystemTime::now());
        let mut reservation = known.as_ref().and_then(crate::index::Known::reservation);
        if let (Some(reservation), Some(mac)) = (&mut reservation, mac) {
            reservation.declined = self.declined(mac);
        }
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        let offer = decision.offer();
        let outcome =
            answer(&request, received, reservation.as_ref(), &self.link, offer, Instant::now());
        let span =
            tracing::debug_span!("dhcp", xid = request.xid, mac = mac.map(tracing::field::display));
        let _entered = span.enter();
        if let Some(known) = &known {
            self.note_firmware(&request, &known.hardware.id);
        }
        match outcome {
            Ok(reply) => {
                let kind = reply.packet.kind().map_or("none", label);
                tracing::info!(kind, boot = %decision.fact, ?offer, "answered");
                self.metrics.replied(kind);
                let to = match reply.to {
                    Destination::Link => SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
                    Destination::Host(to) => to,
                };
                Some((reply.encode().ok()?, to))
            }
            Err(silence) => {
                self.unanswered(silence, mac);
                None
            }
        }
    }

    fn unanswered(&self, silence: Silence, mac: Option<Mac>) {
        tracing::debug!(reason = %silence, "not answered");
        self.metrics.dropped(silence.label());
        if let (Silence::Declined(address), Some(mac)) = (silence, mac) {
            tracing::warn!(%address, "address in use by somebody else");
            let mut declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
            declined.insert(mac, Instant::now());
        }
    }

    fn declined(&self, mac: Mac) -> Option<Instant> {
        self.declined.lock().unwrap_or_else(PoisonError::into_inner).get(&mac).copied()
    }

    /// Firmware that asks is a machine that has just been started; many a network interface has iPXE for its firmware.
    fn note_firmware(&self, request: &Packet, hardware: &str) {
        let firmware = Client::of(request, None).class.boots();
        if firmware && request.kind() == Some(MessageType::Discover) {
            // Best effort: with the queue full, the worker's new boot id says the same later.
            let _full = self.firmware.try_send(hardware.to_owned());
        }
    }
}

fn label(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Offer => "offer",
        MessageType::Ack => "ack",
        MessageType::Nak => "nak",
        MessageType::Discover
        | MessageType::Request
        | MessageType::Decline
        | MessageType::Release
        | MessageType::Inform
        | MessageType::Other(_) => "other",
    }
}
