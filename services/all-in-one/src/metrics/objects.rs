//! The objects in each state, the longest queue of a machine, and the durations of what has ended.
//!
//! A noun of the contract with states is counted if the process has its records in memory.
//!
//! Ended objects are counted and forgotten, so that a long history takes no memory. What ended
//! before the process followed its noun is not counted.

mod observation;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use runtime::bounded_map::BoundedMap;
use runtime::feed::FeedEvent;
use store::records::Kind;
use tinwright::nouns::{NounInfo, StateInfo};
use uuid::Uuid;

use self::observation::{Details, Observation};

/// Ended objects that are not counted again when they are changed.
const MAX_COUNTED: usize = 4096;

/// The histograms: the noun, the name and the help.
const DURATIONS: [(&str, &str, &str); 3] = [
    (
        "workflow",
        "workflow_seconds",
        "Time from a workflow's creation to its end, in seconds, by state",
    ),
    (
        "instance",
        "instance_provisioning_seconds",
        "Time from an instance's creation to the end of its provisioning, in seconds, by state",
    ),
    (
        "power job",
        "power_job_seconds",
        "Time from a power job's creation to its end, in seconds, by result",
    ),
];

/// The gauges of queues: the noun, the name and the help.
const QUEUES: [(&str, &str, &str); 2] = [
    ("workflow", "workflow_longest_queue", "Workflows of one machine, at most."),
    ("power job", "power_job_longest_queue", "Power jobs of one machine, at most."),
];

/// Returns the help of the number of objects.
fn help(noun: &NounInfo) -> String {
    let plural = noun.plural.replace('_', " ");
    let [first, rest] = [plural.get(..1), plural.get(1..)].map(Option::unwrap_or_default);
    let plural = first.to_uppercase() + rest;
    match noun.singular {
        "hardware" => "Machines with a record, by state.".into(),
        "instance" => "Instances, by state.".into(),
        _ if noun.states.iter().any(|state| state.is_final) => {
            format!("{plural} that have not ended, by state.")
        }
        _ => format!("{plural}, by state."),
    }
}

/// An object that has not ended.
#[derive(Clone, Copy, Debug)]
struct LiveObject {
    /// None: a state that the contract does not have.
    state: Option<&'static StateInfo>,
    details: Details,
    is_counted: bool,
}

/// The objects of a noun.
#[derive(Debug)]
struct Table {
    noun: &'static NounInfo,
    rows: HashMap<Uuid, LiveObject>,
    /// Ended objects that were counted.
    counted: BoundedMap<Uuid, ()>,
    /// The time of the first snapshot.
    synced_at: Option<SystemTime>,
    seconds: Durations,
    /// Failed attempts of power jobs.
    failures: Counter,
}

type Durations = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

impl Table {
    fn take(&mut self, event: FeedEvent<Observation>, now: SystemTime) {
        match event {
            FeedEvent::Snapshot(all) => {
                let before = std::mem::take(&mut self.rows);
                for object in all {
                    self.put(object, before.get(&object.id).copied());
                }
                self.synced_at.get_or_insert(now);
            }
            FeedEvent::Put(object) => {
                let old = self.rows.remove(&object.id);
                self.put(object, old);
            }
            FeedEvent::Deleted(id) => {
                id.parse().ok().and_then(|id: Uuid| self.rows.remove(&id));
            }
            FeedEvent::Disconnected => {}
        }
    }

    /// Takes the state of an object, which was `old`, and counts it if it has ended.
    fn put(&mut self, object: Observation, old: Option<LiveObject>) {
        let Observation { id, state, details } = object;
        let Details { took, created, failures, .. } = details;
        // An object that is neither in the table nor new may have ended long ago.
        let is_new = self.synced_at.is_some_and(|synced_at| created >= Some(synced_at));
        let is_uncounted = old.is_some_and(|row| !row.is_counted)
            || old.is_none() && is_new && self.counted.get(&id).is_none();
        // After an operation is done, the record counts from 0 again.
        let counted = old.map(|row| row.details.failures).filter(|counted| *counted <= failures);
        if self.synced_at.is_some() && (old.is_some() || is_uncounted) {
            self.failures.inc_by((failures - counted.unwrap_or_default()).into());
        }
        let has_ended = state.is_some_and(|state| state.is_final);
        if let Some(took) = took.filter(|_| is_uncounted) {
            let label = state.map_or("", |state| state.word);
            self.seconds.get_or_create(&[("state", label)]).observe(took.as_secs_f64());
            if has_ended {
                self.counted.insert(id, ());
            }
        }
        if !has_ended {
            let is_counted = took.is_some() || old.is_some_and(|row| row.is_counted);
            self.rows.insert(id, LiveObject { state, details, is_counted });
        }
    }

