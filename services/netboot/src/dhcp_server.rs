//! The DHCP sockets: receives requests, sends replies.
//!
//! One loop per port. A reply takes microseconds and waits for nothing, so the kernel's receive buffer is the only queue; it
//! has room for a rack that is powered on at once. Only the ACK of an allocated address waits for the store, in a task of its
//! own.
//!
//! - [`link_state`]: loaders that clients were sent to, and declined addresses. [`reply_cache`]: replies to repeated requests.
//! - [`limits`]: rate limits. `deferred_ack`: replies that wait for a commit.

mod deferred_ack;
pub mod limits;
pub mod link_state;
pub mod reply_cache;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::deferred_ack::{Answer, WAITING};
use self::limits::Limits;
use self::link_state::LinkState;
use self::reply_cache::{Recent, Sent};
use dhcp::{
    ClientClass, DropReason, Link, ListenPort, MessageType, Received, Reply, ReplyInputs, Request,
    Reservation, reply,
};

use crate::Mac;
use crate::bootscripts::BootScripts;
use crate::datagram::{Arrival, Socket};
use crate::decision::{Decision, FeedState};
use crate::lending::{Lending, Lent};
use crate::machine_view::MachineView;
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
    link_state: Arc<LinkState>,
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
    request: Request,
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
    /// Answers on `link` from what `boots` knows and from `link_state`, and tells `firmware` which machine's firmware
    /// asked for an address: the first sign of a new boot.
    pub fn new(
        boots: Arc<BootScripts>,
        link: Link,
        metrics: Metrics,
        firmware: mpsc::Sender<String>,
        link_state: Arc<LinkState>,
    ) -> Self {
        Self {
            boots,
            link,
            metrics,
            firmware,
            link_state,
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
        port: ListenPort,
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
            return self.unanswered(DropReason::Busy, &question);
        };
        let settled = self.clone().settle(socket.clone(), question, answer);
        waiting.spawn(async move {
            let _place = place;
            settled.await;
        });
    }

    /// What a datagram is answered at once, and where that goes: all there is but sockets and leases.
    pub fn reply(&self, datagram: &[u8], arrival: &Arrival, port: ListenPort) -> Option<Sent> {
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
    fn judge(&self, datagram: &[u8], arrival: &Arrival, port: ListenPort) -> Option<Judged> {
        let question = self.read(datagram, arrival, port)?;
        let Question { ref request, now, .. } = question;
        let (received, mac) = (request.received, Mac(request.mac));
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
    fn read(&self, datagram: &[u8], arrival: &Arrival, port: ListenPort) -> Option<Question> {
        let now = Moment::now();
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        match Request::parse(datagram, received, &self.link) {
            Ok(request) => Some(Question { request, interface: arrival.interface, now }),
            Err(unreadable) => {
                self.metrics.dropped(unreadable.label());
                None
            }
        }
    }

    /// The machine that asks: by its Ethernet address, else by the port it is plugged in to.
    fn known(&self, question: &Question) -> Option<Arc<MachineView>> {
        let (request, index) = (&question.request, self.boots.index());
        index.by_mac(Mac(request.mac)).or_else(|| index.by_port(&request.relayed(&self.link)))
    }

    fn decide(&self, question: &Question, known: Option<&MachineView>) -> Option<Answer> {
        let Question { request, now, .. } = question;
        let mac = Mac(request.mac);
        let record = known.map(MachineView::reservation);
        let lent = self.lend(question, record);
        let lent = lent.map_err(|silence| self.unanswered(silence, question)).ok()?;
        let decision = self.boots.decision_lent(known, &lent);
        let offer = self.link_state.chainload(request, decision.offer(), now.instant);
        let (reservation, mode) = lent.terms(record, self.link.mode);
        let is_withheld = record
            .is_some_and(|own| self.link_state.withheld(own, now.instant).is_some())
            && !matches!(lent, Lent::Address(_));
        let link = &self.link;
        let outcome = reply(request, ReplyInputs { link, mode, reservation, offer, is_withheld });
        let xid = request.packet.xid;
        let span = tracing::debug_span!("dhcp", xid, %mac);
        let _entered = span.enter();
        self.note(question, known, &outcome, &decision);
        if let Ok(reply) = &outcome {
            let by_port = known.is_some_and(|known| known.mac != mac);
            let (id, kind) = (known.map(|known| known.hardware.id.as_str()), reply.kind_label());
            tracing::info!(hardware.id = id, %mac, dhcp.xid = xid, kind, boot = %decision.fact, ?offer, by_port, "answered");
        }
        self.concluded(question, reservation, outcome)
    }

    /// What is sent and where to; where nothing is, who is told why.
    fn concluded(
        &self,
        question: &Question,
        machine: Option<&Reservation>,
        outcome: Result<Reply, DropReason>,
    ) -> Option<Answer> {
        match outcome {
            Ok(reply) => {
                self.metrics.replied(reply.kind_label());
                let to = reply.to.into();
                let claim = machine.and_then(|it| self.claim(&reply, question, it));
                Some(Answer { reply, to, claim })
            }
            Err(silence) if machine.is_some_and(|machine| machine.pool.is_some()) => {
                tracing::debug!(reason = %silence, "not answered");
                self.metrics.dropped(silence.label());
                self.returned(silence, Mac(question.request.mac));
                None
            }
            Err(silence) => {
                self.unanswered(silence, question);
                None
            }
        }
    }

    fn unanswered(&self, silence: DropReason, question: &Question) {
        tracing::debug!(reason = %silence, "not answered");
        self.metrics.dropped(silence.label());
        if let DropReason::Declined(address) = silence {
            tracing::warn!(%address, mac = %Mac(question.request.mac), "address in use by somebody else");
            self.link_state.declined(address, question.now.instant);
        }
    }

    /// Tells everybody who has to know that this was asked, and how it is answered.
    fn note(
        &self,
        question: &Question,
        known: Option<&MachineView>,
        outcome: &Result<Reply, DropReason>,
        decision: &Decision,
    ) {
        let Question { request, now, .. } = question;
        let mac = Mac(request.mac);
        if let Some(known) = known {
            if let Some(uuid) = request.uuid() {
                self.boots.record_uuid(known, uuid);
            }
            self.note_firmware(question, known);
        }
        if matches!(request.class, ClientClass::Ipxe { .. }) && outcome.is_ok() {
            self.booting.answered(mac, now.instant);
        }
        for what in timeline::exchange::steps(request, outcome, decision) {
            if matches!(what, BootStep::Unknown(_)) {
                self.metrics.unknown_machine();
            }
            let who = known.map_or(BootSubject::UnknownClient(mac), |known| {
                BootSubject::Machine(known.id, mac)
            });
            let source = request.client_address();
            let event =
                Event { subject: who, step: what, source: source.map(Into::into), at: now.time };
            self.boots.timeline().record(event);
        }
    }

    /// Firmware that asks is a machine that has just been started; many a network interface has iPXE for its firmware. Only a
    /// workflow wants to know: where there is none, nobody is told.
    fn note_firmware(&self, question: &Question, known: &MachineView) {
        let request = &question.request;
        let discovers = request.class.boots() && request.kind() == Some(MessageType::Discover);
        if discovers
            && (!known.workflows.is_empty() || self.boots.index().feed() != FeedState::Live)
        {
            // Best effort: with the queue full, the worker's new boot id says the same later.
            let _full = self.firmware.try_send(known.hardware.id.clone());
        }
    }
}

#[cfg(test)]
mod tests;
