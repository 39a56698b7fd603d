//! Metrics. No MAC and no address is a label.

use std::fmt::{self, Write as _};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tinwright::netboot::v1::BootEventKind;

/// The metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    drops: Family<Reason, Counter>,
    replies: Family<Type, Counter>,
    reply_seconds: Histogram,
    scripts: Family<Kind, Counter>,
    refused: Family<Rule, Counter>,
    requests: Family<Route, Counter>,
    transfers: Family<Outcome, Counter>,
    bytes: Counter,
    unknown_requests: Counter,
    unknown: Gauge,
    free: Family<Subnet, Gauge>,
    connected: Family<Feed, Gauge>,
    age: Gauge<f64, AtomicU64>,
    records: Gauge,
    events: Family<EventKind, Counter>,
    dropped: Counter,
    lines: Family<Sender, Counter>,
    lost_lines: Counter,
    advertisements: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Subnet {
    subnet: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Type {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rule {
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Feed {
    feed: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventKind {
    kind: Name,
}

/// Name of a kind of event, formatted at each scrape: events are more frequent than scrapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name(BootEventKind);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let name = self.0.as_str_name().trim_start_matches("BOOT_EVENT_KIND_");
        encoder.write_str(&name.to_lowercase())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Sender {
    known: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            drops: Family::default(),
            replies: Family::default(),
            reply_seconds: Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            scripts: Family::default(),
            refused: Family::default(),
            requests: Family::default(),
            transfers: Family::default(),
            bytes: Counter::default(),
            unknown_requests: Counter::default(),
            unknown: Gauge::default(),
            free: Family::default(),
            connected: Family::default(),
            age: Gauge::default(),
            records: Gauge::default(),
            events: Family::default(),
            dropped: Counter::default(),
            lines: Family::default(),
            lost_lines: Counter::default(),
            advertisements: Counter::default(),
        }
    }
}

impl Metrics {
    /// Registers new metrics in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let new = Self::default();
        new.register(registry);
        new
    }

    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let new = self.clone();
        registry.register("netboot_dhcp_drops", "Requests not answered, by reason", new.drops);
        registry.register("netboot_dhcp_replies", "Answers, by type", new.replies);
        registry.register("netboot_dhcp_reply_seconds", "Time to an answer", new.reply_seconds);
        registry.register("netboot_pool_free", "Addresses that can be lent", new.free);
        registry.register("netboot_scripts", "Scripts served or refused", new.scripts);
        registry.register("netboot_gate_refused", "Refusals, by rule", new.refused);
        registry.register("netboot_http_requests", "Requests, by route and code", new.requests);
        registry.register("netboot_tftp_requests", "Requests, by result", new.transfers);
        registry.register("netboot_tftp_bytes", "Bytes acknowledged", new.bytes);
        let help = "Machines without a record that asked";
        registry.register("netboot_unknown_machines", help, new.unknown);
        let help = "Requests to boot from machines without a record";
        registry.register("netboot_unknown_requests", help, new.unknown_requests);
        registry.register("netboot_feed_connected", "Whether a feed is live", new.connected);
        let help = "Seconds for which a feed has been cut; 0 while all are live";
        registry.register("netboot_feed_age_seconds", help, new.age);
        registry.register("netboot_records", "Machines known", new.records);
        registry.register("netboot_boot_events", "Events of boots, by kind", new.events);
        let help = "Events of boots given up: the queue was full, or the store away for long";
        registry.register("netboot_boot_events_dropped", help, new.dropped);
        registry.register("netboot_syslog_lines", "Lines kept, by whether we know who", new.lines);
        let help = "Lines given up: too many a second from one address";
        registry.register("netboot_syslog_lines_dropped", help, new.lost_lines);
        let help = "Router solicitations of booting machines answered";
        registry.register("netboot_router_advertisements", help, new.advertisements);
    }

    /// Sets the number of free addresses of a subnet.
    pub fn free(&self, subnet: String, addresses: usize) {
        let addresses = i64::try_from(addresses).unwrap_or(i64::MAX);
        self.free.get_or_create(&Subnet { subnet }).set(addresses);
    }

    /// Sets the number of clients without a record.
    pub fn unknown(&self, machines: usize) {
        self.unknown.set(i64::try_from(machines).unwrap_or(i64::MAX));
    }

    /// Counts a dropped DHCP request.
    pub fn dropped(&self, reason: &'static str) {
        self.drops.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a DHCP reply.
    pub fn replied(&self, r#type: &'static str) {
        self.replies.get_or_create(&Type { r#type }).inc();
    }

    /// A DHCP request was judged in this time.
    pub fn judged(&self, time: Duration) {
        self.reply_seconds.observe(time.as_secs_f64());
    }

    /// Counts a request to boot of a client without a record.
    pub fn unknown_machine(&self) {
        self.unknown_requests.inc();
    }

    /// Counts a script that was served or refused.
    pub fn script(&self, kind: &'static str) {
        self.scripts.get_or_create(&Kind { kind }).inc();
    }

    /// Counts a refusal by its rule.
    pub fn refused(&self, rule: &'static str) {
        self.refused.get_or_create(&Rule { rule }).inc();
    }

    /// Counts an HTTP response.
    pub fn requested(&self, route: &'static str, code: u16) {
        self.requests.get_or_create(&Route { route, code }).inc();
    }

    /// Counts a finished TFTP request.
    pub fn transfer(&self, result: &'static str, bytes: u64) {
        self.transfers.get_or_create(&Outcome { result }).inc();
        self.bytes.inc_by(bytes);
    }

    /// Sets the number of `machines`, the feeds that are `cut`, and the time for which any has been.
    pub fn feeds(&self, machines: usize, cut: &[&'static str], age: Duration) {
        for feed in ["hardware", "instance", "workflow"] {
            let connected = i64::from(!cut.contains(&feed));
            self.connected.get_or_create(&Feed { feed }).set(connected);
        }
        self.age.set(age.as_secs_f64());
        self.records.set(i64::try_from(machines).unwrap_or(i64::MAX));
    }

    /// Counts an event of a boot.
    pub fn event(&self, kind: BootEventKind) {
        self.events.get_or_create(&EventKind { kind: Name(kind) }).inc();
    }

    /// Counts dropped events.
    pub fn events_dropped(&self, count: usize) {
        self.dropped.inc_by(count.try_into().unwrap_or(u64::MAX));
    }

    /// Number of dropped events.
    pub fn dropped_events(&self) -> u64 {
        self.dropped.get()
    }

    /// Counts a stored line of syslog.
    pub fn line(&self, known: bool) {
        let known = if known { "true" } else { "false" };
        self.lines.get_or_create(&Sender { known }).inc();
    }

    /// Counts dropped lines.
    pub fn lines_dropped(&self, count: u64) {
        self.lost_lines.inc_by(count);
    }

    /// Counts a router advertisement.
    pub fn advertised(&self) {
        self.advertisements.inc();
    }
}
