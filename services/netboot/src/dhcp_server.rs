//! The DHCP sockets: receives requests, sends replies.
//!
//! ```text
//! datagram ─▶ dhcp::Request ─▶ reply cache ─▶ respond(view, request) ─▶ effects applied ─▶ reply sent
//!                                                                          └─ claim ─▶ committed ─┘
//! ```
//!
//! One loop per port. A reply takes microseconds and waits for nothing, so the kernel's receive buffer is the only queue; it
//! has room for a rack that is powered on at once. Only the ACK of a pool address waits for the store, in a task of its own.
//!
//! - [`respond`](mod@respond): the response to a request, pure. [`link_state`]: loaders and declined addresses.
//! - [`reply_cache`]: replies to repeated requests. `deferred_ack`: replies that wait for a commit.

mod deferred_ack;
pub mod link_state;
pub mod reply_cache;
pub mod respond;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dhcp::{DropReason, ListenPort, Received, Reply, Request};
use runtime::clock::Clock;
use runtime::rate_limit::{Rate, RateLimiter, TokenBucket};
use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::deferred_ack::{DeferredAck, MAX_DEFERRED_ACKS};
use self::reply_cache::{EncodedReply, ReplyCache};
pub use self::respond::{Effects, PoolChange, Response, View, respond};
use crate::Mac;
use crate::allocation::{Applicant, NotApplied, Timestamps};
use crate::datagram::{Arrival, Socket};
use crate::leases::{Claim, ReturnedAddress};
use crate::machine_view::MachineView;
use crate::metrics::Metrics;
use crate::timeline::{BootStep, BootSubject, Event};

/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 4096;
/// The number of requests that are answered before other tasks run.
const MAX_BATCH: usize = 128;
/// The number of evaluations of a request whose address or loader another request was given meanwhile.
const MAX_ATTEMPTS: usize = 3;
/// The requests of one interface.
const CLIENT_RATE: Rate = Rate::per_second(10).with_burst(20);
/// The requests of all interfaces without a record.
const UNKNOWN_CLIENTS_RATE: Rate = Rate::per_second(100);

/// Answers DHCP on one link.
#[derive(Debug)]
pub struct Server {
    view: View,
    metrics: Metrics,
    clock: Clock,
    /// Receives the ids of machines whose firmware has begun a new boot.
    boot_signs: mpsc::Sender<String>,
    /// There is no limit on all clients together: a rack that is powered on at once is not an attack.
    client_limits: RateLimiter<Mac>,
    unknown_limit: Mutex<TokenBucket>,
    replies: ReplyCache,
    /// Permits for replies that wait for the store.
    deferred: Arc<Semaphore>,
}

/// The result of a datagram that is answered.
enum Outcome {
    Immediate(EncodedReply),
    Deferred(Box<DeferredAck>),
}

/// Binds `port` on an interface. The port is not shared: another server on this host would take datagrams unnoticed.
pub fn bind(interface: &str, port: u16) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
    Socket::new(UdpSocket::from_std(socket.into())?)
}

impl Server {
    /// Answers from `view`; `boot_signs` receives the ids of machines whose firmware has begun a new boot.
    pub fn new(view: View, metrics: Metrics, boot_signs: mpsc::Sender<String>) -> Self {
        Self {
            view,
            metrics,
            clock: Clock::system(),
            boot_signs,
            client_limits: RateLimiter::new(CLIENT_RATE),
            unknown_limit: Mutex::new(TokenBucket::new(UNKNOWN_CLIENTS_RATE)),
            replies: ReplyCache::default(),
            deferred: Arc::new(Semaphore::new(MAX_DEFERRED_ACKS)),
        }
    }