    fn in_state(&self, state: &StateInfo) -> usize {
        self.rows.values().filter(|row| row.state == Some(state)).count()
    }

    fn with_warning(&self) -> usize {
        self.rows.values().filter(|row| row.details.has_warning).count()
    }

    fn longest_queue(&self) -> usize {
        let mut queues = HashMap::<_, usize>::new();
        for machine in self.rows.values().filter_map(|row| row.details.machine) {
            *queues.entry(machine).or_default() += 1;
        }
        queues.into_values().max().unwrap_or_default()
    }
}

/// The metrics of all nouns. Gauges are computed when they are scraped.
#[derive(Clone, Debug)]
pub(crate) struct ObjectMetrics(Arc<Mutex<Tables>>);

/// The tables of the nouns with states, by the name of one object.
#[derive(Debug)]
struct Tables(BTreeMap<&'static str, Table>);

impl ObjectMetrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 14));
        let failures = Counter::default();
        let help = "Attempts of power jobs that their BMC failed or did not answer";
        registry.register("bmc_failures", help, failures.clone());
        let mut table = |noun: &'static NounInfo| {
            let seconds = Durations::new_with_constructor(histogram);
            if let Some((_, name, help)) = DURATIONS.iter().find(|it| it.0 == noun.singular) {
                registry.register(*name, *help, seconds.clone());
            }
            let (rows, counted) = (HashMap::new(), BoundedMap::new(MAX_COUNTED));
            let failures = failures.clone();
            Table { noun, rows, counted, synced_at: None, seconds, failures }
        };
        let nouns = tinwright::nouns::NOUNS.iter().filter(|noun| !noun.states.is_empty());
        let tables = nouns.map(|noun| (noun.singular, table(noun))).collect();
        let metrics = Self(Arc::new(Mutex::new(Tables(tables))));
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// True if objects of `K` are counted.
    pub(super) fn counts<K: Kind>(&self) -> bool {
        self.tables().0.contains_key(K::NOUN)
    }

    /// Takes an event of the objects of `K`.
    pub(super) fn take<K: Kind>(&self, event: FeedEvent<K::Record>, now: SystemTime) {
        let mut tables = self.tables();
        let Some(table) = tables.0.get_mut(K::NOUN) else { return };
        let observe = |object: &K::Record| Observation::new::<K>(object, table.noun, now);
        let event = match event {
            FeedEvent::Snapshot(all) => {
                FeedEvent::Snapshot(all.iter().filter_map(observe).collect())
            }
            FeedEvent::Put(one) => match observe(&one) {
                Some(one) => FeedEvent::Put(one),
                None => return,
            },
            FeedEvent::Deleted(id) => FeedEvent::Deleted(id),
            FeedEvent::Disconnected => FeedEvent::Disconnected,
        };
        table.take(event, now);
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Returns the table of a noun after its first snapshot.
    fn synced(&self, noun: &str) -> Option<&Table> {
        self.0.get(noun).filter(|table| table.synced_at.is_some())
    }

    /// Returns the number of running workflows whose instance does not exist; none before the first snapshots of both nouns.
    fn orphans(&self) -> Option<usize> {
        let instances = self.synced("instance")?;
        let owners = self.synced("workflow")?.rows.values().filter_map(|row| row.details.instance);
        Some(owners.filter(|owner| !instances.rows.contains_key(owner)).count())
    }
}

impl Collector for ObjectMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let tables = self.tables();
        for table in tables.0.keys().filter_map(|noun| tables.synced(noun)) {
            let help = help(table.noun);
            let name = table.noun.plural;
            let mut family = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
            for state in table.noun.states.iter().filter(|state| !state.is_final) {
                let labels = [("state", state.word)];
                gauge(table.in_state(state)).encode(family.encode_family(&labels)?)?;
            }
        }
        let queues = QUEUES.iter().filter_map(|(noun, name, help)| {
            Some((*name, *help, tables.synced(noun)?.longest_queue()))
        });
        let orphans = "Workflows that have not ended and whose instance does not exist.";
        let warnings = "Workflows that have not ended and have a warning.";
        let warned = tables.synced("workflow").map(Table::with_warning);
        let gauges = queues
            .chain(warned.map(|count| ("workflows_with_warning", warnings, count)))
            .chain(tables.orphans().map(|count| ("workflows_orphaned", orphans, count)));
        for (name, help, value) in gauges {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge(value).encode(family)?;
        }
        Ok(())
    }
}

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
