//! The reconciler, step by step, at a site where every call and commit can fail.

mod deprovisioning;
mod faults;
mod node;
mod platform;
mod provisioning;
mod reinstalling;
mod running;

use std::sync::Arc;

use runtime::Clock;
use store::Store;
use store::memory::MemoryStore;
use tinwright::InstanceId;
use tinwright::hardware::v1::State as HardwareState;
use tinwright::instance::v1::ReportPhoneHomeRequest;
use tinwright::instance::v1::instance::{CustomIpxe, Os};
use tinwright::instance::v1::instance_service_server::InstanceService as _;
use tinwright::workflow::v1::WorkflowState as Workflow;
use tokio_util::sync::CancellationToken;
use tonic::Request;

use super::*;
use crate::Api;
use crate::instances::machine_reports::{PhoneHome, ScriptOutcome};
use crate::tests::site::{FoundTenant, MACHINE, Site};

const TEMPLATE: &str = "7e9d3a10-1f6c-4d0b-8d55-2a4c6b8e0f12";

/// An instance at a site.
struct Bench {
    site: Site,
    store: Arc<MemoryStore>,
    instances: Instances,
    reconciler: Reconciler,
    id: InstanceId,
}

fn templated() -> Instance {
    Instance {
        hardware_id: MACHINE.into(),
        template_id: TEMPLATE.into(),
        userdata: "hunter2".into(),
        ..Instance::default()
    }
}

fn scripted() -> Instance {
    let script = CustomIpxe { contents: "#!ipxe".into(), ..CustomIpxe::default() };
    Instance { template_id: String::new(), os: Some(Os::CustomIpxe(script)), ..templated() }
}

impl Bench {
    async fn new(instance: Instance) -> Self {
        let (site, store) = (Site::new(), Arc::new(MemoryStore::default()));
        let instances = Instances::new(store.clone(), Clock::system());
        let made = instances.create(instance, None).await.unwrap();
        let reconciler = Reconciler::new(instances.clone(), site.peers());
        Self { site, store, instances, reconciler, id: made.id.parse().unwrap() }
    }

    /// A site whose instance is active.
    async fn active(instance: Instance) -> Self {
        let bench = Box::pin(Self::new(instance)).await;
        bench.settle().await;
        bench.site.end(Workflow::Success, "");
        assert_eq!(bench.settled().await, "active");
        bench
    }

    /// Makes steps until the instance waits.
    async fn settle(&self) -> Outcome {
        drive(&self.reconciler, &self.id.to_string()).await.unwrap()
    }

    /// Makes steps until the instance waits, and returns its state.
    async fn settled(&self) -> String {
        self.settle().await;
        self.state().await
    }

    async fn state(&self) -> String {
        self.found().await.map_or("gone".into(), |instance| instance.state().word())
    }

    async fn found(&self) -> Option<Instance> {
        self.instances.records.get(&self.id.to_string()).await.unwrap()
    }

    async fn reason(&self) -> String {
        self.found().await.unwrap().state_reason
    }

    /// True if the machine is claimed.
    async fn occupied(&self) -> bool {
        self.instances.records.require_by("occupant", MACHINE).await.is_ok()
    }

    async fn delete(&self, force: bool) {
        self.instances.delete(self.id, 0, force).await.unwrap();
    }

    /// Reports that the machine started its script, or could not load it.
    async fn report_script(&self, started: bool) {
        let generation = self.found().await.unwrap().generation;
        let outcome = ScriptOutcome { generation, started };
        let record = |old: &Instance, now| outcome.apply(old, now);
        let machine = MACHINE.parse().unwrap();
        self.instances.change_occupant(machine, Some(self.id), record).await.unwrap();
    }

    /// Calls home over the API.
    async fn report_phone_home(&self) {
        let (store, services) = (self.store.clone(), self.site.services());
        let api = Api::new(store, services, Clock::system(), CancellationToken::new());
        let hardware_id = MACHINE.to_owned();
        let request = ReportPhoneHomeRequest { hardware_id, ..ReportPhoneHomeRequest::default() };
        api.report_phone_home(Request::new(request)).await.unwrap();
    }

    async fn call_home(&self) {
        let record = |old: &Instance, now| PhoneHome::default().apply(old, now);
        let machine = MACHINE.parse().unwrap();
        self.instances.change_occupant(machine, Some(self.id), record).await.unwrap();
    }
}

/// Makes steps until the instance waits or a step fails.
async fn drive(reconciler: &Reconciler, id: &str) -> Result<Outcome, Error> {
    for _ in 0..50 {
        match reconciler.step(id).await? {
            Outcome::Again => {}
            outcome @ (Outcome::After(_) | Outcome::Done | Outcome::Failed) => return Ok(outcome),
        }
    }
    panic!("{id} does not settle");
}
