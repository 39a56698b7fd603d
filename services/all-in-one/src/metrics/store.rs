//! A store whose commits are measured.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ::store::{Changes, Commit, Error, FrozenPairs, Page, Revision, Sealer, Store, Versioned};
use async_trait::async_trait;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use runtime::Clock;

type Durations = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// Measures the commits of `inner`.
pub(crate) struct MeasuredStore {
    inner: Arc<dyn Store>,
    clock: Clock,
    seconds: Durations,
}

impl MeasuredStore {
    /// Registers the metrics in `registry`.
    pub(crate) fn new(inner: Arc<dyn Store>, registry: &mut Registry, clock: Clock) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_1, 4.0, 10));
        let seconds = Durations::new_with_constructor(histogram);
        let help = "Time of a commit until it is durable, or refused, in seconds, by result";
        registry.register("store_commit_seconds", help, seconds.clone());
        Self { inner, clock, seconds }
    }

    fn record(&self, began: Instant, result: &Result<Revision, Error>) {
        let label = match result {
            Ok(_) => "ok",
            Err(Error::Conflict(_)) => "conflict",
            Err(Error::Refused(_)) => "refused",
            Err(Error::Unavailable(_)) => "unavailable",
            Err(Error::Full) => "full",
            Err(Error::Corrupt(_)) => "corrupt",
        };
        let elapsed = self.clock.monotonic().duration_since(began);
        self.seconds.get_or_create(&[("result", label)]).observe(elapsed.as_secs_f64());
    }
}

#[async_trait]
impl Store for MeasuredStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.inner.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let began = self.clock.monotonic();
        let result = self.inner.commit(commit).await;
        self.record(began, &result);
        result
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.inner.changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.inner.is_unchanged(prefix, revision)
    }

    async fn frozen(
        &self,
        after: Revision,
        keys: BTreeSet<String>,
    ) -> Result<Option<FrozenPairs>, Error> {
        self.inner.frozen(after, keys).await
    }

    async fn failed(&self) -> Error {
        self.inner.failed().await
    }

    fn sealer(&self) -> Option<Arc<dyn Sealer>> {
        self.inner.sealer()
    }
}

#[cfg(test)]
mod tests {
    use ::store::memory::MemoryStore;
    use ::store::seal::SealedStore;
    use ::store::{Expect, Write};
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[derive(Debug)]
    struct TestSealer;

    impl Sealer for TestSealer {
        fn seal(&self, _owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.to_owned())
        }

        fn unseal(&self, _owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
            Some(sealed.to_owned())
        }
    }

    #[test]
    fn secrets_are_sealed_as_without_the_measurement() {
        let sealed = SealedStore::new(Arc::new(MemoryStore::default()), Arc::new(TestSealer));
        let mut registry = Registry::default();
        let store = MeasuredStore::new(Arc::new(sealed), &mut registry, Clock::system());
        assert!(store.sealer().is_some());
    }

    #[tokio::test]
    async fn commits_are_measured_by_result() {
        let mut registry = Registry::default();
        let store =
            MeasuredStore::new(Arc::new(MemoryStore::default()), &mut registry, Clock::system());
        let create = || Commit {
            expect: vec![Expect::Absent("a".into())],
            writes: vec![Write::Put("a".into(), "1".into())],
        };
        store.commit(create()).await.unwrap();
        assert!(matches!(store.commit(create()).await, Err(Error::Conflict(_))));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        for result in ["ok", "conflict"] {
            let line = format!("store_commit_seconds_count{{result=\"{result}\"}} 1\n");
            assert!(page.contains(&line), "{page}");
        }
        assert!(store.get("a").await.unwrap().is_some());
    }
}
