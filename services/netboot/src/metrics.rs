//! The metrics of network boot. No label is a MAC or an address.

use std::fmt::{self, Write as _};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tinwright::netboot::v1::BootEventKind;

/// One label: its name and value.
type Label<V = &'static str> = [(&'static str, V); 1];

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    drops: Family<Label, Counter>,
    replies: Family<Label, Counter>,
    reply_time: ReplyTime,
    scripts: Family<Label, Counter>,
    refused: Family<Label, Counter>,
    http_responses: Family<(Label, Label<u16>), Counter>,
    transfers: Family<Label, Counter>,
    transferred_bytes: Counter,
    unknown_clients: Gauge,
    free_addresses: Family<Label<String>, Gauge>,
    connected_feeds: Family<Label, Gauge>,
    feed_age: Gauge<f64, AtomicU64>,
    machines: Gauge,
    boot_events: Family<Label<EventName>, Counter>,
    syslog_lines: Family<Label, Counter>,
    /// Boot requests from clients without a record.
    pub unknown_requests: Counter,
    /// Boot events that were dropped.
    pub dropped_boot_events: Counter,
    /// Syslog lines that were dropped.
    pub dropped_syslog_lines: Counter,
    /// Router advertisements that were sent.
    pub router_advertisements: Counter,
}

/// The time in which DHCP requests are answered.
#[derive(Clone, Debug)]
struct ReplyTime(Histogram);

impl Default for ReplyTime {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.000_01, 4.0, 10)))
    }
}

/// The name of a kind of event, formatted at each scrape: events are more frequent than scrapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventName(BootEventKind);

impl EncodeLabelValue for EventName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let name = self.0.as_str_name().trim_start_matches("BOOT_EVENT_KIND_");
        encoder.write_str(&name.to_lowercase())
    }
}

impl Metrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let all = self.clone();
        registry.register("netboot_dhcp_drops", "DHCP requests dropped, by reason", all.drops);
        registry.register("netboot_dhcp_replies", "DHCP replies, by type", all.replies);
        let help = "Time from a DHCP request to its reply";
        registry.register("netboot_dhcp_reply_seconds", help, all.reply_time.0);
        let help = "Addresses that can be leased, by subnet";
        registry.register("netboot_pool_free", help, all.free_addresses);
        registry.register("netboot_scripts", "Scripts served or refused", all.scripts);
        registry.register("netboot_gate_refused", "Refused boot requests, by rule", all.refused);
        let help = "HTTP responses, by route and status code";
        registry.register("netboot_http_requests", help, all.http_responses);
        registry.register("netboot_tftp_requests", "TFTP requests, by result", all.transfers);
        registry.register("netboot_tftp_bytes", "Acknowledged bytes", all.transferred_bytes);
        let help = "Clients without a record that sent requests";
        registry.register("netboot_unknown_machines", help, all.unknown_clients);
        let help = "Boot requests from clients without a record";
        registry.register("netboot_unknown_requests", help, all.unknown_requests);
        let help = "1 if the feed is connected, else 0";
        registry.register("netboot_feed_connected", help, all.connected_feeds);
        let help = "Seconds since a feed was disconnected; 0 while all are connected";
        registry.register("netboot_feed_age_seconds", help, all.feed_age);
        registry.register("netboot_records", "Machines with a record", all.machines);
        registry.register("netboot_boot_events", "Boot events, by kind", all.boot_events);
        let help = "Boot events dropped: the queue was full, or the store unavailable for long";
        registry.register("netboot_boot_events_dropped", help, all.dropped_boot_events);
        let help = "Stored syslog lines, by whether the sender has a record";
        registry.register("netboot_syslog_lines", help, all.syslog_lines);
        let help = "Syslog lines dropped: too many a second from one address";
        registry.register("netboot_syslog_lines_dropped", help, all.dropped_syslog_lines);
        let help = "Replies to router solicitations of booting machines";
        registry.register("netboot_router_advertisements", help, all.router_advertisements);
    }

    /// Sets the number of free addresses of a subnet.
    pub fn free(&self, subnet: String, addresses: usize) {
        self.free_addresses.get_or_create(&[("subnet", subnet)]).set(gauge(addresses));
    }

    /// Sets the number of clients without a record.
    pub fn unknown(&self, clients: usize) {
        self.unknown_clients.set(gauge(clients));
    }

    /// Counts a dropped DHCP request.
    pub fn dropped(&self, reason: &'static str) {
        self.drops.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a DHCP reply.
    pub fn replied(&self, r#type: &'static str) {
        self.replies.get_or_create(&[("type", r#type)]).inc();
    }

    /// Records the time from a DHCP request to its reply.
    pub fn reply_time(&self, time: Duration) {
        self.reply_time.0.observe(time.as_secs_f64());
    }

    /// Counts a script that was served or refused.
    pub fn script(&self, kind: &'static str) {
        self.scripts.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts a refusal by its rule.
    pub fn refused(&self, rule: &'static str) {
        self.refused.get_or_create(&[("rule", rule)]).inc();
    }

    /// Counts an HTTP response.
    pub fn http_response(&self, route: &'static str, code: u16) {
        self.http_responses.get_or_create(&([("route", route)], [("code", code)])).inc();
    }

    /// Counts a finished TFTP request.
    pub fn transfer(&self, result: &'static str, bytes: u64) {
        self.transfers.get_or_create(&[("result", result)]).inc();
        self.transferred_bytes.inc_by(bytes);
    }

    /// Sets the number of `machines`, the `disconnected` feeds, and the time since the first of them was disconnected.
    pub fn feeds(&self, machines: usize, disconnected: &[&'static str], age: Duration) {
        for feed in ["hardware", "instance", "workflow"] {
            let connected = i64::from(!disconnected.contains(&feed));
            self.connected_feeds.get_or_create(&[("feed", feed)]).set(connected);
        }
        self.feed_age.set(age.as_secs_f64());
        self.machines.set(gauge(machines));
    }

    /// Counts a boot event.
    pub fn boot_event(&self, kind: BootEventKind) {
        self.boot_events.get_or_create(&[("kind", EventName(kind))]).inc();
    }

    /// Counts a stored syslog line.
    pub fn syslog_line(&self, has_record: bool) {
        let known = if has_record { "true" } else { "false" };
        self.syslog_lines.get_or_create(&[("known", known)]).inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
