//! The stores, the clock, and the operations that run.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use runtime::Clock;
use store::backup::RestoreMark;
use tinwright::image::v1 as pb;
use tokio::task::yield_now;

use super::contents::{self, CONTENTS, FORMS, TestBlob};
use super::gates::{GatedObjects, GatedStore};
use super::process::{LEASE, Process, RETENTION};
use crate::error::Error;

/// The tenants of images. The last one is the site.
pub(super) const TENANTS: [&str; 3] = ["acme", "other", ""];
/// The builders.
const HOLDERS: [&str; 3] = ["a", "b", "c"];
/// Maximum number of operations that run at the same time.
const MAX_OPERATIONS: usize = 4;
/// Steps of an operation that is to end.
const MAX_STEPS: usize = 10_000;

/// An operation that runs.
type Operation = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// The state of a run.
pub(super) struct World {
    random: Xoshiro256PlusPlus,
    clock: Clock,
    pub(super) store: Arc<GatedStore>,
    pub(super) objects: GatedObjects,
    process: Process,
    operations: Vec<Operation>,
    /// An earlier state of the store.
    copy: Vec<(String, Bytes)>,
    /// Ids of images and digests of their content that a restored store names, but was collected.
    pub(super) excused: BTreeSet<(String, String)>,
    /// Objects at the last restore, while no content may be collected.
    pub(super) held: BTreeSet<Path>,
    /// Objects with a flipped bit.
    pub(super) flipped: BTreeSet<Path>,
    /// Number of created images.
    created: usize,
}

