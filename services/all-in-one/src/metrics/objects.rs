//! The objects in each state, the longest queue of a machine, and the durations of what has ended.
//!
//! Ended workflows and power jobs are counted and forgotten, so that a long history takes no memory. What ended before the
//! process followed its noun is not counted.

mod observation;

use std::collections::HashMap;
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
use tinwright::hardware::v1 as hardware;
use tinwright::instance::v1::State;
use tinwright::power::v1::power_job;
use tinwright::workflow::v1::WorkflowState;
use uuid::Uuid;

use self::observation::Observation;
pub(super) use self::observation::Observed;

/// Ended objects that are not counted again when they are changed.
const MAX_COUNTED: usize = 4096;

/// The nouns with such metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noun {
    Hardware,
    Workflow,
    Instance,
    PowerJob,
}

impl Noun {
    /// Returns the label of `state`; none if there is no such state.
    fn label(self, state: i32) -> Option<String> {
        Some(match self {
            Self::Hardware => hardware::State::try_from(state).ok()?.word(),
            Self::Workflow => WorkflowState::try_from(state).ok()?.word(),
            Self::Instance => State::try_from(state).ok()?.word(),
            Self::PowerJob => {
                let name = power_job::State::try_from(state).ok()?.as_str_name();
                name.trim_start_matches("STATE_").to_ascii_lowercase()
            }
        })
    }

    /// Returns the states that objects in memory can have, with their labels.
    fn states(self) -> impl Iterator<Item = (i32, String)> {
        (1..).map_while(move |state| Some((state, self.label(state)?))).filter(move |(state, _)| {
            match self {
                Self::Hardware => true,
                Self::Workflow => WorkflowState::try_from(*state).is_ok_and(|it| !it.is_terminal()),
                Self::Instance => State::try_from(*state).is_ok_and(|it| it != State::Deleted),
                Self::PowerJob => {
                    power_job::State::try_from(*state).is_ok_and(|it| !it.is_terminal())
                }
            }
        })
    }
}

/// An object that has not ended.
#[derive(Clone, Copy, Debug)]
struct LiveObject {
    state: i32,
    machine: Option<Uuid>,
    instance: Option<Uuid>,
    is_counted: bool,
    has_warning: bool,
    failures: u32,
}

/// The objects of a noun.
#[derive(Debug)]
struct Table {
    noun: Noun,
    rows: HashMap<Uuid, LiveObject>,
    /// Ended objects that were counted.
    counted: BoundedMap<Uuid, ()>,
    /// The time of the first snapshot.
    synced_at: Option<SystemTime>,
    seconds: Durations,
    /// Failed attempts of power jobs.
    failures: Counter,
}

type Durations = Family<[(&'static str, String); 1], Histogram, fn() -> Histogram>;

impl Table {
    fn new(noun: Noun, registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 14));
        let seconds = Durations::new_with_constructor(histogram);
        let named = match noun {
            Noun::Hardware => None,
            Noun::Workflow => Some((
                "workflow_seconds",
                "Time from a workflow's creation to its end, in seconds, by state",
            )),
            Noun::Instance => Some((
                "instance_provisioning_seconds",
                "Time from an instance's creation to the end of its provisioning, in seconds, by state",
            )),
            Noun::PowerJob => Some((
                "power_job_seconds",
                "Time from a power job's creation to its end, in seconds, by result",
            )),
        };
        if let Some((name, help)) = named {
            registry.register(name, help, seconds.clone());
        }
        let failures = Counter::default();
        if noun == Noun::PowerJob {
            let help = "Attempts of power jobs that their BMC failed or did not answer";
            registry.register("bmc_failures", help, failures.clone());
        }
        let (rows, counted) = (HashMap::new(), BoundedMap::new(MAX_COUNTED));
        Self { noun, rows, counted, synced_at: None, seconds, failures }
    }

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
        let Observation { id, state, machine, instance, took, created, has_ended, .. } = object;
        let Observation { has_warning, failures, .. } = object;
        // An object that is neither in the table nor new may have ended long ago.
        let is_new = self.synced_at.is_some_and(|synced_at| created >= Some(synced_at));
        let is_uncounted = old.is_some_and(|row| !row.is_counted)
            || old.is_none() && is_new && self.counted.get(&id).is_none();
        // After an operation is done, the record counts from 0 again.
        let counted = old.map(|row| row.failures).filter(|counted| *counted <= failures);
        if self.synced_at.is_some() && (old.is_some() || is_uncounted) {
            self.failures.inc_by((failures - counted.unwrap_or_default()).into());
        }
        if let Some(took) = took.filter(|_| is_uncounted) {
            let label = self.noun.label(state).unwrap_or_default();
            self.seconds.get_or_create(&[("state", label)]).observe(took.as_secs_f64());
            if has_ended {
                self.counted.insert(id, ());
            }
        }
        if !has_ended {
            let is_counted = took.is_some() || old.is_some_and(|row| row.is_counted);
            let row = LiveObject { state, machine, instance, is_counted, has_warning, failures };
            self.rows.insert(id, row);
        }
    }

    fn in_state(&self, state: i32) -> usize {
        self.rows.values().filter(|row| row.state == state).count()
    }

    fn with_warning(&self) -> usize {
        self.rows.values().filter(|row| row.has_warning).count()
    }

    fn longest_queue(&self) -> usize {
        let mut queues = HashMap::<_, usize>::new();
        for machine in self.rows.values().filter_map(|row| row.machine) {
            *queues.entry(machine).or_default() += 1;
        }
        queues.into_values().max().unwrap_or_default()
    }
}

