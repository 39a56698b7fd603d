//! A site for tests: one machine, and hardware, workflow and power services that do what a test says.
//!
//! They keep their promises: a request id asked again answers as the first time, or is refused with another body; what is
//! cancelled ends; what has ended stays. They can lose answers, or be away.

mod services;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_server::HardwareServiceServer;
use tinwright::in_process;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_server::PowerServiceServer;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_server::WorkflowServiceServer;
use tokio::sync::broadcast;
use tonic::Status;
use tonic::transport::{Channel, Server};

use crate::peers::Peers;

pub(crate) use self::store::Frail;

/// The machine's id.
pub(crate) const MACHINE: &str = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";

/// What the services know and were asked.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) machine: Option<hw::Hardware>,
    pub(crate) workflows: Vec<wf::Workflow>,
    /// What made them, in order, each once.
    pub(crate) created: Vec<wf::CreateWorkflowRequest>,
    pub(crate) jobs: Vec<power::CreatePowerJobRequest>,
    pub(crate) has_bmc: bool,
    /// What creating a workflow is refused with.
    pub(crate) refusal: Option<Status>,
    /// Calls until one is carried out and its answer lost.
    pub(crate) lose: Option<usize>,
    /// Every call is refused as unavailable.
    pub(crate) away: bool,
    requests: BTreeMap<String, (Vec<u8>, String)>,
}

/// The site.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    known: Arc<Mutex<Known>>,
    changes: broadcast::Sender<wf::Workflow>,
}

impl Site {
    /// One with a provisionable machine that has a BMC.
    pub(crate) fn new() -> Self {
        let machine = hw::Hardware {
            id: MACHINE.into(),
            state: hw::State::Provisionable.into(),
            ..hw::Hardware::default()
        };
        let known = Known {
            machine: Some(machine),
            workflows: Vec::new(),
            created: Vec::new(),
            jobs: Vec::new(),
            has_bmc: true,
            refusal: None,
            lose: None,
            away: false,
            requests: BTreeMap::new(),
        };
        Self { known: Arc::new(Mutex::new(known)), changes: broadcast::Sender::new(100) }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Channels to hardware, workflow and power.
    pub(crate) fn channels(&self) -> [Channel; 3] {
        let [hardware, workflow, power] = [(); 3].map(|()| in_process::pair());
        let router = Server::builder().add_service(HardwareServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(hardware.1));
        let router = Server::builder().add_service(WorkflowServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(workflow.1));
        let router = Server::builder().add_service(PowerServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(power.1));
        [hardware.0, workflow.0, power.0]
    }

    pub(crate) fn peers(&self) -> Peers {
        let [hardware, workflow, power] = self.channels();
        Peers::new(hardware, workflow, power)
    }

    /// Ends the newest workflow.
    pub(crate) fn end(&self, state: wf::WorkflowState, reason: &str) {
        let mut known = self.known();
        let newest = known.workflows.last_mut().expect("a workflow");
        assert!(!ended(newest), "what has ended stays");
        newest.set_state(state);
        newest.state_reason = reason.into();
        let _nobody_listens = self.changes.send(newest.clone());
    }

    pub(crate) fn set_machine_state(&self, state: hw::State, reason: &str) {
        let mut known = self.known();
        let machine = known.machine.as_mut().expect("a machine");
        machine.set_state(state);
        machine.state_reason = reason.into();
    }

    pub(crate) fn policy(&self, policy: hw::Policy) {
        self.known().machine.as_mut().expect("a machine").policy = Some(policy);
    }

    /// What every workflow and power job was asked for under.
    pub(crate) fn request_ids(&self) -> Vec<String> {
        let known = self.known();
        let workflows = known.created.iter().map(|request| request.request_id.clone());
        workflows.chain(known.jobs.iter().map(|request| request.request_id.clone())).collect()
    }
}

impl Known {
    /// What `request_id` made before.
    fn answered(&self, request_id: &str, body: &impl Message) -> Result<Option<String>, Status> {
        match self.requests.get(request_id) {
            None => Ok(None),
            Some((first, made)) if *first == body.encode_to_vec() => Ok(Some(made.clone())),
            Some(_) => Err(Status::already_exists("used for another request")),
        }
    }

    fn keep(&mut self, request_id: &str, body: &impl Message, made: &str) {
        self.requests.insert(request_id.into(), (body.encode_to_vec(), made.into()));
    }

    /// Called before a call is carried out: whether its answer gets through.
    fn call(&mut self) -> Result<bool, Status> {
        if self.away {
            return Err(Status::unavailable("away"));
        }
        let lost = self.lose == Some(0);
        self.lose = self.lose.and_then(|left| left.checked_sub(1));
        Ok(!lost)
    }
}

fn ended(workflow: &wf::Workflow) -> bool {
    workflow.state() as i32 >= wf::WorkflowState::Success as i32
}
