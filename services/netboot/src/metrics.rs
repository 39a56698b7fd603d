//! The metrics of network boot. No label is a MAC or an address.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use range_cache::CacheUsage;
use tinwright::netboot::v1::BootEventKind;

/// One label: its name and value.
pub(crate) type Label<V = &'static str> = [(&'static str, V); 1];

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// DHCP requests that were dropped, by reason.
    pub(crate) drops: Family<Label, Counter>,
    /// DHCP replies, by type.
    pub(crate) replies: Family<Label, Counter>,
    /// The time from a DHCP request to its reply, in seconds.
    pub(crate) reply_time: ReplyTime,
    scripts: Family<Label, Counter>,
    /// Refused boot requests, by rule.
    pub(crate) refused: Family<Label, Counter>,
    /// HTTP responses, by route and status code.
    http_responses: Family<(Label, Label<u16>), Counter>,
    script_responses: OnceLock<Counter>,
    /// Finished TFTP requests, by result.
    pub(crate) transfers: Family<Label, Counter>,
    /// Bytes that TFTP clients acknowledged.
    pub(crate) transferred_bytes: Counter,
    /// Clients without a record that sent requests.
    pub(crate) unknown_clients: Gauge,
    /// Addresses that can be leased, by subnet.
    pub(crate) free_addresses: Family<Label<String>, Gauge>,
    connected_feeds: Family<Label, Gauge>,
    feed_age: Gauge<f64, AtomicU64>,
    machines: Gauge,
    /// Boot events, by kind.
    pub(crate) boot_events: Family<Label<EventName>, Counter>,
    /// Stored syslog lines, by whether the sender has a record.
    pub(crate) syslog_lines: Family<Label, Counter>,
    /// Boot requests from clients without a record.
    pub unknown_requests: Counter,
    /// Boot events that were dropped.
    pub dropped_boot_events: Counter,
    /// Syslog lines that were dropped.
    pub dropped_syslog_lines: Counter,
    /// Router advertisements that were sent.
    pub router_advertisements: Counter,
    image_cache_hits: Counter,
    image_cache_origin: Counter,
    image_cache_bytes: Gauge,
}

/// Response times of DHCP requests.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTime(pub(crate) Histogram);

impl Default for ReplyTime {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.000_01, 4.0, 10)))
    }
}

/// The name of a kind of event, formatted at each scrape: events are more frequent than scrapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventName(pub(crate) BootEventKind);

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
        let help = "Bytes of images served from the cache";
        registry.register("netboot_image_cache_hit_bytes", help, all.image_cache_hits);
        let help = "Bytes of images requested for the cache";
        registry.register("netboot_image_cache_origin_bytes", help, all.image_cache_origin);
        let help = "Bytes of images in the cache";
        registry.register("netboot_image_cache_stored_bytes", help, all.image_cache_bytes);
    }

    /// Sets the values of the cache of images.
    pub fn image_cache(&self, usage: CacheUsage) {
        self.image_cache_hits.inner().store(usage.hit_bytes, Ordering::Relaxed);
        self.image_cache_origin.inner().store(usage.origin_bytes, Ordering::Relaxed);
        self.image_cache_bytes.set(usage.stored_bytes.try_into().unwrap_or(i64::MAX));
    }

    /// Counts a dropped DHCP request.
    pub fn dropped(&self, reason: &'static str) {
        self.drops.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a script that was served or refused.
    pub fn script(&self, kind: &'static str) {
        self.scripts.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts a response. The counter of scripts is looked up once: whole racks request them at once.
    pub(crate) fn http_response(&self, route: &'static str, status: u16) {
        let labels = ([("route", route)], [("code", status)]);
        let count = || self.http_responses.get_or_create_owned(&labels);
        match (route, status) {
            ("script", 200) => self.script_responses.get_or_init(count).inc(),
            _ => count().inc(),
        };
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
}

/// Returns `count` as the value of a gauge.
pub(crate) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
