//! A store and an object store with operations that wait for the scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use prost::Message as _;
use store::limits::MAX_WRITES;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Frozen, Page, Revision, Store, Versioned, Write};
use tinwright::image::v1 as pb;

/// Keys of builds.
const BUILDS: &str = "image/build/";

/// Returns control to the scheduler once.
pub(super) async fn gate() {
    let mut has_waited = false;
    poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Calls of commits until one fails as if the connection was lost. Zero: none fails.
#[derive(Debug, Default)]
pub(super) struct Faults(AtomicU64);

impl Faults {
    /// Lets the commit after `calls` calls fail.
    pub(super) fn fail_after(&self, calls: u64) {
        self.0.store(calls, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Error> {
        let count = |left: u64| left.checked_sub(1);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(1) => Err(Error::Unavailable("connection lost".into())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A store in memory. Each operation waits for the scheduler, and a commit also before it returns.
pub(super) struct GatedStore {
    pub(super) pairs: Arc<MemoryStore>,
    pub(super) faults: Faults,
    /// Number of commits that ended each build.
    ends: Mutex<BTreeMap<String, usize>>,
}

impl GatedStore {
    /// A store with `pairs`.
    pub(super) async fn with(pairs: &[(String, Bytes)]) -> Self {
        let store = Arc::new(MemoryStore::default());
        for pairs in pairs.chunks(MAX_WRITES) {
            let write = |(key, value): &(String, Bytes)| Write::Put(key.clone(), value.clone());
            let writes = pairs.iter().map(write).collect();
            store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
        }
        Self { pairs: store, faults: Faults::default(), ends: Mutex::default() }
    }

    /// Returns all pairs.
    pub(super) async fn all(&self) -> Vec<(String, Bytes)> {
        let page = self.pairs.list("", "", usize::MAX).await.unwrap();
        assert!(!page.more);
        page.pairs.into_iter().map(|(key, found)| (key, found.value)).collect()
    }

    /// Counts the builds that `writes` end. Each ends once.
    fn count_ends(&self, writes: &[Write]) {
        for write in writes {
            let Write::Put(key, value) = write else { continue };
            if key.starts_with(BUILDS) && pb::Build::decode(value.clone()).unwrap().is_terminal() {
                let mut ends = self.ends.lock().unwrap();
                let count = ends.entry(key.clone()).or_default();
                *count += 1;
                assert_eq!(*count, 1, "{key} ended again");
            }
        }
    }
}

#[async_trait]
impl Store for GatedStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        gate().await;
        self.pairs.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        gate().await;
        self.pairs.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        gate().await;
        self.faults.check()?;
        let writes = commit.writes.clone();
        let revision = self.pairs.commit(commit).await?;
        self.count_ends(&writes);
        gate().await;
        self.faults.check()?;
        Ok(revision)
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.pairs.changed(prefix, after).await
    }

    async fn frozen(&self, after: Revision, keys: BTreeSet<String>) -> Result<Frozen, Error> {
        self.pairs.frozen(after, keys).await
    }
}

/// An object store in memory. Each operation waits for the scheduler.
#[derive(Clone, Debug)]
pub(super) struct GatedObjects(pub(super) Arc<InMemory>);

impl fmt::Display for GatedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns `items`, each after a wait for the scheduler.
fn gated<T: Send + 'static>(
    items: impl Stream<Item = T> + Send + 'static,
) -> BoxStream<'static, T> {
    let gated = items.then(|item| async move {
        gate().await;
        item
    });
    gated.boxed()
}

#[async_trait]
impl ObjectStore for GatedObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        gate().await;
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        gate().await;
        Ok(Box::new(GatedUpload(self.0.put_multipart_opts(location, options).await?)))
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        gate().await;
        self.0.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        gated(self.0.delete_stream(gated(locations)))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let (objects, prefix) = (self.0.clone(), prefix.cloned());
        let listed = async move {
            gate().await;
            objects.list(prefix.as_ref())
        };
        gated(stream::once(listed).flatten())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        gate().await;
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        gate().await;
        self.0.copy_opts(from, to, options).await
    }
}

/// An upload. Its end waits for the scheduler, before and after.
#[derive(Debug)]
struct GatedUpload(Box<dyn MultipartUpload>);

#[async_trait]
impl MultipartUpload for GatedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.0.put_part(data)
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        gate().await;
        let completed = self.0.complete().await;
        gate().await;
        completed
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        gate().await;
        self.0.abort().await
    }
}