    /// Answers the datagrams of `socket`, which is `port`, until `stop`. Fails when the socket does.
    pub async fn run(
        self: Arc<Self>,
        socket: Socket,
        port: ListenPort,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let (mut buffer, socket) = (vec![0; MAX_REQUEST_BYTES], Arc::new(socket));
        let mut deferred = JoinSet::new();
        while let Some(readable) = stop.run_until_cancelled(socket.readable()).await {
            readable?;
            let mut left = MAX_BATCH;
            while left > 0
                && let Some(arrival) = socket.try_receive(&mut buffer)?
            {
                left -= 1;
                let datagram = buffer.get(..arrival.length).unwrap_or_default();
                match self.answer(datagram, &arrival, port) {
                    None => {}
                    Some(Outcome::Immediate((reply, to))) => {
                        self.send(&socket, &reply, to, arrival.interface).await;
                    }
                    Some(Outcome::Deferred(ack)) => self.defer(&mut deferred, &socket, *ack),
                }
            }
            while deferred.try_join_next().is_some() {}
            if left == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// The immediate reply to a datagram, and its destination.
    pub fn reply(
        &self,
        datagram: &[u8],
        arrival: &Arrival,
        port: ListenPort,
    ) -> Option<EncodedReply> {
        match self.answer(datagram, arrival, port)? {
            Outcome::Immediate(reply) => Some(reply),
            Outcome::Deferred(_) => None,
        }
    }

    async fn send(&self, socket: &Socket, reply: &[u8], to: SocketAddrV4, interface: u32) {
        if let Err(error) = socket.send(reply, to, self.view.link.id, interface).await {
            tracing::warn!(error = &error as &dyn std::error::Error, %to, "DHCP reply not sent");
        }
    }

    /// Answers a datagram: parses it, checks the rate limits and the reply cache, and responds.
    fn answer(&self, datagram: &[u8], arrival: &Arrival, port: ListenPort) -> Option<Outcome> {
        let now = Timestamps::from(&self.clock);
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        let request = match Request::parse(datagram, received, &self.view.link) {
            Ok(request) => request,
            Err(unreadable) => {
                self.metrics.dropped(unreadable.label());
                return None;
            }
        };
        let (mac, machine) = (Mac(request.mac), self.view.machine(&request));
        if self.is_over_limit(mac, machine.is_some(), now.monotonic) {
            self.metrics.dropped("rate");
            return None;
        }
        let hash = self.replies.hash(datagram, received);
        if let Some(reply) = self.replies.get(mac, hash, now.monotonic) {
            self.metrics.replied("again");
            return Some(Outcome::Immediate(reply));
        }
        let answered = self.respond(&request, machine.as_deref(), now);
        self.metrics.judged(self.clock.monotonic().saturating_duration_since(now.monotonic));
        let Some((reply, claim)) = answered else {
            // A client that released its address may repeat its earlier request, and gets a new reply.
            self.replies.remove(mac);
            return None;
        };
        if let Some(claim) = claim {
            let ack = DeferredAck { request, interface: arrival.interface, reply, claim };
            return Some(Outcome::Deferred(Box::new(ack)));
        }
        let encoded = (reply.encode().ok()?, reply.to);
        self.replies.put(mac, hash, now.monotonic, encoded.clone());
        Some(Outcome::Immediate(encoded))
    }

    /// Takes one token of the client's rate limit. Clients without a record share another limit.
    fn is_over_limit(&self, mac: Mac, has_record: bool, now: Instant) -> bool {
        if !self.view.scripts.site().rate_limits {
            return false;
        }
        let unknown = || self.unknown_limit.lock().unwrap_or_else(PoisonError::into_inner);
        (!has_record && unknown().take(now).is_err()) || self.client_limits.take(mac, now).is_err()
    }

    /// Responds to a request and applies the effects. Returns the reply and the lease to be committed before.
    fn respond(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        now: Timestamps,
    ) -> Option<(Reply, Option<Claim>)> {
        for attempt in 0..MAX_ATTEMPTS {
            let mut response = respond(&self.view, machine, request, now);
            if attempt == 0 && response.effects.allocation.is_unknown {
                self.record_unknown(request, now);
            }
            match self.reserve(request, &response.effects, now) {
                Err(NotApplied::Conflict) => continue,
                Err(NotApplied::Dropped(reason)) => {
                    self.log_drop(reason, request);
                    return None;
                }
                Ok(()) => {}
            }
            self.record(request, machine, &mut response.effects, now);
            let Response { reply, decision, offer, effects, .. } = response;
            return match reply {
                Err(reason) => {
                    self.log_drop(reason, request);
                    None
                }
                Ok(reply) => {
                    let (kind, mac) = (reply.kind_label(), Mac(request.mac));
                    self.metrics.replied(kind);
                    let by_port = machine.is_some_and(|machine| machine.mac != mac);
                    let id = machine.map(|machine| machine.hardware.id.as_str());
                    let xid = request.packet.xid;
                    tracing::info!(hardware.id = id, %mac, dhcp.xid = xid, kind, boot = %decision.fact, ?offer, by_port, "DHCP request answered");
                    Some((reply, effects.claim))
                }
            };
        }
        self.log_drop(DropReason::Busy, request);
        None
    }

    /// Makes the changes that other requests may have made impossible.
    fn reserve(
        &self,
        request: &Request,
        effects: &Effects,
        now: Timestamps,
    ) -> Result<(), NotApplied> {
        let View { scripts, link_state, .. } = &self.view;
        // The allocation first: a loader that is not sent must not count as given.
        if let Some(allocator) = scripts.allocator() {
            allocator.apply(request, &effects.allocation, now)?;
        }
        match (link_state.grants(), effects.loader) {
            (Some(grants), Some(loader)) if !grants.apply(request, loader, now.monotonic) => {
                Err(NotApplied::Conflict)
            }
            _ => Ok(()),
        }
    }

    fn record_unknown(&self, request: &Request, now: Timestamps) {
        if let Some(allocator) = self.view.scripts.allocator() {
            let applicant = Applicant { request, record: None, link: &self.view.link };
            allocator.record_unknown(applicant, now.wall);
        }
    }

    /// Makes the changes that always succeed.
    fn record(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        effects: &mut Effects,
        now: Timestamps,
    ) {
        let (scripts, mac) = (&self.view.scripts, Mac(request.mac));
        if let (Some(machine), Some(uuid)) = (machine, effects.uuid) {
            scripts.history.record_uuid(machine, uuid);
        }
        if let (Some(machine), true) = (machine, effects.begins_boot) {
            // If the queue is full, the worker's new boot id reports the same later.
            let _full = self.boot_signs.try_send(machine.hardware.id.clone());
        }
        if effects.solicits_router {
            self.view.link_state.record_booting(mac, now.monotonic);
        }
        for step in effects.boot_steps.iter_mut().filter_map(Option::take) {
            if matches!(step, BootStep::Unknown(_)) {
                self.metrics.unknown_machine();
            }
            let subject = machine.map_or(BootSubject::UnknownClient(mac), |machine| {
                BootSubject::Machine(machine.id, mac)
            });
            let source = request.client_address().map(Into::into);
            scripts.timeline().record(Event { subject, step, source, at: now.wall });
        }
        if let Some(address) = effects.declined {
            tracing::warn!(%address, %mac, "address declined: another host uses it");
            self.view.link_state.record_declined(address, now.monotonic);
        }
        if let (Some(change), Some(allocator)) = (effects.pool, scripts.allocator()) {
            match change {
                PoolChange::Withdraw => allocator.leases().withdraw(mac),
                PoolChange::Return(address, event) => {
                    let returned = ReturnedAddress { address, mac, event, at: now.wall };
                    allocator.leases().take_back(returned);
                }
            }
        }
    }

    fn log_drop(&self, reason: DropReason, request: &Request) {
        let (mac, xid) = (Mac(request.mac), request.packet.xid);
        tracing::debug!(%mac, dhcp.xid = xid, %reason, "DHCP request dropped");
        self.metrics.dropped(reason.label());
    }
}

#[cfg(test)]
mod tests;
