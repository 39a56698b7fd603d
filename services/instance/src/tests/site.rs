//! A site for tests: one machine, and fakes of the address, hardware, identity, workflow and power services.
//!
//! The fakes follow the contract: a repeated request id returns the first result, or is refused with another body; cancelled
//! workflows end; ended workflows stay as they are. They can lose responses or be unavailable.

mod claims;
mod grants;
mod images;
mod machines;
mod services;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prost::Message;
use runtime::Channel;
use tinwright::address::v1 as addr;
use tinwright::address::v1::claim_service_server::ClaimServiceServer;
use tinwright::address::v1::grant_service_server::GrantServiceServer;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_server::HardwareServiceServer;
use tinwright::hardware::v1::location_service_server::LocationServiceServer;
use tinwright::hardware::v1::model_service_server::ModelServiceServer;
use tinwright::identity::v1::tenant_service_server::TenantServiceServer;
use tinwright::image::v1 as img;
use tinwright::image::v1::image_service_server::ImageServiceServer;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_server::PowerServiceServer;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_server::WorkflowServiceServer;
use tokio::sync::{Notify, broadcast};
use tonic::Status;
use tonic::service::Routes;

use crate::peers::{CalledServices, Peers};

pub(crate) use self::machines::{LOCATION, MODELS};
pub(crate) use self::store::Frail;

/// The machine's id.
pub(crate) const MACHINE: &str = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";

/// The boot URL of the location.
pub(crate) const BOOT_URL: &str = "https://boot.example.net/start.ipxe";

/// The state of the services.
#[derive(Debug)]
pub(crate) struct FakeState {
    pub(crate) machine: Option<hw::Hardware>,
    /// True if there is a machine for every id.
    pub(crate) has_every_machine: bool,
    /// Values that no template uses.
    pub(crate) unused_values: Vec<String>,
    /// The images of each planned workflow.
    pub(crate) images: Vec<wf::PlannedImage>,
    /// The images of the site, in the order of their creation.
    pub(crate) stored_images: Vec<img::Image>,
    /// Looks for an image after which there is none any more.
    pub(crate) image_looks: Option<usize>,
    /// The requests for plans of workflows, in order.
    pub(crate) planned: Vec<wf::PlanWorkflowRequest>,
    /// More machines. The fake knows the model of each by its label `model`.
    pub(crate) rack: Vec<hw::Hardware>,
    pub(crate) grants: Vec<addr::Grant>,
    /// The addresses that can be granted.
    pub(crate) pool: Vec<String>,
    /// The location, without its id and name.
    pub(crate) location: hw::Location,
    /// The holders of claimed addresses.
    pub(crate) claims: BTreeMap<String, addr::ClaimHolder>,
    pub(crate) workflows: Vec<wf::Workflow>,
    /// The requests that created the workflows, in order, without repetitions.
    pub(crate) created: Vec<wf::CreateWorkflowRequest>,
    pub(crate) jobs: Vec<power::CreatePowerJobRequest>,
    /// The ids of cancelled power jobs.
    pub(crate) cancelled_jobs: BTreeSet<String>,
    /// The ids of power jobs that were released before they were cancelled.
    pub(crate) released_jobs: BTreeSet<String>,
    pub(crate) has_bmc: bool,
    /// The machines without a BMC, although others have one.
    pub(crate) without_bmc: BTreeSet<String>,
    /// The time of the last restart that began a boot epoch of the machine.
    pub(crate) restart_time: Option<SystemTime>,
    /// The error for each request to create a workflow.
    pub(crate) refusal: Option<Status>,
    /// The number of calls before one whose response is lost.
    pub(crate) lose_after: Option<usize>,
    /// What the next searches for a tenant find; every tenant exists after them.
    pub(crate) tenants: VecDeque<FoundTenant>,
    /// True if the machine of the newest workflow leaves its boot, by the last action.
    pub(crate) is_leaving: bool,
    /// True if the next cancelled workflow does not end at once.
    pub(crate) is_stopping: bool,
    /// True if no worker takes actions of released workflows.
    pub(crate) is_never_switched_on: bool,
    /// True if every call is refused as unavailable.
    pub(crate) unavailable: bool,
    /// Holds the next request to create a workflow or power job.
    gate: Option<Arc<Gate>>,
    /// The request to create a workflow that waits at the gate.
    pub(crate) held_request: Option<wf::CreateWorkflowRequest>,
    requests: BTreeMap<String, (Vec<u8>, String)>,
}

