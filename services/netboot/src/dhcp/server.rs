//! The sockets: packets in, [`answer`](super::answer()), packets out.
//!
//! One loop a port. An answer takes microseconds and waits for nobody, so the kernel's receive buffer is the only queue, and
//! a rack that is powered on at once finds room in it. Only the ACK of a lent address waits, for the store, and in a task of
//! its own.

mod leased;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::leased::{Answer, Question, WAITING};
use super::chain::{Chain, Message};
use super::client::{Class, Client};
use super::limits::Limits;
use super::recent::{Recent, Sent};
use super::relay::relayed;
use super::{
    BootOffer, Destination, Link, MessageType, Packet, Port, Received, Reply, Silence, answer,
};
use crate::Mac;
use crate::boots::Boots;
use crate::datagram::{Arrival, Socket};
use crate::decision::Decision;
use crate::index::Known;
use crate::lending::Lending;
use crate::metrics::Metrics;
use crate::ra::Booting;
use crate::timeline::{self, What};

/// The longest request read.
const LONGEST: usize = 4096;

/// Answers DHCP on one link.
#[derive(Debug)]
pub struct Server {
    boots: Arc<Boots>,
    link: Link,
    metrics: Metrics,
    /// Told which machine's firmware asked for an address: the first sign of a new boot.
    firmware: mpsc::Sender<String>,
    chain: Option<Arc<Mutex<Chain>>>,
    /// Told which machine's iPXE was answered.
    booting: Booting,
    /// When an address was last found in use by somebody else.
    declined: Mutex<HashMap<Mac, Instant>>,
    limits: Mutex<Limits>,
    recent: Mutex<Recent>,
    /// Where addresses are lent.
    lending: Option<Arc<Lending>>,
    /// Places for answers that wait for the store.
    waiting: Arc<Semaphore>,
}

