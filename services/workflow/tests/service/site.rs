//! A running service and its surroundings.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use runtime::boot_token::BootTokens;
use runtime::{Caller, Channel, Clock, LocalServices, Role, SiteKey};
use store::events::EventLog;
use store::hosted::HostedService as _;
use store::memory::MemoryStore;
use store::{ScopedStore, Store};
use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::event::v1::{EventFilter, EventKind};
use tinwright::hardware::v1::hardware_service_server::HardwareServiceServer;
use tinwright::hardware::v1::model_service_server::ModelServiceServer;
use tinwright::identity::v1::tenant_service_server::TenantServiceServer;
use tinwright::instance::v1::instance_service_server::InstanceServiceServer;
use tinwright::power::v1::power_service_server::PowerServiceServer;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;
use workflow::lifecycle::WorkerTimeouts;
use workflow::worker_enrollment::{IssueError, IssuedCertificate, Issuer};
use workflow::{Api, CalledServices};

use crate::machines::FakeHardware;
use crate::occupants::FakeInstances;
use crate::power::FakePower;
use crate::tenants::FakeTenants;
use crate::worker::Worker;

/// A template with two actions: the first may be retried, the second may not.
pub(crate) const TWO: &str = r#"
name: two
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, retries: 1, environment: {DEST_DISK: /dev/sda, IMG_URL: "{{ .url }}"}}
  - {name: configure, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4, CMD_LINE: ls}}
"#;

