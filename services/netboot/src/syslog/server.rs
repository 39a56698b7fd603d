//! The syslog socket: receives datagrams, stores and logs their lines.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use runtime::Clock;
use runtime::bounded_map::BoundedMap;
use runtime::rate_limit::{Rate, RateLimiter};
use syslog::Message;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::Lines;
use crate::allocation::Allocator;
use crate::machine_view::Index;
use crate::metrics::Metrics;

/// The longest datagram in octets; longer ones are truncated. RFC 5426, section 3.2, recommends at least 2048.
const MAX_DATAGRAM_BYTES: usize = 8192;

/// The rate limit of the lines of one address.
const ADDRESS_RATE: Rate = Rate::per_second(200).with_burst(2000);
/// The number of addresses that have a rate limit at the same time.
const MAX_ADDRESSES: usize = 4096;

/// The syslog server.
#[derive(Debug)]
pub struct Server {
    /// The machines by address.
    pub index: Arc<Index>,
    /// The leases, if the site has pools.
    pub allocator: Option<Arc<Allocator>>,
    /// The stored lines.
    pub lines: Arc<Lines>,
    /// The metrics.
    pub metrics: Metrics,
    /// True if lines of severity 7 are also stored.
    pub debug: bool,
    /// The clock.
    pub clock: Clock,
}

/// The rate limit of each address, and the number of its lines that were dropped since the last stored one.
#[derive(Debug)]
pub struct LineLimit {
    limiter: RateLimiter<IpAddr>,
    dropped: BoundedMap<IpAddr, u64>,
}

impl Default for LineLimit {
    fn default() -> Self {
        let limiter = RateLimiter::new(ADDRESS_RATE).with_max_keys(MAX_ADDRESSES);
        Self { limiter, dropped: BoundedMap::new(MAX_ADDRESSES) }
    }
}

impl LineLimit {
    /// Takes one token of `source` for a line. Returns the number of lines dropped before it; none if this line is dropped.
    fn admit(&mut self, source: IpAddr, now: Instant) -> Option<u64> {
        if self.limiter.take_mut(source, now).is_ok() {
            return Some(self.dropped.remove(&source).unwrap_or_default());
        }
        match self.dropped.get_mut(&source) {
            Some(count) => *count += 1,
            None => drop(self.dropped.insert(source, 1)),
        }
        None
    }
}

impl Server {
    /// Receives from `socket` until `stop`.
    pub async fn run(self, socket: UdpSocket, stop: CancellationToken) -> anyhow::Result<()> {
        let (mut buffer, mut limit) = (vec![0; MAX_DATAGRAM_BYTES], LineLimit::default());
        while let Some(received) = stop.run_until_cancelled(socket.recv_from(&mut buffer)).await {
            // An error of the socket (such as an earlier ICMP error) does not affect the next datagram.
            let Ok((length, SocketAddr::V4(source))) = received else { continue };
            let datagram = buffer.get(..length).unwrap_or_default();
            self.receive(&mut limit, IpAddr::V4(*source.ip()), datagram, self.clock.monotonic());
        }
        Ok(())
    }

    /// Stores a datagram of `source`, unless `limit` is exceeded.
    pub fn receive(&self, limit: &mut LineLimit, source: IpAddr, datagram: &[u8], now: Instant) {
        let Some(dropped) = limit.admit(source, now) else {
            self.metrics.dropped_syslog_lines.inc();
            return;
        };
        if dropped > 0 {
            let text = format!("<45>netboot: {dropped} lines dropped");
            self.store(source, syslog::parse(text.as_bytes()));
        }
        self.store(source, syslog::parse(datagram));
    }

    fn store(&self, source: IpAddr, message: Message) {
        if message.priority.is_debug() && !self.debug {
            return;
        }
        let received = self.clock.wall();
        let holder = || self.allocator.as_ref()?.leases.holder(source, received);
        let known = self.index.at(source, holder);
        let machine = known.as_ref().map(|known| known.hardware.id.as_str());
        let has_record = if machine.is_some() { "true" } else { "false" };
        self.metrics.syslog_lines.get_or_create(&[("known", has_record)]).inc();
        tracing::info!(
            target: "netboot::syslog::line",
            %source,
            hardware.id = machine,
            mac = known.as_ref().map(|known| tracing::field::display(known.mac)),
            facility = message.priority.facility(),
            severity = message.priority.severity(),
            app = message.app,
            process = message.process,
            "{}",
            message.text
        );
        self.lines.store(machine, source, message, received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_then_a_rate_and_dropped_lines_are_reported_once() {
        let (mut limit, now) = (LineLimit::default(), Instant::now());
        let one: IpAddr = [192, 0, 2, 1].into();
        assert_eq!((0..2500).filter(|_| limit.admit(one, now).is_some()).count(), 2000);
        assert_eq!(limit.admit([192, 0, 2, 2].into(), now), Some(0));
        let later = now + Duration::from_secs(1);
        assert_eq!((limit.admit(one, later), limit.admit(one, later)), (Some(500), Some(0)));
        assert_eq!((0..500).filter(|_| limit.admit(one, later).is_some()).count(), 198);
    }

    #[test]
    fn lines_of_further_addresses_are_dropped_until_some_are_silent() {
        let (mut limit, now) = (LineLimit::default(), Instant::now());
        let address = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        assert!((0..MAX_ADDRESSES).all(|n| limit.admit(address(n), now) == Some(0)));
        assert_eq!(limit.admit(address(MAX_ADDRESSES), now), None);
        let later = now + Duration::from_secs(1);
        assert_eq!(limit.admit(address(MAX_ADDRESSES), later), Some(1));
    }
}
