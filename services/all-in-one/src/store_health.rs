//! The health of a process follows its store: without an answer from it the process is not ready, and it ends if the store has
//! failed for good.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use runtime::supervise::Tier;
use runtime::telemetry::{Diagnostics, Readiness};
use store::{Commit, Store};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

/// Interval between two checks of the store.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of a check: a process acts only on what it confirmed within this time.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// The reported health of this process, over HTTP and gRPC.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    vitals: Diagnostics,
    reporter: HealthReporter,
}

impl Health {
    /// Returns the health of a process that starts, and the gRPC service that says it.
    pub(crate) async fn starting(
        vitals: &Diagnostics,
    ) -> (Self, HealthServer<impl tonic_health::pb::health_server::Health>) {
        let (reporter, service) = tonic_health::server::health_reporter();
        let health = Self { vitals: vitals.clone(), reporter };
        health.set(Readiness::Starting).await;
        (health, service)
    }

    /// Reports `readiness`.
    pub(crate) async fn set(&self, readiness: Readiness) {
        let status = match readiness {
            Readiness::Ready => ServingStatus::Serving,
            Readiness::Starting | Readiness::StoreUnreachable => ServingStatus::NotServing,
        };
        self.reporter.set_service_status("", status).await;
        self.vitals.set_readiness(readiness);
    }

    /// Checks `store` again and again, and reports when it does not answer any more, and when it does again.
    pub(crate) async fn follow(&self, store: &dyn Store) {
        let mut reported = Readiness::Ready;
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let found = check(store).await;
            if found != reported {
                self.set(found).await;
                reported = found;
            }
        }
    }
}

/// Returns the readiness of a process over `store`. A commit without writes needs all that others need, except the disk.
async fn check(store: &dyn Store) -> Readiness {
    let error: Box<dyn std::error::Error + Send + Sync> =
        match timeout(CHECK_TIMEOUT, store.commit(Commit::default())).await {
            Ok(Ok(_)) => return Readiness::Ready,
            Ok(Err(error)) => error.into(),
            Err(elapsed) => elapsed.into(),
        };
    tracing::warn!(target: "tinwright", error = &*error as &dyn std::error::Error, "the store is out of reach");
    Readiness::StoreUnreachable
}

/// Ends the process once one of `stores` has failed for good.
pub(crate) fn follow(stores: [Option<Arc<dyn Store>>; 2], tier: &mut Tier) {
    for store in stores.into_iter().flatten() {
        tier.spawn(fail_with_store(store, tier.stop.clone()));
    }
}

/// Runs until `stop`. It is an error if `store` fails for good before: whoever started the process then starts it again, and the
/// store is opened again.
async fn fail_with_store(store: Arc<dyn Store>, stop: CancellationToken) -> anyhow::Result<()> {
    match stop.run_until_cancelled(store.failed()).await {
        Some(error) => Err(error).context("the store failed"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use store::memory::MemoryStore;
    use store::{Changes, Error, Page, Revision, Versioned};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_server::Health as _;
    use tonic_health::server::HealthService;

    use super::*;

    /// A store that never answers a commit while it is silent.
    #[derive(Default)]
    struct Silenced {
        store: MemoryStore,
        silent: AtomicBool,
    }

    #[async_trait]
    impl Store for Silenced {
        async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
            self.store.get(key).await
        }

        async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
            self.store.list(prefix, after, limit).await
        }

        async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
            if self.silent.load(Ordering::Relaxed) {
                std::future::pending().await
            }
            self.store.commit(commit).await
        }

        async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
            self.store.changed(prefix, after).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_follows_a_store_that_stops_answering_and_answers_again() {
        let health = Health { vitals: Diagnostics::default(), reporter: HealthReporter::new() };
        let service = HealthService::from_health_reporter(health.reporter.clone());
        let serving = async || {
            let request = tonic::Request::new(HealthCheckRequest::default());
            service.check(request).await.unwrap().into_inner().status
        };
        health.set(Readiness::Ready).await;
        let store = Arc::new(Silenced::default());
        let (followed, following) = (store.clone(), health.clone());
        let _following = tokio::spawn(async move { following.follow(&*followed).await });
        for (silent, status) in [(false, 1), (true, 2), (false, 1)] {
            store.silent.store(silent, Ordering::Relaxed);
            tokio::time::sleep(CHECK_INTERVAL + CHECK_TIMEOUT + Duration::from_secs(1)).await;
            assert_eq!(serving().await, status, "silent: {silent}");
        }
    }
}
