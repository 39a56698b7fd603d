//! What the feeds told, kept on disk: so that a start while the control plane is out of reach still gives addresses and
//! refusals. It opens no boot: what only an open one needs is not kept.

use std::sync::Arc;
use std::time::SystemTime;

use runtime::feed::FeedEvent;
use store::feed_cache::{FeedCache, Projection, Sealer};
use store::{ScopedStore, Store};
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::Os;
use tinwright::workflow::v1::Workflow;
use tokio_util::sync::CancellationToken;

use crate::index::Index;

/// The copies of netboot's feeds.
#[derive(Debug)]
pub struct Copies {
    hardware: FeedCache<Hardware>,
    instance: FeedCache<Instance>,
    workflow: FeedCache<Workflow>,
}

impl Copies {
    /// Those in `store`, sealed with `seal`.
    pub fn new(store: Arc<dyn Store>, seal: &Arc<dyn Sealer>) -> Self {
        let own = || ScopedStore::new(store.clone(), "netboot");
        let hardware = Projection { id: |one: &Hardware| &one.id, project: of_hardware };
        let instance = Projection { id: |one: &Instance| &one.id, project: of_instance };
        let workflow = Projection { id: |one: &Workflow| &one.id, project: of_workflow };
        Self {
            hardware: FeedCache::new(own(), "hardware", seal.clone(), hardware),
            instance: FeedCache::new(own(), "instance", seal.clone(), instance),
            workflow: FeedCache::new(own(), "workflow", seal.clone(), workflow),
        }
    }

    /// Tells `index` what was kept, if all of it was.
    pub async fn restore(&self, index: &Index) -> Result<(), store::Error> {
        let hardware = self.hardware.load().await?;
        let (instance, workflow) = (self.instance.load().await?, self.workflow.load().await?);
        let (Some(hardware), Some(instance), Some(workflow)) = (hardware, instance, workflow)
        else {
            return Ok(());
        };
        tracing::info!(machines = hardware.objects.len(), "going on with the copy of the feeds");
        hardware.objects.into_iter().for_each(|one| index.hardware(FeedEvent::Put(one)));
        instance.objects.into_iter().for_each(|one| index.instance(FeedEvent::Put(one)));
        workflow.objects.into_iter().for_each(|one| index.workflow(FeedEvent::Put(one)));
        index.restored();
        Ok(())
    }

    /// Keeps them up to date until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            self.hardware.run(stop.clone()),
            self.instance.run(stop.clone()),
            self.workflow.run(stop),
        );
    }
}

/// Whom the feeds tell: the index, and the copies where there are any.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) index: Arc<Index>,
    pub(crate) copies: Option<Arc<Copies>>,
}

impl Told {
    pub(crate) fn hardware(&self, news: FeedEvent<Hardware>) {
        self.copies.iter().for_each(|copies| copies.hardware.record(&news, SystemTime::now()));
        self.index.hardware(news);
    }

    pub(crate) fn instance(&self, news: FeedEvent<Instance>) {
        self.copies.iter().for_each(|copies| copies.instance.record(&news, SystemTime::now()));
        self.index.instance(news);
    }

    pub(crate) fn workflow(&self, news: FeedEvent<Workflow>) {
        self.copies.iter().for_each(|copies| copies.workflow.record(&news, SystemTime::now()));
        self.index.workflow(news);
    }
}

fn of_hardware(hardware: &Hardware) -> Option<Hardware> {
    let mut kept = Hardware { extra: Vec::new(), disks: Vec::new(), ..hardware.clone() };
    for netboot in kept.interfaces.iter_mut().filter_map(|interface| interface.netboot.as_mut()) {
        let scripts = netboot.ipxe.iter_mut().chain(&mut netboot.boot_once);
        scripts.for_each(|script| blank(&mut script.contents));
    }
    Some(kept)
}

fn of_instance(instance: &Instance) -> Option<Instance> {
    let mut kept = Instance {
        userdata: String::new(),
        vendor_data: String::new(),
        network_config: String::new(),
        crypted_root_password: String::new(),
        lookup_id: String::new(),
        extra: Vec::new(),
        template_values: Default::default(),
        ssh_keys: Vec::new(),
        tags: Vec::new(),
        ..instance.clone()
    };
    if let Some(Os::CustomIpxe(script)) = &mut kept.os {
        blank(&mut script.contents);
    }
    Some(kept)
}

