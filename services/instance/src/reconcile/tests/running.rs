//! The whole service, driven by watches.

use tinwright::watch::WatchEvent;
use tokio::task::JoinHandle;

use super::*;
use crate::api::Api;

/// A running service at a test site.
struct Running {
    site: Site,
    instances: Instances,
    mirror: Mirror<InstanceKind>,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start() -> Self {
        let (site, store) = (Site::new(), Arc::new(MemoryStore::default()));
        let instances = Instances::new(store.clone(), Clock::system());
        let [hardware, workflow, power] = site.channels();
        let stop = CancellationToken::new();
        let api = Api::new(store, hardware, workflow, power, stop.clone());
        let task = tokio::spawn(api.run(stop.clone()));
        let mirror = Mirror::new(instances.records().clone());
        Self { site, instances, mirror, stop, task }
    }

    /// Waits until `wanted` accepts a version of the instance, which is nothing once it is deleted.
    async fn until(&self, wanted: impl Fn(Option<&Instance>) -> bool) {
        let follow = async {
            let mut watcher = self.mirror.watch();
            loop {
                let seen = match watcher.next().await.unwrap() {
                    WatchEvent::Put(instance) => wanted(Some(&instance)),
                    WatchEvent::Deleted(_) => wanted(None),
                    WatchEvent::Synced => false,
                };
                if seen {
                    return;
                }
            }
        };
        let bounded = tokio::time::timeout(Duration::from_secs(20), follow);
        tokio::select! {
            () = self.mirror.run(self.stop.clone()) => panic!("stopped"),
            seen = bounded => seen.expect("within 20 s"),
        }
    }

    async fn until_state(&self, state: tinwright::instance::v1::State) {
        self.until(|instance| instance.is_some_and(|it| it.state() == state)).await;
    }

    async fn until_work(&self) {
        self.until(|instance| instance.is_some_and(|it| !it.workflow_id.is_empty())).await;
    }
}

#[tokio::test]
async fn an_instance_is_provisioned_and_deprovisioned_and_the_service_stops() {
    let running = Running::start();
    let made = running.instances.create(templated(), None).await.unwrap();
    running.until_work().await;
    running.site.end(Workflow::Success, "");
    running.until_state(tinwright::instance::v1::State::Active).await;
    running.instances.delete(made.id.parse().unwrap(), 0, false).await.unwrap();
    running.until_work().await;
    running.site.end(Workflow::Success, "");
    running.until(|instance| instance.is_none()).await;
    running.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(20), running.task).await;
    ended.expect("within 20 s").unwrap().unwrap();
}
