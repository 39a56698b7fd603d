//! The running service, whose reconciler follows the watches of its peers.

use store::hosted::HostedService as _;
use tinwright::WorkflowId;
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
        Self::start_over(Site::new(), Arc::new(MemoryStore::default()))
    }

    fn start_over(site: Site, store: Arc<MemoryStore>) -> Self {
        let instances = Instances::new(store.clone(), Clock::system());
        let stop = CancellationToken::new();
        let api = Api::new(store, site.services(), Clock::system(), stop.clone());
        let task = tokio::spawn(api.run(stop.clone()));
        let mirror = Mirror::new(instances.records.clone());
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

#[tokio::test]
async fn an_instance_says_at_once_what_its_workflow_waits_for() {
    let running = Running::start();
    running.instances.create(templated(), None).await.unwrap();
    running.until_workflow().await;
    while running.site.state().workflows[0].held {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for reason in ["behind workflow 7", "waits for the machine's worker"] {
        running.site.set_reason(reason);
        running.until(|instance| instance.is_some_and(|it| it.state_reason == reason)).await;
    }
}

/// A workflow with the labels that a step of `instance` gives it.
fn of_step(instance: &Instance, step: &str) -> tinwright::workflow::v1::Workflow {
    tinwright::workflow::v1::Workflow {
        id: WorkflowId::new().to_string(),
        instance_id: instance.id.clone(),
        hardware_id: MACHINE.into(),
        labels: request_labels(instance, step),
        state: Workflow::Pending.into(),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn workflows_that_no_instance_waits_for_are_cancelled() {
    let running = Running::start();
    let owner = running.instances.create(templated(), None).await.unwrap();
    running.until_workflow().await;
    let gone = Instance { id: InstanceId::new().to_string(), generation: 1, ..templated() };
    let mut by_operator = of_step(&owner, "provision");
    by_operator.labels.clear();
    let orphans = [of_step(&gone, "provision"), of_step(&owner, "provision")];
    running.site.add(by_operator);
    orphans.into_iter().for_each(|orphan| running.site.add(orphan));
    let states = || -> Vec<_> {
        running.site.state().workflows.iter().map(|workflow| workflow.state()).collect()
    };
    let cancelled = async {
        while states()[2..] != [Workflow::Cancelled; 2] {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    // The time is paused: minutes pass at once.
    let bounded = tokio::time::timeout(Duration::from_secs(10 * 60), cancelled).await;
    bounded.expect("within 10 minutes");
    assert_eq!(states()[..2], [Workflow::Pending; 2], "its own, and the operator's");
    running.stop.cancel();
    running.task.await.unwrap().unwrap();
}

/// Returns the addresses of an instance's grants.
fn addresses(instance: Option<&Instance>) -> Vec<&str> {
    let attached = instance.into_iter().flat_map(|it| &it.addresses);
    attached.map(|it| it.address.as_str()).collect()
}

#[tokio::test]
async fn an_instance_has_the_addresses_of_the_grants_that_are_attached_to_it() {
    let running = Running::start();
    let created = running.instances.create(templated(), None).await.unwrap();
    running.site.attach("192.0.2.7", &created.id);
    running.site.attach("192.0.2.8", &created.id);
    running.until(|found| addresses(found) == ["192.0.2.7", "192.0.2.8"]).await;
    running.site.attach("192.0.2.7", "");
    running.until(|found| addresses(found) == ["192.0.2.8"]).await;
    running.site.attach("192.0.2.8", &InstanceId::new().to_string());
    running.until(|found| addresses(found).is_empty()).await;
    // The other instance does not exist.
    let detached = async {
        while running.site.state().grants.iter().any(|grant| grant.attachment.is_some()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), detached).await.expect("within 20 s");
    running.stop.cancel();
    running.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_address_that_was_detached_while_nobody_followed_is_removed_at_the_start() {
    let (site, store) = (Site::new(), Arc::new(MemoryStore::default()));
    let instances = Instances::new(store.clone(), Clock::system());
    let created = instances.create(templated(), None).await.unwrap();
    let stale = tinwright::instance::v1::instance::AttachedAddress {
        address: "192.0.2.9".into(),
        ..Default::default()
    };
    let copied = Instance { addresses: vec![stale], ..created.clone() };
    instances.put(&created, copied).await.unwrap();
    site.attach("192.0.2.7", &created.id);
    let running = Running::start_over(site, store);
    running.until(|found| addresses(found) == ["192.0.2.7"]).await;
    running.stop.cancel();
    running.task.await.unwrap().unwrap();
}