/// The service and the fakes; dropping it stops all of them.
pub(crate) struct Site {
    pub(crate) api: Api,
    pub(crate) hardware: FakeHardware,
    pub(crate) tenants: FakeTenants,
    pub(crate) instances: FakeInstances,
    pub(crate) power: FakePower,
    pub(crate) tokens: Arc<BootTokens>,
    events: EventLog,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

/// Turns of other tasks between a response and its caller.
const TURNS: usize = 32;

/// Delays a response as a connection does: the service follows what the call has stored.
async fn deferred(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    response
}

/// Issues the URI of the caller.
struct NameIssuer;

impl Issuer for NameIssuer {
    fn issue(&self, caller: &Caller, _: &[u8]) -> Result<IssuedCertificate, IssueError> {
        Ok(IssuedCertificate { certificate: caller.to_string(), expires: SystemTime::UNIX_EPOCH })
    }
}

impl Site {
    /// A new site.
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default()), FakePower::default()).await
    }

    /// A new site with the time of `clock`.
    pub(crate) async fn with_clock(clock: Clock) -> Self {
        Self::start(Arc::new(MemoryStore::default()), FakePower::default(), clock).await
    }

    /// A site over `store`.
    pub(crate) async fn over(store: Arc<dyn Store>, power: FakePower) -> Self {
        Self::start(store, power, Clock::system()).await
    }

    /// A site over `store` with the time of `clock`.
    pub(crate) async fn start(store: Arc<dyn Store>, power: FakePower, clock: Clock) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let machines = FakeHardware::default();
        let hardware = Routes::new(HardwareServiceServer::new(machines.clone()))
            .add_service(ModelServiceServer::new(machines.clone()));
        let instances = FakeInstances::default();
        let instance = Routes::new(InstanceServiceServer::new(instances.clone()));
        let tenants = FakeTenants::default();
        let identity = Routes::new(TenantServiceServer::new(tenants.clone()));
        let bmcs = Routes::new(PowerServiceServer::new(power.clone()));
        let tokens = Arc::new(BootTokens::new(&SiteKey::new([1; 32])).unwrap());
        let issuer = Arc::new(NameIssuer);
        let peers = CalledServices {
            image: None,
            hardware: Channel::to(hardware),
            identity: Channel::to(identity),
            instance: Channel::to(instance),
            power: Channel::to(bmcs),
            node: None,
        };
        let (timeouts, until) = (WorkerTimeouts::DEFAULT, stop.clone());
        let events = EventLog::new(ScopedStore::new(store.clone(), "workflow"), "workflow");
        let api = Api::new(store, peers, timeouts, tokens.clone(), issuer, clock, until);
        let (running, until) = (api.clone(), stop.clone());
        tasks.spawn(async move { running.run(until).await.unwrap() });
        let _stop = stop.drop_guard();
        Self {
            api,
            hardware: machines,
            tenants,
            instances,
            power,
            tokens,
            events,
            _tasks: tasks,
            _stop,
        }
    }

    /// A connection with `role`.
    pub(crate) fn channel(&mut self, role: Option<Role>) -> Channel {
        self.channel_of(role.map(Caller::from))
    }

    /// A connection of `caller`.
    pub(crate) fn channel_of(&mut self, caller: Option<Caller>) -> Channel {
        let router = self.api.routes().into_axum_router().layer(from_fn(deferred));
        match caller {
            Some(caller) => LocalServices::of(router).channel(caller),
            None => Channel::to(Routes::from(router)),
        }
    }

    /// A client of the workflow service, with the admin role.
    pub(crate) fn workflows(&mut self) -> WorkflowServiceClient<Channel> {
        WorkflowServiceClient::new(self.channel(Some(Role::Admin)))
    }

    /// A client of the workflow service, with the caller of the instance service.
    pub(crate) fn workflows_of_instances(&mut self) -> WorkflowServiceClient<Channel> {
        let caller = Caller::new(Role::Service, "service:instance").unwrap();
        WorkflowServiceClient::new(self.channel_of(Some(caller)))
    }

    /// A client of the template service, with the admin role.
    pub(crate) fn templates(&mut self) -> TemplateServiceClient<Channel> {
        TemplateServiceClient::new(self.channel(Some(Role::Admin)))
    }

    /// The worker of `machine` in boot `b1`, process `p1`.
    pub(crate) fn worker(&mut self, machine: HardwareId) -> Worker {
        Worker::new(self.channel(Some(Role::worker(machine))), "b1", "p1")
    }

    /// The worker that the machine of the workflow `id` boots once it is prepared: in boot `b1`, process `p1`.
    pub(crate) async fn booted(&mut self, id: &str) -> Worker {
        let found = self.until(id, |found| found.prepared || found.end_time.is_some()).await;
        let machine = found.hardware_id.parse().unwrap();
        let channel = self.channel_of(Some(Caller::worker(machine, found.boot_epoch)));
        Worker::new(channel, "b1", "p1")
    }

    /// Creates a workflow from the text of a template.
    pub(crate) async fn workflow(&mut self, machine: HardwareId, template: &str) -> pb::Workflow {
        self.workflow_with(machine, template, pb::BootOptions::default()).await
    }

    /// Creates a workflow with boot options.
    pub(crate) async fn workflow_with(
        &mut self,
        machine: HardwareId,
        template: &str,
        options: pb::BootOptions,
    ) -> pb::Workflow {
        let mut values = request(machine).values;
        values.retain(|key, _| template.contains(&format!(".{key}")));
        let request = pb::CreateWorkflowRequest {
            values,
            template_data: template.into(),
            boot_options: Some(options),
            occupied_by: self.instances.occupant(machine),
            ..request(machine)
        };
        self.workflows().create_workflow(request).await.unwrap().into_inner().workflow.unwrap()
    }

    /// Returns a workflow.
    pub(crate) async fn get(&mut self, id: &str) -> pb::Workflow {
        let request = pb::GetWorkflowRequest { id: id.into(), view: View::Full.into() };
        self.workflows().get_workflow(request).await.unwrap().into_inner().workflow.unwrap()
    }

    /// Waits until `wanted` is true of a workflow, and returns it.
    pub(crate) async fn until(
        &mut self,
        id: &str,
        wanted: impl Fn(&pb::Workflow) -> bool,
    ) -> pb::Workflow {
        let mut workflows = self.workflows();
        let watch = async {
            let request = pb::WatchWorkflowsRequest {
                id: id.into(),
                view: View::Full.into(),
                only_live: false,
                ..Default::default()
            };
            let mut stream = workflows.watch_workflows(request).await.unwrap().into_inner();
            loop {
                let message = stream.message().await;
                if message.is_err() {
                    // A test that kills the server notices that first.
                    tokio::task::yield_now().await;
                }
                if let Some(WatchEvent::Put(found)) = message.unwrap().unwrap().into_event()
                    && wanted(&found)
                {
                    return found;
                }
            }
        };
        soon(watch).await
    }

    /// Reads a workflow that waits behind others until the reason is `reason`, and returns it. Turns are shown once the reconciler has
    /// seen the change.
    pub(crate) async fn waiting(&mut self, id: &str, reason: &str) -> pb::Workflow {
        let waiting = async {
            loop {
                let found = self.get(id).await;
                if found.state_reason == reason {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(waiting).await
    }

    /// Returns the texts of the alarms of a workflow, the oldest first.
    pub(crate) async fn alarms(&self, id: &str) -> Vec<String> {
        let listed = self.events.list(&EventFilter::default(), "", 1000).await.unwrap();
        let is_alarm = |it: &tinwright::event::v1::Event| it.kind() == EventKind::Alarm;
        let events = listed.records.into_iter().filter(|it| is_alarm(it) && it.object_id == id);
        events.map(|event| event.text).collect()
    }

    /// Waits for the end of a workflow, and returns it.
    pub(crate) async fn ended(&mut self, id: &str) -> pb::Workflow {
        self.until(id, |found| found.end_time.is_some()).await
    }

    /// Reads an action's log.
    pub(crate) async fn log(
        &mut self,
        workflow: &pb::Workflow,
        action: usize,
        follow: bool,
    ) -> Vec<u8> {
        let (workflow_id, action_id) = (workflow.id.clone(), workflow.actions[action].id.clone());
        let request = pb::ReadLogRequest { workflow_id, action_id, attempt: 0, follow };
        let mut stream = self.workflows().read_log(request).await.unwrap().into_inner();
        let mut log = Vec::new();
        while let Some(chunk) = stream.message().await.unwrap() {
            log.extend(chunk.data);
        }
        log
    }
}

/// A request for a workflow on `machine`, without a template.
pub(crate) fn request(machine: HardwareId) -> pb::CreateWorkflowRequest {
    let values = [("url".to_owned(), "http://192.0.2.1/d.gz".to_owned())].into();
    pb::CreateWorkflowRequest { hardware_id: machine.to_string(), values, ..Default::default() }
}

/// Waits for `it`, with a limit.
pub(crate) async fn soon<T>(it: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), it).await.expect("not done in 30 s")
}
