//! What is counted (metadata specification, section 15). No machine and no address of one is a label.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::index::Index;

/// Upper bounds of how long an answer took, in seconds: ten milliseconds is what clients are promised.
const LATENCIES: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0];

/// The counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    misses: Family<Segment, Counter>,
    tokens: Family<Outcome, Counter>,
    denied: Family<Reason, Counter>,
    firsts: Family<Event, Counter>,
    latency: Histogram,
    subscriptions: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Segment {
    segment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    event: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            misses: Family::default(),
            tokens: Family::default(),
            denied: Family::default(),
            firsts: Family::default(),
            latency: Histogram::new(LATENCIES),
            subscriptions: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Counters in `registry`, and what `index` knows of its feed.
    pub fn new(registry: &mut Registry, index: Arc<Index>) -> Self {
        let new = Self::default();
        registry.register(
            "metadata_requests",
            "Requests, by route and status",
            new.requests.clone(),
        );
        registry.register(
            "metadata_lookup_misses",
            "Requests from an address nobody has, by listener",
            new.misses.clone(),
        );
        registry.register(
            "metadata_tokens",
            "Session tokens made or refused, by result",
            new.tokens.clone(),
        );
        registry.register("metadata_denied", "Requests refused, by reason", new.denied.clone());
        registry.register(
            "metadata_firsts",
            "Instances seen for the first time before and after they were installed, by what they did",
            new.firsts.clone(),
        );
        registry.register("metadata_latency_seconds", "How long answers took", new.latency.clone());
        registry.register(
            "metadata_subscriptions",
            "Streams that tell machines of changes",
            new.subscriptions.clone(),
        );
        registry.register_collector(Box::new(Feed { index }));
        new
    }

    /// A request was answered after `took`.
    pub(crate) fn answered(&self, route: &'static str, code: u16, took: Duration) {
        self.requests.get_or_create(&Request { route, code }).inc();
        self.latency.observe(took.as_secs_f64());
    }

    /// Nobody has the address that asked the listener `segment`.
    pub(crate) fn missed(&self, segment: String) {
        self.misses.get_or_create(&Segment { segment }).inc();
    }

    /// A token was asked for or sent.
    pub(crate) fn token(&self, result: &'static str) {
        self.tokens.get_or_create(&Outcome { result }).inc();
    }

    /// A request was refused.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.denied.get_or_create(&Reason { reason }).inc();
    }

    /// There are `count` subscriptions now.
    pub(crate) fn subscribed(&self, count: usize) {
        self.subscriptions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An instance did something for the first time.
    pub(crate) fn first(&self, event: &'static str) {
        self.firsts.get_or_create(&Event { event }).inc();
    }
}

/// How fresh the index is, as of when somebody looks.
struct Feed {
    index: Arc<Index>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Collector for Feed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = self.index.feed_age(Instant::now());
        let live = ConstGauge::new(i64::from(age == Some(Duration::ZERO)));
        let mut gauge = |name, help, value: &ConstGauge<_>| {
            let kind = value.metric_type();
            value.encode(encoder.encode_descriptor(name, help, None, kind)?)
        };
        gauge("metadata_feed_connected", "Whether the feed is live", &live)?;
        // Before anything was heard there is no age.
        let Some(age) = age else { return Ok(()) };
        let age = ConstGauge::new(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        gauge("metadata_feed_age_seconds", "Since when the feed is cut, 0 where it is live", &age)
    }
}
