//! A store that was restored: readiness says that content of images is not collected, until an
//! operator lets it be collected again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use store::Store;
use store::backup::RestoreMark;

use crate::config::{Config, Service};
use crate::until_stopped;

/// The pause after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The line of readiness.
const NOT_COLLECTED: &str = "content of images is not collected since the store was restored: compare the images, then run \
    tinwright store resume";

/// Starts to follow the mark of a restored `store`, if this process has the content of images.
pub(crate) fn start(
    config: &Config,
    store: Option<&Arc<dyn Store>>,
    vitals: &Diagnostics,
    tier: &mut Tier,
) {
    let has_content =
        config.split.serves(Service::Image) && config.images.service.content.is_some();
    let Some(store) = store.filter(|_| has_content) else { return };
    let is_held = Arc::new(AtomicBool::default());
    let shown = is_held.clone();
    vitals.add_details(move || {
        shown.load(Ordering::Relaxed).then(|| NOT_COLLECTED.to_owned()).into_iter().collect()
    });
    let mark = RestoreMark::new(store.clone());
    tier.spawn(until_stopped(tier.stop.clone(), follow(mark, is_held)));
}

/// Sets `is_held` while there is a mark. Ends when there is none: only a restore sets one, while no
/// server runs.
async fn follow(mark: RestoreMark, is_held: Arc<AtomicBool>) {
    while let Err(error) = follow_once(&mark, &is_held).await {
        tracing::warn!(
            target: "tinwright",
            error = &error as &dyn std::error::Error,
            "the mark of a restore was not read; trying again"
        );
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn follow_once(mark: &RestoreMark, is_held: &AtomicBool) -> Result<(), store::Error> {
    if mark.is_set().await? {
        is_held.store(true, Ordering::Relaxed);
        mark.removed().await?;
        tracing::info!(target: "tinwright", "content of images is collected again");
    }
    is_held.store(false, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::memory::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_restored_store_is_held_until_it_is_resumed() {
        let mark = RestoreMark::new(Arc::new(MemoryStore::default()));
        let is_held = Arc::new(AtomicBool::default());
        follow(mark.clone(), is_held.clone()).await;
        assert!(!is_held.load(Ordering::Relaxed), "it was never restored");
        mark.set().await.unwrap();
        let following = tokio::spawn(follow(mark.clone(), is_held.clone()));
        while !is_held.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        mark.remove("image").await.unwrap();
        following.await.unwrap();
        assert!(!is_held.load(Ordering::Relaxed));
    }
}