/// What becomes of a datagram.
enum Judged {
    Now(Sent),
    Later(Box<(Question, Answer)>),
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
    /// Answers on `link` from what `boots` knows, and tells `firmware` which machine's firmware asked for an address: the
    /// first sign of a new boot. With `chain`, iPXE that is firmware gets a loader first.
    pub fn new(
        boots: Arc<Boots>,
        link: Link,
        metrics: Metrics,
        firmware: mpsc::Sender<String>,
        chain: Option<Arc<Mutex<Chain>>>,
    ) -> Self {
        Self {
            boots,
            link,
            metrics,
            firmware,
            chain,
            booting: Booting::default(),
            declined: Mutex::default(),
            limits: Mutex::new(Limits::new(Instant::now())),
            recent: Mutex::default(),
            lending: None,
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// The same, telling `booting` which machine's iPXE was answered.
    pub fn telling(self, booting: Booting) -> Self {
        Self { booting, ..self }
    }

    /// The same, lending addresses to machines without one.
    pub fn with_lending(self, lending: Option<Arc<Lending>>) -> Self {
        Self { lending, ..self }
    }

    /// Answers what comes to `socket`, which is `port`, until `stop`. Fails when the socket does.
    pub async fn run(
        self: Arc<Self>,
        socket: Socket,
        port: Port,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let (mut buffer, socket, mut waiting) =
            (vec![0; LONGEST], Arc::new(socket), JoinSet::new());
        while let Some(arrival) = stop.run_until_cancelled(socket.receive(&mut buffer)).await {
            let arrival = arrival?;
            let datagram = buffer.get(..arrival.length).unwrap_or_default();
            while waiting.try_join_next().is_some() {}
            let (reply, to) = match self.judge(datagram, &arrival, port) {
                None => continue,
                Some(Judged::Now(sent)) => sent,
                Some(Judged::Later(later)) => {
                    let (question, answer) = *later;
                    let Ok(place) = self.waiting.clone().try_acquire_owned() else {
                        self.unanswered(Silence::Busy, question.mac);
                        continue;
                    };
                    let settled = self.clone().settle(socket.clone(), question, answer);
                    waiting.spawn(async move {
                        let _place = place;
                        settled.await;
                    });
                    continue;
                }
            };
            let sent = socket.send(&reply, to, self.link.id, arrival.interface).await;
            if let Err(error) = sent {
                tracing::warn!(error = &error as &dyn std::error::Error, %to, "answer not sent");
            }
        }
        Ok(())
    }

    /// The answer to a datagram and where it goes, if it is answered.
    fn judge(&self, datagram: &[u8], arrival: &Arrival, port: Port) -> Option<Judged> {
        let began = Instant::now();
        let request = match Packet::parse_request(datagram) {
            Ok(request) => request,
            Err(malformed) => {
                self.metrics.dropped(malformed.label());
                return None;
            }
        };
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        let Some(mac) = request.mac() else {
            self.metrics.dropped(Silence::Hardware.label());
            return None;
        };
        let (known, now) = (self.known(mac, &request, received), Instant::now());
        let limits = || self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if self.boots.site().rate_limits && !limits().admits(mac, known.is_some(), now) {
            self.metrics.dropped("rate");
            return None;
        }
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = recent().number(datagram, received);
        if let Some(sent) = recent().answer(mac, number, now) {
            self.metrics.replied("again");
            return Some(Judged::Now(sent));
        }
        let answer = self.decide(&request, received, mac, known.as_ref());
        self.metrics.judged(began.elapsed());
        let Some(answer) = answer else {
            // What gave its address back may ask as before, and is answered anew.
            recent().forget(mac);
            return None;
        };
        if answer.claim.is_some() {
            let interface = arrival.interface;
            let question = Question { request, received, mac, interface };
            return Some(Judged::Later(Box::new((question, answer))));
        }
        let sent = (answer.reply.encode().ok()?, answer.to);
        recent().keep(mac, number, now, sent.clone());
        Some(Judged::Now(sent))
    }

    /// The machine that asks: by its Ethernet address, else by the port it is plugged in to.
    fn known(&self, mac: Mac, request: &Packet, received: Received) -> Option<Known> {
        let index = self.boots.index();
        index
            .by_mac(mac)
            .or_else(|| index.by_port(&relayed(request, *received.source.ip(), &self.link)))
    }

    fn decide(
        &self,
        request: &Packet,
        received: Received,
        mac: Mac,
        known: Option<&Known>,
    ) -> Option<Answer> {
        let mut record = known.and_then(Known::reservation);
        if let Some(record) = &mut record {
            record.declined = self.declined(mac);
        }
        let lent = self.lend(request, received, mac, record.as_ref());
        let lent = lent.map_err(|silence| self.unanswered(silence, mac)).ok()?;
        let decision = self.boots.decision_lent(known, &lent, SystemTime::now());
        let offer = self.chained(request, decision.offer());
        let (reservation, link) = lent.terms(record, &self.link);
        let machine = reservation.as_ref();
        let outcome = answer(request, received, machine, &link, offer, Instant::now());
        let span = tracing::debug_span!("dhcp", xid = request.xid, %mac);
        let _entered = span.enter();
        if let Some(known) = known {
            if let Some(uuid) = Client::of(request, None).uuid {
                self.boots.note_uuid(known, uuid);
            }
            self.note_firmware(request, &known.hardware.id);
        }
        self.note_boot(request, &outcome, &decision);
        match outcome {
            Ok(reply) => {
                let kind = reply.packet.kind().map_or("none", label);
                let by_port = known.is_some_and(|known| known.mac != mac);
                tracing::info!(kind, boot = %decision.fact, ?offer, by_port, "answered");
                self.metrics.replied(kind);
                let to = match reply.to {
                    Destination::Link => SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
                    Destination::Host(to) => to,
                };
                let claim = Self::claim(&reply, mac, machine);
                Some(Answer { reply, to, claim })
            }
            Err(silence) if machine.is_some_and(|machine| machine.pool.is_some()) => {
                tracing::debug!(reason = %silence, "not answered");
                self.metrics.dropped(silence.label());
                self.returned(silence, mac);
                None
            }
            Err(silence) => {
                self.unanswered(silence, mac);
                None
            }
        }
    }

    /// What `offer` comes to for an iPXE that is firmware.
    fn chained(&self, request: &Packet, offer: BootOffer) -> BootOffer {
        let (Some(chain), Some(mac), Some(kind)) = (&self.chain, request.mac(), request.kind())
        else {
            return offer;
        };
        let (message, now) = (Message { mac, xid: request.xid, kind }, Instant::now());
        let client = Client::of(request, self.link.own_ipxe.as_deref());
        let mut chain = chain.lock().unwrap_or_else(PoisonError::into_inner);
        match client.class {
            _ if offer != BootOffer::Offered || client.own => {}
            Class::Pxe | Class::Http => chain.firmware(message, now),
            Class::Ipxe { .. } if chain.admits(message, now) => return BootOffer::Chained,
            Class::Ipxe { .. } | Class::Ordinary => {}
        }
        offer
    }

    fn unanswered(&self, silence: Silence, mac: Mac) {
        tracing::debug!(reason = %silence, "not answered");
        self.metrics.dropped(silence.label());
        if let Silence::Declined(address) = silence {
            tracing::warn!(%address, "address in use by somebody else");
            let mut declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
            declined.insert(mac, Instant::now());
        }
    }

    fn note_boot(&self, request: &Packet, outcome: &Result<Reply, Silence>, decision: &Decision) {
        let loader = matches!(Client::of(request, None).class, Class::Ipxe { .. });
        if let (true, true, Some(mac)) = (loader, outcome.is_ok(), request.mac()) {
            self.booting.answered(mac, Instant::now());
        }
        for what in timeline::dhcp::noted(request, outcome, decision) {
            if matches!(what, What::Unknown(_)) {
                self.metrics.unknown_machine();
            }
            let source = Some(request.ciaddr).filter(|address| !address.is_unspecified());
            self.boots.note(request.mac(), source.map(Into::into), what, SystemTime::now());
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

/// What an answer is called, as a metric label, too.
pub(crate) fn label(kind: MessageType) -> &'static str {
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
