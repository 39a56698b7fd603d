//! The DHCP sockets: receives requests, sends replies.
//!
//! ```text
//! datagram ─▶ dhcp::Request ─▶ its exchange ─▶ reply cache ─▶ respond(view, request) ─▶ effects applied ─▶ reply sent ─▶ timeline
//!                                               ACK of a pool address: └─▶ timeline ─▶ claim committed ─▶ reply sent
//! ```
//!
//! One loop per port. A reply takes microseconds and waits for nothing, so the kernel's receive buffer is the only queue; it
//! has room for a rack that is powered on at once. Only the ACK of a pool address waits for the store, in a task of its own.
//!
//! - [`respond`](mod@respond): the response to a request, pure. [`link_state`]: loaders and declined addresses.
//! - `answer_log`, `refusal_log`: the log of answered requests, and of clients that are never served.
//! - [`reply_cache`]: replies to repeated requests. [`DeferredAck`]: replies that wait for a commit.

mod answer_log;
pub mod link_state;
mod refusal_log;
pub mod reply_cache;
pub mod respond;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Instant;

use dhcp::{ClientClass, DropReason, ListenPort, Malformed, Received, Reply, Request};
use runtime::clock::Clock;
use runtime::rate_limit::{Rate, RateLimiter};
use socket2::{Domain, Protocol, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::answer_log::AnswerLog;
use self::refusal_log::RefusalLog;
use self::reply_cache::{EncodedReply, ReplyCache};
pub use self::respond::{Effects, Response, View, respond};
use crate::Mac;
use crate::allocation::{Applicant, Timestamps};
use crate::datagram::{Arrival, Socket};
use crate::leases::{Claim, ClaimResult};
use crate::machine_view::MachineView;
use crate::metrics::Metrics;
use crate::pool;
use crate::timeline::{BootOwner, Event};
use tinwright::netboot::v1::BootEventKind as Kind;

/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 4096;
/// The number of requests that are answered before other tasks run.
const MAX_BATCH: usize = 128;
/// Maximum number of evaluations of a request. Another request may be given its address or loader
/// meanwhile; then it is evaluated again.
const MAX_ATTEMPTS: usize = 3;
/// The requests of one interface.
const CLIENT_RATE: Rate = Rate::per_second(10).with_burst(20);
/// The requests of all interfaces without a record.
const UNKNOWN_CLIENTS_RATE: Rate = Rate::per_second(100);
/// The number of ACKs that may wait for the store, which commits all that wait at once: enough for a row of racks that is
/// powered on while a disk is slow. Further clients repeat their requests.
const MAX_DEFERRED_ACKS: usize = 2048;

/// Answers DHCP on one link.
#[derive(Debug)]
pub struct Server {
    view: View,
    log: AnswerLog,
    refusals: RefusalLog,
    metrics: Metrics,
    clock: Clock,
    /// Receives the id of a machine when its firmware begins a new boot.
    boot_signs: mpsc::Sender<String>,
    /// There is no limit on all clients together: a rack that is powered on at once is not an attack.
    client_limits: RateLimiter<Mac>,
    unknown_limit: RateLimiter<()>,
    replies: ReplyCache,
    /// Permits for replies that wait for the store.
    deferred: Arc<Semaphore>,
}

/// The work that remains after a datagram is answered.
#[derive(Debug, Default)]
pub struct Remaining {
    /// An ACK that waits for the store.
    pub ack: Option<Box<DeferredAck>>,
    /// Steps for the boot's timeline.
    pub events: Vec<Event>,
}

/// An ACK and the lease that is committed before it is sent.
#[derive(Debug)]
pub struct DeferredAck {
    request: Request,
    /// The interface that received the request.
    interface: u32,
    reply: Reply,
    claim: Claim,
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
    /// Answers from `view`; `boot_signs` receives the id of a machine when its firmware begins a new boot.
    pub fn new(view: View, metrics: Metrics, boot_signs: mpsc::Sender<String>) -> Self {
        let log = AnswerLog::new(&view.scripts.site.interface);
        Self {
            view,
            log,
            refusals: RefusalLog::default(),
            metrics,
            clock: Clock::system(),
            boot_signs,
            client_limits: RateLimiter::new(CLIENT_RATE),
            unknown_limit: RateLimiter::new(UNKNOWN_CLIENTS_RATE),
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
        while let Some(readable) = stop.run_until_cancelled(socket.0.readable()).await {
            readable?;
            let mut left = MAX_BATCH;
            while left > 0
                && let Some(arrival) = socket.try_receive(&mut buffer)?
            {
                left -= 1;
                let datagram = buffer.get(..arrival.length).unwrap_or_default();
                let mut remaining = Remaining::default();
                if let Some((reply, to)) = self.reply(datagram, &arrival, port, &mut remaining) {
                    self.send(&socket, &reply, to, arrival.interface).await;
                }
                self.record_events(remaining.events);
                if let Some(ack) = remaining.ack {
                    self.defer(&mut deferred, &socket, *ack);
                }
            }
            while deferred.try_join_next().is_some() {}
            if left == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn send(&self, socket: &Socket, reply: &[u8], to: SocketAddrV4, interface: u32) {
        if let Err(error) = socket.send(reply, to, self.view.link.id, interface).await {
            tracing::warn!(error = runtime::cause(&error), %to, "DHCP reply not sent");
        }
    }

    /// Answers a datagram: parses it, checks the rate limits and the reply cache, and responds. Returns the reply and its
    /// destination, if it can be sent at once.
    pub fn reply(
        &self,
        datagram: &[u8],
        arrival: &Arrival,
        port: ListenPort,
        remaining: &mut Remaining,
    ) -> Option<EncodedReply> {
        let now = Timestamps::from(&self.clock);
        let broadcast = arrival.to.is_broadcast();
        let received = Received { source: arrival.source, broadcast, port };
        let parsed = Request::parse(datagram, received, &self.view.link);
        let request = parsed.map_err(|error| self.log_malformed(error, datagram, now)).ok()?;
        let (view, mac) = (&self.view, Mac(request.mac));
        let request = view.link_state.complete(request, &view.link, now.monotonic);
        let machine = view.machine(&request);
        if self.is_over_limit(mac, machine.is_some(), now.monotonic) {
            self.metrics.dropped("rate");
            return None;
        }
        let hash = self.replies.hash(datagram, received);
        if let Some(reply) = self.replies.get(mac, hash, now.monotonic) {
            self.metrics.replies.get_or_create(&[("type", "again")]).inc();
            return Some(reply);
        }
        let answered = self.respond(&request, machine.as_deref(), &mut remaining.events, now);
        let elapsed = self.clock.monotonic().saturating_duration_since(now.monotonic);
        self.metrics.reply_time.0.observe(elapsed.as_secs_f64());
        match answered {
            // A client that released its address may repeat its earlier request, and gets a new reply.
            None => {
                self.replies.remove(mac);
                None
            }
            Some((reply, Some(claim))) => {
                let ack = DeferredAck { request, interface: arrival.interface, reply, claim };
                remaining.ack = Some(Box::new(ack));
                None
            }
            Some((Reply { datagram, to, .. }, None)) => {
                self.replies.put(mac, hash, now.monotonic, (datagram.clone(), to));
                Some((datagram, to))
            }
        }
    }

    /// Takes one token of the client's rate limit. Clients without a record share another limit.
    fn is_over_limit(&self, mac: Mac, has_record: bool, now: Instant) -> bool {
        if !self.view.scripts.site.rate_limits {
            return false;
        }
        let is_over = !has_record && self.unknown_limit.take((), now).is_err();
        is_over || self.client_limits.take(mac, now).is_err()
    }

    /// Responds to a request and applies the effects. Returns the reply and the lease to be committed before.
    fn respond(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        events: &mut Vec<Event>,
        now: Timestamps,
    ) -> Option<(Reply, Option<Claim>)> {
        let response = self.reserve(request, machine, now).and_then(|mut response| {
            self.record(request, machine, &mut response, events, now);
            let reply = response.reply?;
            Ok((reply, response.decision, response.effects.claim))
        });
        let dropped = response.as_ref().err().copied();
        self.view.link_state.record_response(request, dropped, now.monotonic);
        let (reply, decision, claim) =
            response.inspect_err(|reason| self.log_drop(*reason, request)).ok()?;
        let kind = reply.kind_label();
        self.metrics.replies.get_or_create(&[("type", kind)]).inc();
        self.log.write(request, machine, &reply, &decision);
        Some((reply, claim))
    }

    /// Responds to a request, and makes the changes that other requests may make impossible meanwhile.
    fn reserve(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        now: Timestamps,
    ) -> Result<Response, DropReason> {
        let View { scripts, link, link_state } = &self.view;
        for attempt in 0..MAX_ATTEMPTS {
            let response = respond(&self.view, machine, request, now);
            // The allocation first: a loader that is not sent must not count as given.
            if let Some(allocator) = scripts.allocator.as_deref() {
                if attempt == 0 && response.effects.allocation.is_unknown {
                    let applicant = Applicant { request, record: None, link };
                    let dropped = response.reply.as_ref().err().copied();
                    allocator.record_unknown(applicant, dropped, now.wall);
                }
                match allocator.apply(request, &response.effects.allocation, now) {
                    Err(DropReason::Busy) => continue,
                    applied => applied?,
                }
            }
            let loader = link_state.grants.as_ref().zip(response.effects.loader);
            if loader.is_none_or(|(grants, loader)| grants.apply(request, loader, now.monotonic)) {
                return Ok(response);
            }
        }
        Err(DropReason::Busy)
    }

    /// Makes the changes that always succeed.
    fn record(
        &self,
        request: &Request,
        machine: Option<&MachineView>,
        response: &mut Response,
        events: &mut Vec<Event>,
        now: Timestamps,
    ) {
        let View { scripts, link_state, .. } = &self.view;
        let (mac, effects) = (Mac(request.mac), &mut response.effects);
        if let (Some(machine), Some(uuid)) = (machine, effects.uuid) {
            scripts.history.record_uuid(machine, uuid);
        }
        if let Some(machine) = machine
            && request.class.boots()
            && response.reply.is_ok()
        {
            let is_loader = matches!(request.class, ClientClass::Ipxe { .. });
            scripts.history.record_exchange(machine, is_loader);
            scripts.history.record_firmware(machine, request);
        }
        if let Some(machine) = machine.filter(|_| request.class == ClientClass::Ordinary) {
            scripts.history.end_loading(machine.id);
        }
        if let (Some(machine), true) = (machine, effects.begins_boot) {
            // If the queue is full, the worker's new boot id reports the same later.
            let _full = self.boot_signs.try_send(machine.hardware.id.clone());
        }
        if effects.solicits_router {
            link_state.record_booting(mac, now.monotonic);
        }
        let unknown = BootOwner::UnknownClient(mac);
        let owner = machine.map_or(unknown, |machine| BootOwner::Machine(machine.id));
        let source = request.client_address().map(Into::into);
        let steps = effects.boot_steps.drain(..);
        events.extend(steps.map(|step| Event { owner, mac, step, source, at: now.wall }));
        if let Err(reason) = response.reply {
            self.record_drop(reason, mac, response.is_allocated, now);
        }
    }

    /// Records the effects of a request that is dropped; `is_allocated` if its address is of a pool.
    fn record_drop(&self, reason: DropReason, mac: Mac, is_allocated: bool, now: Timestamps) {
        let View { scripts, link_state, .. } = &self.view;
        let leases =
            scripts.allocator.as_ref().filter(|_| is_allocated).map(|allocator| &allocator.leases);
        match (reason, leases) {
            (DropReason::Declined(address), None) => {
                tracing::warn!(%address, %mac, "address declined: another host uses it");
                link_state.record_declined(address, now.monotonic);
            }
            (DropReason::Declined(address), Some(leases)) => {
                leases.take_back(address, mac, pool::Event::Decline, now.wall);
            }
            (DropReason::Released(address), Some(leases)) => {
                leases.take_back(address, mac, pool::Event::Release, now.wall);
            }
            // The client has chosen another server.
            (DropReason::OtherServer, Some(leases)) => leases.table(|table| table.withdraw(mac)),
            _ => {}
        }
    }

    /// Records `events` in the timelines of their machines.
    fn record_events(&self, events: Vec<Event>) {
        for event in events {
            if event.step.kind == Kind::UnknownMachine {
                self.metrics.unknown_requests.inc();
            }
            self.view.scripts.timeline.record(event);
        }
    }

    /// Commits and sends `ack` in a task of its own, if there is a permit for it.
    fn defer(self: &Arc<Self>, tasks: &mut JoinSet<()>, socket: &Arc<Socket>, ack: DeferredAck) {
        let Ok(permit) = self.deferred.clone().try_acquire_owned() else {
            return self.log_drop(DropReason::Busy, &ack.request);
        };
        let (server, socket) = (self.clone(), socket.clone());
        tasks.spawn(async move {
            let _permit = permit;
            server.commit_and_send(&socket, ack).await;
        });
    }

    async fn commit_and_send(&self, socket: &Socket, ack: DeferredAck) {
        let DeferredAck { request, interface, mut reply, claim } = ack;
        let mut claim = Some(claim);
        for _ in 0..MAX_ATTEMPTS {
            let (Some(allocator), Some(wanted)) = (self.view.scripts.allocator.as_deref(), claim)
            else {
                return self.send(socket, &reply.datagram, reply.to, interface).await;
            };
            match allocator.leases.claim(wanted, self.clock.wall()).await {
                ClaimResult::Granted(duration) => {
                    if duration < wanted.duration {
                        let seconds = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
                        let Ok(shorter) = reply.with_lease_seconds(seconds) else { return };
                        reply = shorter;
                    }
                    tracing::info!(lease.addr = %wanted.address, mac = %wanted.mac, "lease committed");
                    return self.send(socket, &reply.datagram, reply.to, interface).await;
                }
                ClaimResult::StoreUnavailable => break,
                ClaimResult::Lost => {}
            }
            let (machine, mut events) = (self.view.machine(&request), Vec::new());
            let now = Timestamps::from(&self.clock);
            let other = self.respond(&request, machine.as_deref(), &mut events, now);
            self.record_events(events);
            match other {
                None => return,
                Some((other, other_claim)) => (reply, claim) = (other, other_claim),
            }
        }
        self.log_drop(DropReason::LeaseNotStored, &request);
    }

    fn log_drop(&self, reason: DropReason, request: &Request) {
        let (mac, xid) = (Mac(request.mac), request.packet.xid);
        tracing::debug!(%mac, dhcp.xid = xid, %reason, "DHCP request dropped");
        self.refusals.write(request, reason, self.clock.monotonic());
        self.metrics.dropped(reason.into());
    }

    fn log_malformed(&self, malformed: Malformed, datagram: &[u8], now: Timestamps) {
        self.refusals.write_malformed(malformed, datagram, now.monotonic);
        self.metrics.dropped(malformed.into());
    }
}

#[cfg(test)]
mod tests;
