//! The log of clients that are never served: InfiniBand interfaces. Strangers can cause its lines,
//! so they are limited.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use dhcp::options::code;
use dhcp::{DropReason, Malformed, Packet, Request};
use runtime::rate_limit::{Rate, RateLimiter};

use crate::Mac;

/// Lines about one client.
const CLIENT_RATE: Rate = Rate::new(Duration::from_secs(60), 1);
/// Lines about all clients.
const LINE_RATE: Rate = Rate::per_second(1).with_burst(10);
/// Maximum number of clients that are told apart. Further ones are not logged meanwhile.
const MAX_CLIENTS: usize = 1024;
/// Maximum number of octets of a client identifier in a line. InfiniBand's has 21 at most.
const MAX_SHOWN_OCTETS: usize = 32;

/// Logs clients that are never served.
#[derive(Debug)]
pub(super) struct RefusalLog {
    /// None: clients without any identifier.
    clients: RateLimiter<Option<Mac>>,
    lines: RateLimiter<()>,
}

impl Default for RefusalLog {
    fn default() -> Self {
        let clients = RateLimiter::new(CLIENT_RATE).with_max_keys(MAX_CLIENTS);
        Self { clients, lines: RateLimiter::new(LINE_RATE) }
    }
}

impl RefusalLog {
    /// Logs that `request` is dropped for `reason`, if its client is never served.
    pub(super) fn write(&self, request: &Request, reason: DropReason, now: Instant) {
        let mac = Mac(request.mac);
        if reason != DropReason::Infiniband || !self.takes(Some(mac), now) {
            return;
        }
        let relay = request.packet.giaddr;
        let client_id = client_id(&request.packet);
        tracing::warn!(%mac, client_id, %relay, %reason, "DHCP request refused");
    }

    /// Logs that `datagram` is dropped because it is `malformed`, if its client is never served.
    pub(super) fn write_malformed(&self, malformed: Malformed, datagram: &[u8], now: Instant) {
        if malformed == Malformed::Hardware && self.takes(None, now) {
            let client_id = Packet::parse(datagram).map(|packet| client_id(&packet)).ok();
            let reason = DropReason::Infiniband;
            tracing::warn!(client_id, %reason, cause = %malformed, "DHCP request refused");
        }
    }

    /// True if a line about `client` may be written.
    fn takes(&self, client: Option<Mac>, now: Instant) -> bool {
        self.clients.take(client, now).is_ok() && self.lines.take((), now).is_ok()
    }
}

/// Returns the first octets of the client identifier in `packet` in hex.
fn client_id(packet: &Packet) -> String {
    let octets = packet.options.get(code::CLIENT_IDENTIFIER).unwrap_or_default();
    let mut text = String::new();
    for octet in octets.iter().take(MAX_SHOWN_OCTETS) {
        let _never_fails = write!(text, "{octet:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcp::MessageType;

    #[test]
    fn a_client_is_logged_once_a_minute_and_a_flood_in_ten_lines() {
        let (log, now) = (RefusalLog::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let times = [0, 1, 59, 60].map(|seconds| log.takes(Some(Mac([2; 6])), at(seconds)));
        assert_eq!(times, [true, false, false, true]);
        let flood = (0..200).filter(|n| log.takes(Some(Mac([4, 0, 0, 0, 0, *n])), at(90)));
        assert_eq!(flood.count(), 10);
    }

    #[test]
    fn a_client_identifier_is_cut() {
        let shown = |octets: &[u8]| {
            let mut packet = Packet::request(MessageType::Discover, [0; 6]);
            packet.options.set(code::CLIENT_IDENTIFIER, octets);
            client_id(&packet)
        };
        assert_eq!(shown(&[0xff, 0, 0x2c]), "ff002c");
        assert_eq!(shown(&[7; 4000]).len(), 64);
    }
}
