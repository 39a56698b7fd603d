//! The gateway's metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// One label: its name and value.
type Label<V = &'static str> = [(&'static str, V); 1];

/// Requests by door.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    answered: Family<(Label, Label<u16>), Counter>,
    seconds: Family<Label, Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let answered = Family::default();
        let help = "Requests that the gateway answered, by door and HTTP status";
        registry.register("gateway_requests", help, answered.clone());
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_1, 4.0, 10));
        let seconds = Family::new_with_constructor(histogram);
        let help = "Time until the response of the gateway begins, by door";
        registry.register("gateway_request_seconds", help, seconds.clone());
        Self { answered, seconds }
    }

    pub(crate) fn record(&self, door: &'static str, status: u16, seconds: f64) {
        let door = [("door", door)];
        self.answered.get_or_create(&(door, [("status", status)])).inc();
        self.seconds.get_or_create(&door).observe(seconds);
    }
}
