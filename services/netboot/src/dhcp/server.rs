//! The sockets: packets in, [`answer`](super::answer()), packets out.
//!
//! One loop a port. An answer takes microseconds and waits for nobody, so the kernel's receive buffer is the only queue, and
//! a rack that is powered on at once finds room in it. Only the ACK of a lent address waits, for the store, and in a task of
//! its own.

mod leased;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::leased::{Answer, WAITING};
use super::client::{Class, Client};
use super::heard::{Asks, Heard};
use super::limits::Limits;
use super::recent::{Recent, Sent};
use super::relay::relayed;
use super::{
    Destination, Link, MessageType, Packet, Port, Received, Reply, Reservation, Silence, answer,
};
use crate::Mac;
use crate::bootscripts::BootScripts;
use crate::datagram::{Arrival, Socket};
use crate::decision::{Decision, FeedState};
use crate::index::Known;
use crate::lending::Lending;
use crate::metrics::Metrics;
use crate::ra::Booting;
use crate::timeline::{self, BootStep, BootSubject, Event};

/// The longest request read.
const LONGEST: usize = 4096;

/// How many requests are answered before others have their turn.
const ROUND: usize = 128;

/// Answers DHCP on one link.
#[derive(Debug)]
pub struct Server {
    boots: Arc<BootScripts>,
    link: Link,
    metrics: Metrics,
    /// Told which machine's firmware asked for an address: the first sign of a new boot.
    firmware: mpsc::Sender<String>,
    heard: Arc<Heard>,
    /// Told which machine's iPXE was answered.
    booting: Booting,
    limits: Mutex<Limits>,
    recent: Mutex<Recent>,
    /// Where addresses are lent.
    lending: Option<Arc<Lending>>,
    /// Places for answers that wait for the store.
    waiting: Arc<Semaphore>,
}

/// A request, read, and how it came.
#[derive(Debug)]
struct Question {
    request: Packet,
    client: Client,
    received: Received,
    mac: Mac,
    /// The interface it came by.
    interface: u32,
    /// When it was read.
    now: Moment,
}