impl World {
    /// The state at the beginning of the run `seed`.
    pub(super) async fn new(seed: u64) -> Self {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_hours(1_000_000));
        let store = Arc::new(GatedStore::with(&[]).await);
        let objects = GatedObjects(Arc::new(InMemory::new()));
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            process: Process::new(store.clone(), Arc::new(objects.clone()), &clock),
            clock,
            store,
            objects,
            operations: Vec::new(),
            copy: Vec::new(),
            excused: BTreeSet::new(),
            held: BTreeSet::new(),
            flipped: BTreeSet::new(),
            created: 0,
        }
    }

    /// Creates a few images with content.
    pub(super) async fn prepare(&mut self) {
        for _ in 0..self.random.random_range(0..4) {
            finish(self.creation()).await;
            let operation = self.build_operation().await;
            finish(operation.unwrap()).await;
        }
        self.copy = self.store.all().await;
    }

    /// Lets one random event happen.
    pub(super) async fn event(&mut self) {
        match self.random.random_range(0..1000) {
            0..60 if self.operations.len() < MAX_OPERATIONS => self.begin().await,
            60..75 => self.pass_time(),
            75..79 => drop(self.take_operation()),
            79..81 => self.crash(),
            81..86 => self.copy = self.store.all().await,
            86..90 => self.restore().await,
            90..100 if self.is_marked().await => {
                self.operations.push(Box::pin(self.process.clone().resume()));
            }
            100..103 => self.flip().await,
            103..106 => {
                let calls = self.random.random_range(1..20);
                self.store.faults.fail_after(calls);
            }
            _ => self.step().await,
        }
        self.check_held().await;
    }

    /// Begins a random operation, if there is something for it.
    async fn begin(&mut self) {
        let operation = match self.random.random_range(0..20) {
            0..2 => Some(self.creation()),
            2..8 => self.build_operation().await,
            8..10 => self.deletion().await,
            _ => Some(self.content_operation()),
        };
        self.operations.extend(operation);
    }

    fn creation(&mut self) -> Operation {
        self.created += 1;
        let name = format!("c{}-{}", self.random.random_range(0..CONTENTS), self.created);
        let tenant = TENANTS[self.random.random_range(0..TENANTS.len())];
        Box::pin(self.process.clone().create(name, tenant))
    }

    async fn build_operation(&mut self) -> Option<Operation> {
        let mut builds = self.builds().await;
        builds.retain(|build| !build.is_terminal());
        let pb::Build { id, image_name, .. } = self.pick(builds)?;
        let content = usize::from(image_name.as_bytes()[1] - b'0');
        let form = self.random.random_range(0..FORMS);
        let holder = HOLDERS[self.random.random_range(0..HOLDERS.len())];
        let process = self.process.clone();
        Some(match self.random.random_range(0..8) {
            0 => Box::pin(process.fail(id, holder)),
            1 => Box::pin(async move { process.builds.cancel(&id).await.map(drop) }),
            _ => Box::pin(process.build(id, holder, content, form)),
        })
    }

    async fn deletion(&mut self) -> Option<Operation> {
        let images = self.images().await;
        let id = self.pick(images)?.id.parse().unwrap();
        let process = self.process.clone();
        Some(Box::pin(async move { process.images.delete_owned(id, 0, None).await }))
    }

    fn content_operation(&mut self) -> Operation {
        let process = self.process.clone();
        match self.random.random_range(0..10) {
            0..5 => Box::pin(async move { process.collector.collect().await.map(drop) }),
            5 => Box::pin(async move { process.damage.check().await.map(drop) }),
            6 => Box::pin(async move { process.builds.end_expired().await.map(drop) }),
            7 => Box::pin(process.check(self.random_blob().digest.clone())),
            _ => {
                let blob = self.random_blob();
                Box::pin(async move { process.store(blob).await })
            }
        }
    }

    fn random_blob(&mut self) -> &'static TestBlob {
        let count = contents::all_blobs().count();
        contents::all_blobs().nth(self.random.random_range(0..count)).unwrap()
    }

    /// Flips a bit of a random object.
    async fn flip(&mut self) {
        let listed = self.listed().await.into_iter().collect();
        let Some(location) = self.pick(listed) else { return };
        if self.flipped.insert(location.clone()) {
            let mut bytes =
                self.objects.0.get(&location).await.unwrap().bytes().await.unwrap().to_vec();
            bytes[0] ^= 1;
            self.objects.0.put(&location, bytes.into()).await.unwrap();
        }
    }

    /// Takes a random one of `from`.
    fn pick<T>(&mut self, mut from: Vec<T>) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(self.random.random_range(0..from.len())))
    }

    fn pass_time(&mut self) {
        let times = [LEASE / 3, LEASE, RETENTION / 2, RETENTION];
        self.clock.advance(times[self.random.random_range(0..times.len())]);
    }

    fn take_operation(&mut self) -> Option<Operation> {
        let count = self.operations.len();
        (count > 0).then(|| self.operations.swap_remove(self.random.random_range(0..count)))
    }

    /// Ends all processes. A new one begins.
    fn crash(&mut self) {
        self.operations.clear();
        self.process =
            Process::new(self.store.clone(), Arc::new(self.objects.clone()), &self.clock);
    }

    /// Puts the copy of the store in the place of the store, while no process runs. No content that
    /// there is may be collected then.
    async fn restore(&mut self) {
        self.store.faults.fail_after(0);
        for _ in 0..self.random.random_range(0..3) {
            self.lose_content().await;
        }
        self.check_held().await;
        self.store = Arc::new(GatedStore::with(&self.copy).await);
        RestoreMark::new(self.store.pairs.clone()).set().await.unwrap();
        self.crash();
        self.held = self.listed().await;
        self.excused = self.missing().await.into_iter().collect();
    }

    /// Deletes an image, and collects its content a day later.
    async fn lose_content(&mut self) {
        let Some(deletion) = self.deletion().await else { return };
        finish(deletion).await;
        self.clock.advance(RETENTION);
        self.collect().await;
    }

    /// Lets a random operation go on.
    async fn step(&mut self) {
        let Some(mut operation) = self.take_operation() else { return };
        if poll(&mut operation).await {
            self.operations.push(operation);
        }
    }

    /// Ends the run: the operations end or are dropped, lost content is stored again, and unused
    /// content is collected.
    pub(super) async fn end(&mut self) {
        self.store.faults.fail_after(0);
        if self.random.random_bool(0.5) {
            self.crash();
        }
        while let Some(operation) = self.operations.pop() {
            finish(operation).await;
        }
        self.check_invariants().await;
        let process = self.process.clone();
        self.clock.advance(LEASE * 10);
        for blob in contents::all_blobs() {
            finish(Box::pin(process.clone().check(blob.digest.clone()))).await;
        }
        self.check_damage().await;
        let damaged = self.damaged().await;
        if !damaged.is_empty() {
            let (stored, damage) = (process.clone(), process.damage.clone());
            finish(Box::pin(async move {
                for digest in damaged {
                    stored.store(contents::blob(&digest)).await?;
                }
                damage.check().await.map(drop)
            }))
            .await;
        }
        self.check_repaired().await;
        self.check_sound().await;
        self.clock.advance(RETENTION);
        self.collect().await;
        self.check_held().await;
        finish(Box::pin(process.resume())).await;
        self.collect().await;
        self.check_invariants().await;
        self.check_collected().await;
    }

    /// Collects unused content, unless the store was restored.
    async fn collect(&self) {
        let collector = self.process.collector.clone();
        finish(Box::pin(async move { collector.collect().await.map(drop) })).await;
    }
}

/// Lets `operation` go on until its next access to a store. False if it has ended.
async fn poll(operation: &mut Operation) -> bool {
    let polled = operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // Parts of objects are written by tasks.
    yield_now().await;
    match polled {
        Poll::Pending => true,
        Poll::Ready(Ok(())) => false,
        Poll::Ready(Err(error)) => {
            assert!(is_expected(&error), "{error:?}");
            false
        }
    }
}

/// Lets `operation` go on to its end.
async fn finish(mut operation: Operation) {
    for _ in 0..MAX_STEPS {
        if !poll(&mut operation).await {
            return;
        }
    }
    panic!("an operation does not end");
}

/// True for an error that other operations or lost connections cause.
fn is_expected(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::Records(_) | Error::BlobMissing(_))
}
