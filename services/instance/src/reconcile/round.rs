//! The loop: hears what changed and what ended, and has whoever is due looked at.

use std::collections::HashMap;
use std::time::Instant;

use runtime::feed::FeedEvent;
use store::mirror::{Mirror, Watcher};
use tinwright::instance::v1::Instance;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1::Workflow;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::agenda::{Agenda, Failed, Then};
use super::{Reconciler, is_ended};
use crate::instances::Occupancy;
use crate::state::State;

/// How many instances are looked at at the same time.
const AT_ONCE: usize = 32;

/// Which workflow ended or went away.
#[derive(Debug)]
pub(super) enum Ended {
    /// This one.
    One(String),
    /// Any: the feed began anew.
    Any,
    /// None.
    None,
}

impl Ended {
    /// What `news` of workflows says about their ends.
    pub(super) fn heard(news: FeedEvent<Workflow>) -> Self {
        match news {
            FeedEvent::Snapshot(_) => Self::Any,
            FeedEvent::Put(workflow) if is_ended(&workflow) => Self::One(workflow.id),
            FeedEvent::Deleted(id) => Self::One(id),
            FeedEvent::Put(_) | FeedEvent::Disconnected => Self::None,
        }
    }
}

/// The loop and all it knows.
pub(super) struct Round {
    reconciler: Reconciler,
    agenda: Agenda,
    waiting: Waiting,
    tasks: JoinSet<(String, Result<Then, Failed>)>,
    watcher: Watcher<Occupancy>,
    mirror: Mirror<Occupancy>,
    ended: mpsc::UnboundedReceiver<Ended>,
}

impl Round {
    /// Hears of instances from `mirror` and of workflows from `ended`.
    pub(super) fn new(
        reconciler: Reconciler,
        mirror: Mirror<Occupancy>,
        ended: mpsc::UnboundedReceiver<Ended>,
    ) -> Self {
        let (agenda, waiting, tasks) = Default::default();
        Self { reconciler, agenda, waiting, tasks, watcher: mirror.watch(), mirror, ended }
    }

    /// Goes on until `stop`, and then until what it began is done.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            self.start();
            let due = self.agenda.next().filter(|_| self.tasks.len() < AT_ONCE);
            tokio::select! {
                () = stop.cancelled() => break,
                told = self.watcher.next() => match told {
                    Ok(told) => self.told(told),
                    Err(_) => self.watcher = self.mirror.watch(),
                },
                Some(ended) = self.ended.recv() => self.workflow_ended(&ended),
                Some(joined) = self.tasks.join_next() => {
                    let (id, outcome) = joined.unwrap_or_else(resume);
                    self.agenda.done(&id, outcome, Instant::now());
                }
                () = until(due) => {}
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Has those looked at that are due.
    fn start(&mut self) {
        while self.tasks.len() < AT_ONCE {
            let Some(id) = self.agenda.take(Instant::now()) else { return };
            let reconciler = self.reconciler.clone();
            self.tasks.spawn(async move {
                let outcome = reconciler.look_at(&id).await;
                (id, outcome)
            });
        }
    }

    fn told(&mut self, told: WatchEvent<Instance>) {
        match told {
            WatchEvent::Put(instance) => {
                if State::try_from(&instance).is_ok_and(State::is_under_way) {
                    self.agenda.ask(&instance.id, Instant::now());
                }
                self.waiting.set(instance.id, instance.workflow_id);
            }
            WatchEvent::Deleted(id) => self.waiting.set(id, String::new()),
            WatchEvent::Synced => {}
        }
    }

    fn workflow_ended(&mut self, ended: &Ended) {
        let now = Instant::now();
        match ended {
            Ended::One(workflow) => {
                if let Some(id) = self.waiting.instances.get(workflow) {
                    self.agenda.ask(id, now);
                }
            }
            Ended::Any => self.waiting.workflows.keys().for_each(|id| self.agenda.ask(id, now)),
            Ended::None => {}
        }
    }
}

/// Which instance waits for the end of which workflow, found from either side.
#[derive(Debug, Default)]
struct Waiting {
    workflows: HashMap<String, String>,
    instances: HashMap<String, String>,
}

impl Waiting {
    /// `instance` waits for `workflow` and no other; for none where that is empty.
    fn set(&mut self, instance: String, workflow: String) {
        if let Some(old) = self.workflows.remove(&instance) {
            self.instances.remove(&old);
        }
        if !workflow.is_empty() {
            self.instances.insert(workflow.clone(), instance.clone());
            self.workflows.insert(instance, workflow);
        }
    }
}

/// A panic in a step is one of the whole loop: nobody would look at that instance again. Steps are not aborted.
fn resume<T>(error: JoinError) -> T {
    std::panic::resume_unwind(error.into_panic())
}

/// Resolves at `due`, or never.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
