//! The workers that are alive: an idle one calls for its next action twice a minute, a busy one reports its progress.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use runtime::bounded_map::BoundedMap;
use runtime::identity::MachinePurpose;
use runtime::{Caller, Clock, Role};
use tinwright::HardwareId;

/// A worker that did not call for this long is not counted. It is longer than the pauses between calls.
const ALIVE: Duration = Duration::from_secs(120);
/// Workers that are counted at a time.
const MAX_WORKERS: usize = 65_536;

/// The latest call of each worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerMetrics {
    latest: Arc<Mutex<BoundedMap<HardwareId, Instant>>>,
    clock: Clock,
}

impl WorkerMetrics {
    /// Registers the metric in `registry`.
    pub(crate) fn new(registry: &mut Registry, clock: Clock) -> Self {
        let latest = Arc::new(Mutex::new(BoundedMap::new(MAX_WORKERS)));
        let metrics = Self { latest, clock };
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Records a call of `caller`, if it is a worker.
    pub(crate) fn record(&self, caller: Option<&Caller>) {
        if let Some(Role::Machine(machine, MachinePurpose::Work)) = caller.map(Caller::role) {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            latest.insert(machine, self.clock.monotonic());
        }
    }

    fn alive(&self) -> usize {
        let now = self.clock.monotonic();
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alive = |at: &Instant| now.saturating_duration_since(*at) < ALIVE;
        latest.iter().filter(|(_, at)| is_alive(at)).count()
    }
}

impl Collector for WorkerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let alive = ConstGauge::new(i64::try_from(self.alive()).unwrap_or(i64::MAX));
        let (name, help) = ("workers_alive", "Workers that called within the last two minutes.");
        alive.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_worker_is_alive_for_two_minutes_after_its_latest_call() {
        let (clock, mut registry) = (Clock::manual(SystemTime::UNIX_EPOCH), Registry::default());
        let metrics = WorkerMetrics::new(&mut registry, clock.clone());
        let alive = || {
            let mut page = String::new();
            encode(&mut page, &registry).unwrap();
            let value = page.lines().find_map(|line| line.strip_prefix("workers_alive "));
            value.unwrap().parse::<u32>().unwrap()
        };
        let [one, other] = [(); 2].map(|()| Caller::from(Role::worker(HardwareId::new())));
        metrics.record(Some(&Caller::from(Role::Admin)));
        metrics.record(None);
        assert_eq!(alive(), 0);
        for caller in [&one, &other, &one] {
            metrics.record(Some(caller));
        }
        assert_eq!(alive(), 2);
        clock.advance(Duration::from_secs(60));
        metrics.record(Some(&one));
        clock.advance(Duration::from_secs(61));
        assert_eq!(alive(), 1);
    }
}
