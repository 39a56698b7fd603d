//! The socket: receives datagrams, stores and logs their lines.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::Lines;
use super::limit::{Limit, LineLimit};
use super::message::Message;
use crate::allocation::Allocator;
use crate::machine_view::Index;
use crate::metrics::Metrics;

/// Octets of the longest datagram; longer ones are cut (RFC 5426, section 3.2, asks for 2048).
const MAX_DATAGRAM_BYTES: usize = 8192;

/// Receives syslog of machines.
#[derive(Debug)]
pub struct Server {
    /// Machines by address.
    pub index: Arc<Index>,
    /// Leased addresses, where any are leased.
    pub allocator: Option<Arc<Allocator>>,
    /// Stored lines.
    pub lines: Arc<Lines>,
    /// Metrics.
    pub metrics: Metrics,
    /// True if lines of severity 7 are stored, too.
    pub debug: bool,
}

impl Server {
    /// Receives from `socket` until `stop`. Fails when the socket does.
    pub async fn run(self, socket: UdpSocket, stop: CancellationToken) -> anyhow::Result<()> {
        let (mut buffer, mut limit) = (vec![0; MAX_DATAGRAM_BYTES], Limit::default());
        while let Some(received) = stop.run_until_cancelled(socket.recv_from(&mut buffer)).await {
            // A datagram that came while nobody waited may bring an error with it; the next one does not.
            let Ok((length, SocketAddr::V4(source))) = received else { continue };
            let datagram = buffer.get(..length).unwrap_or_default();
            self.receive(&mut limit, IpAddr::V4(*source.ip()), datagram, Instant::now());
        }
        Ok(())
    }

    /// Stores a datagram of `source`, unless it is over the `limit`.
    pub fn receive(&self, limit: &mut Limit, source: IpAddr, datagram: &[u8], now: Instant) {
        let dropped = match limit.admit(source, now) {
            LineLimit::Dropped => return self.metrics.lines_dropped(1),
            LineLimit::Stored(dropped) => dropped,
        };
        if dropped > 0 {
            let text = format!("<45>netboot: {dropped} lines dropped");
            self.store(source, Message::parse(text.as_bytes()));
        }
        self.store(source, Message::parse(datagram));
    }

    fn store(&self, source: IpAddr, message: Message) {
        if message.priority.is_debug() && !self.debug {
            return;
        }
        let received = SystemTime::now();
        let holder = || self.allocator.as_ref()?.holder(source, received);
        let known = self.index.at(source, holder);
        let machine = known.as_ref().map(|known| known.hardware.id.as_str());
        self.metrics.line(machine.is_some());
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