/// What a search for a tenant finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundTenant {
    Existing,
    BeingDeleted,
    Missing,
    NoAnswer,
}

/// Holds one call before it is carried out.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) reached: Notify,
    pub(crate) opened: Notify,
}

/// The site.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    state: Arc<Mutex<FakeState>>,
    changes: broadcast::Sender<wf::Workflow>,
    grant_changes: broadcast::Sender<addr::Grant>,
}

impl Site {
    /// A site with one provisionable machine that has a BMC.
    pub(crate) fn new() -> Self {
        let machine = hw::Hardware {
            id: MACHINE.into(),
            state: hw::State::Provisionable.into(),
            ..hw::Hardware::default()
        };
        let state = FakeState {
            machine: Some(machine),
            has_every_machine: false,
            unused_values: Vec::new(),
            images: Vec::new(),
            stored_images: Vec::new(),
            image_looks: None,
            planned: Vec::new(),
            is_leaving: false,
            is_stopping: false,
            is_never_switched_on: false,
            rack: Vec::new(),
            grants: Vec::new(),
            pool: (1..=100).map(|n| format!("198.51.100.{n}")).collect(),
            location: hw::Location { boot_url: BOOT_URL.into(), ..hw::Location::default() },
            claims: BTreeMap::new(),
            workflows: Vec::new(),
            created: Vec::new(),
            jobs: Vec::new(),
            cancelled_jobs: BTreeSet::new(),
            released_jobs: BTreeSet::new(),
            has_bmc: true,
            without_bmc: BTreeSet::new(),
            restart_time: None,
            refusal: None,
            lose_after: None,
            tenants: VecDeque::new(),
            unavailable: false,
            gate: None,
            held_request: None,
            requests: BTreeMap::new(),
        };
        let (changes, grant_changes) = (broadcast::Sender::new(100), broadcast::Sender::new(100));
        Self { state: Arc::new(Mutex::new(state)), changes, grant_changes }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The site's services.
    pub(crate) fn services(&self) -> CalledServices {
        let address = Routes::new(ClaimServiceServer::new(self.clone()))
            .add_service(GrantServiceServer::new(self.clone()));
        let hardware = Routes::new(HardwareServiceServer::new(self.clone()))
            .add_service(LocationServiceServer::new(self.clone()))
            .add_service(ModelServiceServer::new(self.clone()));
        let identity = Routes::new(TenantServiceServer::new(self.clone()));
        let workflow = Routes::new(WorkflowServiceServer::new(self.clone()));
        let power = Routes::new(PowerServiceServer::new(self.clone()));
        CalledServices {
            address: Channel::to(address),
            hardware: Channel::to(hardware),
            identity: Channel::to(identity),
            image: Some(Channel::to(Routes::new(ImageServiceServer::new(self.clone())))),
            workflow: Channel::to(workflow),
            power: Channel::to(power),
        }
    }

    pub(crate) fn peers(&self) -> Peers {
        Peers::new(self.services())
    }

    /// Holds the next request to create a workflow or power job.
    pub(crate) fn hold_creation(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.state().gate = Some(gate.clone());
        gate
    }

    /// Adds a workflow that no request created.
    pub(crate) fn add(&self, workflow: wf::Workflow) {
        self.state().workflows.push(workflow.clone());
        let _no_receiver = self.changes.send(workflow);
    }

    /// Ends the newest workflow.
    pub(crate) fn end(&self, state: wf::WorkflowState, reason: &str) {
        let mut site = self.state();
        let newest = site.workflows.last_mut().expect("a workflow");
        assert!(!ended(newest), "an ended workflow does not change");
        newest.set_state(state);
        newest.state_reason = reason.into();
        let _no_receiver = self.changes.send(newest.clone());
    }

    /// Sets what the newest workflow waits for.
    pub(crate) fn set_reason(&self, reason: &str) {
        let mut site = self.state();
        let newest = site.workflows.last_mut().expect("a workflow");
        newest.state_reason = reason.into();
        let _no_receiver = self.changes.send(newest.clone());
    }

    /// Ends the workflows that were released with success.
    pub(crate) fn end_released(&self) {
        let mut site = self.state();
        for workflow in site.workflows.iter_mut().filter(|it| !it.held && !ended(it)) {
            workflow.set_state(wf::WorkflowState::Success);
            let _no_receiver = self.changes.send(workflow.clone());
        }
    }

    pub(crate) fn set_machine_state(&self, state: hw::State, reason: &str) {
        let mut site = self.state();
        let machine = site.machine.as_mut().expect("a machine");
        machine.set_state(state);
        machine.state_reason = reason.into();
    }

    /// A site with `machines`.
    pub(crate) fn with_rack(machines: Vec<hw::Hardware>) -> Self {
        let site = Self::new();
        {
            let mut state = site.state();
            (state.machine, state.rack) = (None, machines);
        }
        site
    }

    pub(crate) fn protect_machine(&self, protect: bool) {
        self.state().machine.as_mut().expect("a machine").protect = protect;
    }

    pub(crate) fn policy(&self, policy: hw::Policy) {
        self.state().machine.as_mut().expect("a machine").policy = Some(policy);
    }

    /// Returns the id of the power job that `request_id` created.
    pub(crate) fn created_job(&self, request_id: &str) -> String {
        self.state().requests[request_id].1.clone()
    }

    /// The request ids of all workflows and power jobs.
    pub(crate) fn request_ids(&self) -> Vec<String> {
        let state = self.state();
        let workflows = state.created.iter().map(|request| request.request_id.clone());
        workflows.chain(state.jobs.iter().map(|request| request.request_id.clone())).collect()
    }
}

impl FakeState {
    /// Returns the id of the object that `request_id` created before.
    fn previous_result(
        &self,
        request_id: &str,
        body: &impl Message,
    ) -> Result<Option<String>, Status> {
        match self.requests.get(request_id) {
            None => Ok(None),
            Some((first, made)) if *first == body.encode_to_vec() => Ok(Some(made.clone())),
            Some(_) => Err(Status::already_exists("used for another request")),
        }
    }

    fn record(&mut self, request_id: &str, body: &impl Message, made: &str) {
        self.requests.insert(request_id.into(), (body.encode_to_vec(), made.into()));
    }

    /// Returns the power job `id`, which was created held back.
    fn power_job(&self, id: String) -> power::PowerJob {
        let held = !self.released_jobs.contains(&id);
        let state = match self.cancelled_jobs.contains(&id) {
            true => power::power_job::State::Cancelled,
            false => power::power_job::State::Pending,
        };
        power::PowerJob { id, held, state: state.into(), ..power::PowerJob::default() }
    }

    /// Must precede each call. Returns false if the response is to be lost.
    fn call(&mut self) -> Result<bool, Status> {
        if self.unavailable {
            return Err(Status::unavailable("unavailable"));
        }
        let lost = self.lose_after == Some(0);
        self.lose_after = self.lose_after.and_then(|left| left.checked_sub(1));
        Ok(!lost)
    }
}

fn ended(workflow: &wf::Workflow) -> bool {
    workflow.state() as i32 >= wf::WorkflowState::Success as i32
}
