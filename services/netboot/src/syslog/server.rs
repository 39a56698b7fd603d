//! The socket: datagrams in, lines kept and logged.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::Lines;
use super::limit::{Limit, Verdict};
use super::message::Message;
use crate::lending::Lending;
use crate::machine_view::Index;
use crate::metrics::Metrics;

/// The longest datagram read; what is longer is cut (RFC 5426, section 3.2, asks for 2048).
const LONGEST: usize = 8192;

/// Receives what machines say.
#[derive(Debug)]
pub struct Server {
    /// Whose address is whose.
    pub index: Arc<Index>,
    /// Whom addresses are lent to, where any are.
    pub lending: Option<Arc<Lending>>,
    /// Where lines are kept.
    pub lines: Arc<Lines>,
    /// What is counted.
    pub metrics: Metrics,
    /// Whether lines of severity 7 are kept, too.
    pub debug: bool,
}

impl Server {
    /// Receives from `socket` until `stop`. Fails when the socket does.
    pub async fn run(self, socket: UdpSocket, stop: CancellationToken) -> anyhow::Result<()> {
        let (mut buffer, mut limit) = (vec![0; LONGEST], Limit::default());
        while let Some(received) = stop.run_until_cancelled(socket.recv_from(&mut buffer)).await {
            // A datagram that came while nobody waited may bring an error with it; the next one does not.
            let Ok((length, SocketAddr::V4(source))) = received else { continue };
            let datagram = buffer.get(..length).unwrap_or_default();
            self.receive(&mut limit, IpAddr::V4(*source.ip()), datagram, Instant::now());
        }
        Ok(())
    }

    /// Takes what `source` says at `now`, unless that is more than `limit` lets it say.
    pub fn receive(&self, limit: &mut Limit, source: IpAddr, datagram: &[u8], now: Instant) {
        let dropped = match limit.judge(source, now) {
            Verdict::Dropped => return self.metrics.lines_dropped(1),
            Verdict::Kept(dropped) => dropped,
        };
        if dropped > 0 {
            let text = format!("<45>netboot: {dropped} lines dropped");
            self.take(source, Message::parse(text.as_bytes()));
        }
        self.take(source, Message::parse(datagram));
    }

    fn take(&self, source: IpAddr, message: Message) {
        if message.priority.is_debug() && !self.debug {
            return;
        }
        let received = SystemTime::now();
        let holder = || self.lending.as_ref()?.holder(source, received);
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
        self.lines.keep(machine, source, message, received);
    }
}