/// One moment by both clocks: one that never is set, and one that people and records go by.
#[derive(Clone, Copy, Debug)]
struct Moment {
    instant: Instant,
    time: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
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
    /// Answers on `link` from what `boots` knows and what was `heard` there, and tells `firmware` which machine's firmware
    /// asked for an address: the first sign of a new boot.
    pub fn new(
        boots: Arc<BootScripts>,
        link: Link,
        metrics: Metrics,
        firmware: mpsc::Sender<String>,
        heard: Arc<Heard>,
    ) -> Self {
        Self {
            boots,
            link,
            metrics,
            firmware,
            heard,
            booting: Booting::default(),
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
        while let Some(readable) = stop.run_until_cancelled(socket.readable()).await {
            readable?;
            let mut left = ROUND;
            while left > 0
                && let Some(arrival) = socket.try_receive(&mut buffer)?
            {
                left -= 1;
                let datagram = buffer.get(..arrival.length).unwrap_or_default();
                match self.judge(datagram, &arrival, port) {
                    None => {}
                    Some(Judged::Now((reply, to))) => {
                        self.send(&socket, &reply, to, arrival.interface).await;
                    }
                    Some(Judged::Later(later)) => self.wait(&mut waiting, &socket, *later),
                }
            }
            while waiting.try_join_next().is_some() {}
            if left == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends what waits for the store in a task of its own, if there is a place for it.
    fn wait(
        self: &Arc<Self>,
        waiting: &mut JoinSet<()>,
        socket: &Arc<Socket>,
        (question, answer): (Question, Answer),
    ) {
        let Ok(place) = self.waiting.clone().try_acquire_owned() else {
            return self.unanswered(Silence::Busy, &question);
        };
        let settled = self.clone().settle(socket.clone(), question, answer);
        waiting.spawn(async move {
            let _place = place;
            settled.await;
        });
    }

    /// What a datagram is answered at once, and where that goes: all there is but sockets and leases.
    pub fn reply(&self, datagram: &[u8], arrival: &Arrival, port: Port) -> Option<Sent> {
        match self.judge(datagram, arrival, port)? {
            Judged::Now(sent) => Some(sent),
            Judged::Later(_) => None,
        }
    }

    async fn send(&self, socket: &Socket, reply: &[u8], to: SocketAddrV4, interface: u32) {
        if let Err(error) = socket.send(reply, to, self.link.id, interface).await {
            tracing::warn!(error = &error as &dyn std::error::Error, %to, "answer not sent");
        }
    }

    /// The answer to a datagram and where it goes, if it is answered.
    fn judge(&self, datagram: &[u8], arrival: &Arrival, port: Port) -> Option<Judged> {
        let question = self.read(datagram, arrival, port)?;
        let Question { received, mac, now, .. } = question;
        let known = self.known(&question);
        let limits = || self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if self.boots.site().rate_limits && !limits().admits(mac, known.is_some(), now.instant) {
            self.metrics.dropped("rate");
            return None;
        }
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = recent().number(datagram, received);
        if let Some(sent) = recent().answer(mac, number, now.instant) {
            self.metrics.replied("again");
            return Some(Judged::Now(sent));
        }
        let answer = self.decide(&question, known.as_deref());
        self.metrics.judged(now.instant.elapsed());
        let Some(answer) = answer else {
            // What gave its address back may ask as before, and is answered anew.
            recent().forget(mac);
            return None;
        };
        if answer.claim.is_some() {
            return Some(Judged::Later(Box::new((question, answer))));
        }
        let sent = (answer.reply.encode().ok()?, answer.to);
        recent().keep(mac, number, now.instant, sent.clone());
        Some(Judged::Now(sent))
    }

    /// The request in a datagram, if it is one of a client that can be answered.
    fn read(&self, datagram: &[u8], arrival: &Arrival, port: Port) -> Option<Question> {
        let now = Moment::now();
        let request = match Packet::parse_request(datagram) {
            Ok(request) => request,
            Err(malformed) => {
                self.metrics.dropped(malformed.label());
                return None;
            }
        };
        let Some(mac) = request.mac() else {
            self.metrics.dropped(Silence::Hardware.label());
            return None;
        };
        let client = Client::of(&request, self.link.own_ipxe.as_deref());
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        Some(Question { request, client, received, mac, interface: arrival.interface, now })
    }

    /// The machine that asks: by its Ethernet address, else by the port it is plugged in to.
    fn known(&self, question: &Question) -> Option<Arc<Known>> {
        let Question { request, received, mac, .. } = question;
        let index = self.boots.index();
        index
            .by_mac(*mac)
            .or_else(|| index.by_port(&relayed(request, *received.source.ip(), &self.link)))
    }

    fn decide(&self, question: &Question, known: Option<&Known>) -> Option<Answer> {
        let Question { request, client, received, mac, now, .. } = question;
        let record = known.map(|known| self.heard.record(known));
        let lent = self.lend(question, record.as_deref());
        let lent = lent.map_err(|silence| self.unanswered(silence, question)).ok()?;
        let decision = self.boots.decision_lent(known, &lent, now.time);
        let asks = Asks { request, client, offer: decision.offer(), now: now.instant };
        let offer = self.heard.chained(asks);
        let (machine, link) = lent.terms(record.as_deref(), &self.link);
        let outcome = answer(request, client, *received, machine, &link, offer, now.instant);
        let span = tracing::debug_span!("dhcp", xid = request.xid, %mac);
        let _entered = span.enter();
        self.note(question, known, &outcome, &decision);
        if let Ok(reply) = &outcome {
            let by_port = known.is_some_and(|known| known.mac != *mac);
            let (id, kind) = (known.map(|known| known.hardware.id.as_str()), kind(reply));
            tracing::info!(hardware.id = id, %mac, dhcp.xid = request.xid, kind, boot = %decision.fact, ?offer, by_port, "answered");
        }
        self.concluded(question, machine, outcome)
    }

    /// What is sent and where to; where nothing is, who is told why.
    fn concluded(
        &self,
        question: &Question,
        machine: Option<&Reservation>,
        outcome: Result<Reply, Silence>,
    ) -> Option<Answer> {
        match outcome {
            Ok(reply) => {
                self.metrics.replied(kind(&reply));
                let to = match reply.to {
                    Destination::Link => SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
                    Destination::Host(to) => to,
                };
                let claim = machine.and_then(|it| self.claim(&reply, question, it));
                Some(Answer { reply, to, claim })
            }
            Err(silence) if machine.is_some_and(|machine| machine.pool.is_some()) => {
                tracing::debug!(reason = %silence, "not answered");
                self.metrics.dropped(silence.label());
                self.returned(silence, question.mac);
                None
            }
            Err(silence) => {
                self.unanswered(silence, question);
                None
            }
        }
    }

    fn unanswered(&self, silence: Silence, question: &Question) {
        tracing::debug!(reason = %silence, "not answered");
        self.metrics.dropped(silence.label());
        if let Silence::Declined(address) = silence {
            tracing::warn!(%address, mac = %question.mac, "address in use by somebody else");
            self.heard.declined(address, question.now.instant);
        }
    }

    /// Tells everybody who has to know that this was asked, and how it is answered.
    fn note(
        &self,
        question: &Question,
        known: Option<&Known>,
        outcome: &Result<Reply, Silence>,
        decision: &Decision,
    ) {
        let Question { request, client, mac, now, .. } = question;
        if let Some(known) = known {
            if let Some(uuid) = client.uuid {
                self.boots.record_uuid(known, uuid);
            }
            self.note_firmware(question, known);
        }
        if matches!(client.class, Class::Ipxe { .. }) && outcome.is_ok() {
            self.booting.answered(*mac, now.instant);
        }
        for what in timeline::dhcp::noted(request, client.class, outcome, decision) {
            if matches!(what, BootStep::Unknown(_)) {
                self.metrics.unknown_machine();
            }
            let who = known.map_or(BootSubject::UnknownClient(*mac), |known| {
                BootSubject::Machine(known.id, *mac)
            });
            let source = Some(request.ciaddr).filter(|address| !address.is_unspecified());
            let event = Event { who, what, source: source.map(Into::into), at: now.time };
            self.boots.timeline().record(event);
        }
    }

    /// Firmware that asks is a machine that has just been started; many a network interface has iPXE for its firmware. Only a
    /// workflow wants to know: where there is none, nobody is told.
    fn note_firmware(&self, question: &Question, known: &Known) {
        let Question { request, client, .. } = question;
        let discovers = client.class.boots() && request.kind() == Some(MessageType::Discover);
        if discovers && (known.worked_on || self.boots.index().feed() != FeedState::Live) {
            // Best effort: with the queue full, the worker's new boot id says the same later.
            let _full = self.firmware.try_send(known.hardware.id.clone());
        }
    }
}

fn kind(reply: &Reply) -> &'static str {
    reply.packet.kind().map_or("none", label)
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

#[cfg(test)]
mod tests;
