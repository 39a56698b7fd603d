//! The running service, whose reconciler follows the watches of its peers.

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

    /// Waits until `condition` holds for the instance. It is `None` once the instance is deleted.
    async fn until(&self, condition: impl Fn(Option<&Instance>) -> bool) {
        let follow = async {
            let mut watcher = self.mirror.watch();
            loop {
                let holds = match watcher.next().await.unwrap() {
                    WatchEvent::Put(instance) => condition(Some(&instance)),
                    WatchEvent::Deleted(_) => condition(None),
                    WatchEvent::Synced => false,
                };
                if holds {
                    return;
                }
            }
        };
        let bounded = tokio::time::timeout(Duration::from_secs(20), follow);
        tokio::select! {
            () = self.mirror.run(self.stop.clone()) => panic!("mirror stopped"),
            result = bounded => result.expect("within 20 s"),
        }
    }

    async fn until_state(&self, state: tinwright::instance::v1::State) {
        self.until(|instance| instance.is_some_and(|it| it.state() == state)).await;
    }

    async fn until_workflow(&self) {
        self.until(|instance| instance.is_some_and(|it| !it.workflow_id.is_empty())).await;
    }
}

#[tokio::test]
async fn an_instance_is_provisioned_and_deprovisioned_and_the_service_stops() {
    let running = Running::start();
    let created = running.instances.create(templated(), None).await.unwrap();
    running.until_workflow().await;
    running.site.end(Workflow::Success, "");
    running.until_state(tinwright::instance::v1::State::Active).await;
    running.instances.delete(created.id.parse().unwrap(), 0, false).await.unwrap();
    running.until_workflow().await;
    running.site.end(Workflow::Success, "");
    running.until(|instance| instance.is_none()).await;
    running.stop.cancel();
    let stopped = tokio::time::timeout(Duration::from_secs(20), running.task).await;
    stopped.expect("within 20 s").unwrap().unwrap();
}
