//! The metric of objects that stay in a state for longer than is normal (`docs/reference/events.md`).

use std::collections::BTreeMap;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The number of overdue objects of each noun in each state.
#[derive(Clone, Debug)]
pub struct OverdueMetric(Family<[(&'static str, String); 2], Gauge>);

impl OverdueMetric {
    /// Registers the metric in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let gauges = Family::default();
        let help = "Objects that stay in a state for longer than is normal";
        registry.register("overdue", help, gauges.clone());
        Self(gauges)
    }

    /// Sets the numbers of a noun, by state.
    pub fn set(&self, noun: &'static str, counts: &BTreeMap<String, usize>) {
        for (state, count) in counts {
            let labels = [("noun", noun.to_owned()), ("state", state.clone())];
            let gauge = self.0.get_or_create(&labels);
            gauge.set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_names_noun_and_state() {
        let mut registry = Registry::with_prefix("tinwright");
        let metric = OverdueMetric::new(&mut registry);
        metric.set("instance", &BTreeMap::from([("queued".into(), 2), ("provisioning".into(), 0)]));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = "tinwright_overdue{noun=\"instance\",state=\"queued\"} 2\n";
        assert!(text.contains(line), "{text}");
        metric.set("instance", &BTreeMap::from([("queued".into(), 0)]));
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(!text.contains(line), "{text}");
    }
}