/// The metrics of all nouns. Gauges are computed when they are scraped.
#[derive(Clone, Debug)]
pub(crate) struct ObjectMetrics(Arc<Mutex<Tables>>);

#[derive(Debug)]
struct Tables {
    hardware: Table,
    workflows: Table,
    instances: Table,
    power_jobs: Table,
}

impl ObjectMetrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut table = |noun| Table::new(noun, registry);
        let (workflows, instances) = (table(Noun::Workflow), table(Noun::Instance));
        let (hardware, power_jobs) = (table(Noun::Hardware), table(Noun::PowerJob));
        let tables = Tables { hardware, workflows, instances, power_jobs };
        let metrics = Self(Arc::new(Mutex::new(tables)));
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Takes an event of the feed of `noun`.
    pub(super) fn take<T: Observed>(&self, noun: Noun, event: FeedEvent<T>, now: SystemTime) {
        let event = match event {
            FeedEvent::Snapshot(all) => {
                FeedEvent::Snapshot(all.iter().filter_map(|one| one.observe(now)).collect())
            }
            FeedEvent::Put(one) => match one.observe(now) {
                Some(one) => FeedEvent::Put(one),
                None => return,
            },
            FeedEvent::Deleted(id) => FeedEvent::Deleted(id),
            FeedEvent::Disconnected => FeedEvent::Disconnected,
        };
        self.tables().of(noun).take(event, now);
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn of(&mut self, noun: Noun) -> &mut Table {
        match noun {
            Noun::Hardware => &mut self.hardware,
            Noun::Workflow => &mut self.workflows,
            Noun::Instance => &mut self.instances,
            Noun::PowerJob => &mut self.power_jobs,
        }
    }

    /// Returns the number of running workflows whose instance does not exist; none before the first snapshots of both nouns.
    fn orphans(&self) -> Option<usize> {
        let Self { workflows, instances, .. } = self;
        let owners = workflows.rows.values().filter_map(|row| row.instance);
        (workflows.synced_at.is_some() && instances.synced_at.is_some())
            .then(|| owners.filter(|owner| !instances.rows.contains_key(owner)).count())
    }
}

impl Collector for ObjectMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let tables = self.tables();
        let Tables { hardware, workflows, instances, power_jobs } = &*tables;
        let kinds = [
            (hardware, "hardware", "Machines with a record, by state."),
            (workflows, "workflows", "Workflows that have not ended, by state."),
            (instances, "instances", "Instances, by state."),
            (power_jobs, "power_jobs", "Power jobs that have not ended, by state."),
        ];
        for (table, name, help) in kinds.into_iter().filter(|(table, ..)| table.synced_at.is_some())
        {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (state, label) in table.noun.states() {
                let labels = [("state", label)];
                gauge(table.in_state(state)).encode(family.encode_family(&labels)?)?;
            }
        }
        let queues = [
            (workflows, "workflow_longest_queue", "Workflows of one machine, at most."),
            (power_jobs, "power_job_longest_queue", "Power jobs of one machine, at most."),
        ];
        let queues = queues.into_iter().filter(|(table, ..)| table.synced_at.is_some());
        let orphans = "Workflows that have not ended and whose instance does not exist.";
        let warnings = "Workflows that have not ended and have a warning.";
        let warned = workflows.synced_at.map(|_| workflows.with_warning());
        let gauges = queues
            .map(|(table, name, help)| (name, help, table.longest_queue()))
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