/// That there is a script is a fact that decides; what it says is served only while the feeds are live.
fn blank(script: &mut String) {
    if !script.is_empty() {
        *script = "#!ipxe".into();
    }
}

/// Those that have something to run on a machine, and on which.
fn of_workflow(workflow: &Workflow) -> Option<Workflow> {
    workflow.wants_machine.then(|| Workflow {
        id: workflow.id.clone(),
        hardware_id: workflow.hardware_id.clone(),
        wants_machine: true,
        ..Workflow::default()
    })
}

#[cfg(test)]
mod tests {
    use store::memory::MemoryStore;
    use tinwright::hardware::v1::{Address, Dhcp, Interface};
    use tinwright::instance::v1::instance::CustomIpxe;

    use super::*;
    use crate::decision::FeedState;

    /// What is sealed elsewhere.
    #[derive(Debug)]
    struct Plain;

    impl Sealer for Plain {
        fn seal(&self, _: &str, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.to_vec())
        }

        fn unseal(&self, _: &str, sealed: &[u8]) -> Option<Vec<u8>> {
            Some(sealed.to_vec())
        }
    }

    const H: &str = "01a20370-0000-7000-8000-000000000001";

    fn hardware() -> Hardware {
        let address =
            Address { address: "192.0.2.10".into(), prefix_length: 24, ..Address::default() };
        let interface = Interface {
            mac: "02:00:00:00:00:01".into(),
            dhcp: Some(Dhcp { address: Some(address), ..Dhcp::default() }),
            ..Interface::default()
        };
        Hardware { id: H.into(), interfaces: vec![interface], ..Hardware::default() }
    }

    fn instance() -> Instance {
        Instance {
            id: "i".into(),
            hardware_id: H.into(),
            hostname: "web".into(),
            userdata: "hunter2".into(),
            os: Some(Os::CustomIpxe(CustomIpxe {
                contents: "#!ipxe\nset password hunter2".into(),
                ..CustomIpxe::default()
            })),
            ..Instance::default()
        }
    }

    fn workflow(id: &str, wants_machine: bool) -> Workflow {
        let hardware_id = H.to_owned();
        Workflow { id: id.into(), hardware_id, wants_machine, ..Workflow::default() }
    }

    fn told(store: &Arc<dyn Store>) -> Told {
        let seal: Arc<dyn Sealer> = Arc::new(Plain);
        let copies = Some(Arc::new(Copies::new(store.clone(), &seal)));
        Told { index: Arc::default(), copies }
    }

    async fn written(told: &Told) {
        let (copies, stop) = (told.copies.clone().unwrap(), CancellationToken::new());
        stop.cancel();
        copies.run(stop).await;
    }

    /// What a start finds that no feed has told anything.
    async fn restarted(store: &Arc<dyn Store>) -> Arc<Index> {
        let told = told(store);
        told.copies.unwrap().restore(&told.index).await.unwrap();
        told.index
    }

    #[tokio::test]
    async fn a_start_without_the_control_plane_knows_the_machines_and_that_it_may_be_wrong() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = told(&store);
        before.hardware(FeedEvent::Snapshot(vec![hardware()]));
        before.instance(FeedEvent::Snapshot(vec![instance()]));
        before.workflow(FeedEvent::Snapshot(vec![workflow("w", true), workflow("ended", false)]));
        written(&before).await;

        let index = restarted(&store).await;
        let known = index.by_address("192.0.2.10".parse().unwrap()).unwrap();
        assert!(known.worker_wanted && index.feed() == FeedState::Stale);
        let instance = known.instance.as_ref().unwrap();
        assert_eq!((instance.hostname.as_str(), instance.userdata.as_str()), ("web", ""));
        let Some(Os::CustomIpxe(script)) = &instance.os else { panic!() };
        assert_eq!(script.contents, "#!ipxe");
        index.ready().await;
    }

    #[tokio::test]
    async fn where_a_feed_never_told_everything_nothing_is_known() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = told(&store);
        before.hardware(FeedEvent::Snapshot(vec![hardware()]));
        before.instance(FeedEvent::Snapshot(vec![instance()]));
        written(&before).await;
        assert!(restarted(&store).await.by_id(H).is_none());
    }
}
