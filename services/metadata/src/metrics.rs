//! Metrics. Neither machines nor their addresses are labels.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use runtime::Clock;

use crate::index::Index;

/// Upper bounds of latencies, in seconds. The goal is ten milliseconds.
const LATENCIES: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0];

/// The metrics of the service.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    unknown_callers: Counters<String>,
    tokens: Counters,
    denied: Counters,
    first_accesses: Counters,
    latency: Histogram,
    pub(crate) subscriptions: Gauge,
}

/// Counters with one label.
type Counters<V = &'static str> = Family<[(&'static str, V); 1], Counter>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    code: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::registered(&mut Registry::default())
    }
}

impl Metrics {
    /// Registers the metrics of the service, and those of the feeds of `index`.
    pub fn new(registry: &mut Registry, index: Arc<Index>, clock: Clock) -> Self {
        registry.register_collector(Box::new(FeedCollector { index, clock }));
        Self::registered(registry)
    }

    fn registered(registry: &mut Registry) -> Self {
        let latency = Histogram::new(LATENCIES);
        registry.register(
            "metadata_reply_seconds",
            "Time to answer a request, in seconds",
            latency.clone(),
        );
        let subscriptions = "Open subscriptions to a machine's document";
        let unknown_callers = "Requests from an address that no machine has, by listener";
        let first_accesses = "First accesses of an installation, by kind";
        Self {
            requests: register(registry, "metadata_requests", "Requests, by route and status"),
            unknown_callers: register(registry, "metadata_lookup_misses", unknown_callers),
            tokens: register(registry, "metadata_tokens", "Session tokens, by result"),
            denied: register(registry, "metadata_denied", "Refused requests, by reason"),
            first_accesses: register(registry, "metadata_firsts", first_accesses),
            subscriptions: register(registry, "metadata_subscriptions", subscriptions),
            latency,
        }
    }

    /// Counts a request that was answered after `elapsed`.
    pub(crate) fn answered(&self, route: &'static str, code: u16, elapsed: Duration) {
        self.requests.get_or_create(&Request { route, code }).inc();
        self.latency.observe(elapsed.as_secs_f64());
    }

    /// Counts a request to this address of ours from an address that no machine has.
    pub(crate) fn unknown_caller(&self, listener: Option<SocketAddr>) {
        let segment = listener.map(|listener| listener.to_string()).unwrap_or_default();
        self.unknown_callers.get_or_create(&[("segment", segment)]).inc();
    }

    /// Counts a session token that was created, accepted or refused.
    pub(crate) fn token(&self, result: &'static str) {
        self.tokens.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a refused request.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.denied.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts the first access of its kind of an instance.
    pub(crate) fn first_access(&self, event: &'static str) {
        self.first_accesses.get_or_create(&[("event", event)]).inc();
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Reads the state of the feeds when the metrics are scraped.
#[derive(Debug)]
struct FeedCollector {
    index: Arc<Index>,
    clock: Clock,
}

impl Collector for FeedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = self.index.feed_age(self.clock.monotonic());
        let mut gauge = |name, help, value| {
            let value = ConstGauge::new(value);
            let kind = value.metric_type();
            value.encode(encoder.encode_descriptor(name, help, None, kind)?)
        };
        let is_live = i64::from(age == Some(Duration::ZERO));
        gauge("metadata_feed_connected", "1 if the feeds are connected, else 0.", is_live)?;
        // Before the first snapshot there is no age.
        let Some(age) = age else { return Ok(()) };
        let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let help = "Time since the feeds were disconnected, 0 while they are connected";
        gauge("metadata_feed_age_seconds", help, age)
    }
}
