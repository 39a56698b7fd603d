//! Restarts the machine of an active instance.
//!
//! ```text
//! is it active? ─▶ is its machine in order, and without a workflow? ─▶ power job, queued ─▶ is it still active? ─no─▶ job cancelled, refused
//! ```
//!
//! A delete or a reinstallation that begins after the second look has its own power job queued behind this one. Nothing is stored: a
//! repeated request finds the power job by its request id.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use store::serving;
use tinwright::InstanceId;
use tinwright::hardware::v1::{Hardware, State};
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::PowerManagement;
use tinwright::power::v1::operation::{Boot, Power, What, boot::Device};
use tinwright::power::v1::{CreatePowerJobRequest, Operation};
use tinwright::status::Violations;

use crate::check::{is_node, is_platform};
use crate::instances::{self, Instances};
use crate::machine_check::name_of;
use crate::peers::{self, Peers};

/// The time that the operating system has to switch off.
const SOFT_OFF_LIMIT: Duration = Duration::from_secs(60);

/// A request to restart a machine.
#[derive(Clone, Debug)]
pub(crate) struct Restart {
    /// The instance on it.
    pub(crate) instance: InstanceId,
    /// True to cut the power at once.
    pub(crate) force: bool,
    /// The caller and the id of the request; empty if the request has no id.
    pub(crate) request: String,
}

impl Restart {
    /// Returns the order of `caller`, who may repeat it with the same `request_id` unless that is
    /// empty.
    pub(crate) fn new(
        instance: InstanceId,
        force: bool,
        caller: &str,
        request_id: &str,
    ) -> Result<Self, Violations> {
        serving::check_request_id(request_id)?;
        let request = match request_id {
            "" => String::new(),
            id => format!("{caller}\n{id}"),
        };
        Ok(Self { instance, force, request })
    }
}

/// A restart that was not ordered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The instance has another state than active.
    #[error("instance {id} is {state}: only an active one is restarted")]
    NotActive {
        /// The instance.
        id: String,
        /// Its state.
        state: String,
    },
    /// An operator works on the machine, or will.
    #[error("{reason}: its instance {id} is not restarted")]
    Machine {
        /// The instance.
        id: String,
        /// The machine.
        hardware: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A workflow of the machine has not ended. A restart would break it.
    #[error("workflow {workflow} of the machine of instance {id} has not ended")]
    Workflow {
        /// The instance.
        id: String,
        /// The workflow.
        workflow: String,
    },
    /// Only people can switch the machine.
    #[error("the machine of instance {0} has no BMC in use: restart it by hand")]
    NoBmc(String),
    /// The record could not be read.
    #[error(transparent)]
    Records(#[from] instances::Error),
    /// A call to the power service failed.
    #[error(transparent)]
    Peer(#[from] peers::Error),
}

/// Orders a restart. Returns the power job's id.
pub(crate) async fn restart(
    instances: &Instances,
    peers: &Peers,
    restart: &Restart,
) -> Result<String, Error> {
    let instance = active(instances, restart.instance).await?;
    if instance.power_management() == PowerManagement::None {
        return Err(Error::NoBmc(instance.id));
    }
    check_machine(peers, &instance).await?;
    let job = peers.create_power_job(power_job(&instance, restart)).await?;
    let Some(job) = job else { return Err(Error::NoBmc(instance.id)) };
    match active(instances, restart.instance).await {
        Ok(same) if same.generation == instance.generation => Ok(job),
        changed => {
            peers.cancel_power_job(&job).await?;
            let state = "being changed".into();
            Err(changed.err().unwrap_or(Error::NotActive { id: instance.id, state }))
        }
    }
}

/// Refuses while the machine's state or a workflow of it allows no restart.
async fn check_machine(peers: &Peers, instance: &pb::Instance) -> Result<(), Error> {
    let id = || instance.id.clone();
    let found = peers.hardware(&instance.hardware_id).await?;
    let fault = match found.as_ref().map(Hardware::state) {
        None => Some("not found"),
        Some(State::Failed) => Some("failed"),
        Some(State::Maintenance) => Some("in maintenance"),
        Some(State::Deleting) => Some("being deleted"),
        Some(State::Unspecified | State::Enrolled | State::Provisionable) => None,
    };
    if let Some(fault) = fault {
        let hardware = instance.hardware_id.clone();
        let name = found.as_ref().map_or(hardware.as_str(), name_of).to_owned();
        let reason = format!("{name} is {fault}");
        return Err(Error::Machine { id: id(), hardware, reason });
    }
    let workflows = peers.machine_workflows(&instance.hardware_id).await?;
    match workflows.into_iter().find(|workflow| !workflow.is_terminal()) {
        Some(workflow) => Err(Error::Workflow { id: id(), workflow: workflow.id }),
        None => Ok(()),
    }
}

/// Returns the instance `id` if it is active, or if its machine may boot the system of its platform or as a node, and was not seen to do so.
async fn active(instances: &Instances, id: InstanceId) -> Result<pb::Instance, Error> {
    let found = instances.records.at(&id.to_string(), 0).await.map_err(instances::Error::from)?;
    if found.state() == pb::State::Active || is_booting(&found) {
        return Ok(found);
    }
    let state = found.state().word();
    Err(Error::NotActive { id: found.id, state })
}

/// True if the machine of `instance` was booted into a system that is on no disk, and was not seen to run it yet.
fn is_booting(instance: &pb::Instance) -> bool {
    let is_first = instance.state() == pb::State::Provisioning;
    let is_again = instance.state() == pb::State::Reinstalling;
    let has_open_gate = instance.boot_gate.as_ref().is_some_and(|gate| gate.open);
    is_first && is_platform(instance) && has_open_gate
        || (is_first || is_again) && is_node(instance) && instance.install_time.is_some()
}

fn power_job(instance: &pb::Instance, restart: &Restart) -> CreatePowerJobRequest {
    let power =
        |power: Power| Operation { what: Some(What::Power(power.into())), ..Operation::default() };
    let soft_off = || Operation {
        soft_off_limit: Some(prost_types::Duration {
            seconds: SOFT_OFF_LIMIT.as_secs().cast_signed(),
            nanos: 0,
        }),
        ..power(Power::SoftOff)
    };
    let mut operations = match restart.force {
        true => vec![power(Power::Cycle)],
        false => vec![soft_off(), power(Power::On)],
    };
    if is_platform(instance) || is_node(instance) {
        // Its system is on no disk. The override is for the next boot, so it comes right before the machine is switched on.
        operations.insert(operations.len() - 1, network_boot());
    }
    CreatePowerJobRequest {
        hardware_id: instance.hardware_id.clone(),
        operations,
        request_id: request_id(restart),
        instance_id: instance.id.clone(),
        ..CreatePowerJobRequest::default()
    }
}

fn network_boot() -> Operation {
    let boot = Boot { device: Device::Pxe.into(), ..Boot::default() };
    Operation { what: Some(What::Boot(boot)), ..Operation::default() }
}

/// Returns the id of the request to the power service. It has a fixed length, whatever the caller's has.
fn request_id(restart: &Restart) -> String {
    if restart.request.is_empty() {
        return String::new();
    }
    let digest = digest(&SHA256, restart.request.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}/restart/{hex}", restart.instance)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use runtime::Clock;
    use store::memory::MemoryStore;
    use tinwright::hardware::v1::State as HardwareState;
    use tinwright::instance::v1::Instance;
    use tinwright::workflow::v1 as wf;

    use super::*;
    use crate::state::State;
    use crate::tests::site::{MACHINE, Site};

    /// An instance in `state` at a site.
    async fn bench(state: State, instance: Instance) -> (Site, Instances, InstanceId) {
        let (site, store) = (Site::new(), Arc::new(MemoryStore::default()));
        let instances = Instances::new(store, Clock::system());
        let instance = Instance { hardware_id: MACHINE.into(), ..instance };
        let made = instances.create(instance, None).await.unwrap();
        let mut new = made.clone();
        state.write(&mut new);
        let put = instances.put(&made, new).await.unwrap();
        (site, instances, put.id.parse().unwrap())
    }

    fn order(instance: InstanceId, request: &str) -> Restart {
        Restart { instance, force: false, request: request.into() }
    }

    #[tokio::test]
    async fn a_repeated_request_restarts_once_and_the_system_is_asked_first() {
        let (site, instances, id) = bench(State::Active, Instance::default()).await;
        let peers = site.peers();
        let first = restart(&instances, &peers, &order(id, "anna\nr")).await.unwrap();
        assert_eq!(restart(&instances, &peers, &order(id, "anna\nr")).await.unwrap(), first);
        assert_ne!(restart(&instances, &peers, &order(id, "bert\nr")).await.unwrap(), first);
        let longest = "r".repeat(500);
        restart(&instances, &peers, &order(id, &longest)).await.unwrap();
        let forced = Restart { force: true, ..order(id, "") };
        restart(&instances, &peers, &forced).await.unwrap();
        let jobs = site.state().jobs.clone();
        let words: Vec<Vec<_>> = jobs
            .iter()
            .map(|job| job.operations.iter().filter_map(|it| it.what.clone()).collect())
            .collect();
        let power = |power: Power| What::Power(power.into());
        let soft = vec![power(Power::SoftOff), power(Power::On)];
        assert_eq!(words, [soft.clone(), soft.clone(), soft, vec![power(Power::Cycle)]]);
        assert_eq!(jobs[0].operations[0].soft_off_limit.unwrap().seconds, 60);
        assert!(jobs.iter().all(|job| job.request_id.len() <= 128 && job.hardware_id == MACHINE));
    }

    #[tokio::test]
    async fn only_an_active_instance_with_a_bmc_is_restarted() {
        for state in [State::Queued, State::Provisioning, State::Reinstalling, State::Failed] {
            let (site, instances, id) = bench(state, Instance::default()).await;
            let refused = restart(&instances, &site.peers(), &order(id, "")).await.unwrap_err();
            assert!(matches!(refused, Error::NotActive { .. }), "{refused}");
            assert!(site.state().jobs.is_empty());
        }
        let by_hand =
            Instance { power_management: PowerManagement::None.into(), ..Instance::default() };
        let (site, instances, id) = bench(State::Active, by_hand).await;
        let refused = restart(&instances, &site.peers(), &order(id, "")).await.unwrap_err();
        assert!(matches!(refused, Error::NoBmc(_)), "{refused}");
        let (site, instances, id) = bench(State::Active, Instance::default()).await;
        site.state().has_bmc = false;
        let refused = restart(&instances, &site.peers(), &order(id, "")).await.unwrap_err();
        assert!(matches!(refused, Error::NoBmc(_)), "{refused}");
    }

    #[tokio::test]
    async fn a_machine_with_a_fault_or_an_open_workflow_is_left_alone() {
        let (site, instances, id) = bench(State::Active, Instance::default()).await;
        let peers = site.peers();
        let order = order(id, "");
        for state in [HardwareState::Failed, HardwareState::Maintenance, HardwareState::Deleting] {
            site.set_machine_state(state, "fan");
            let refused = restart(&instances, &peers, &order).await.unwrap_err();
            assert!(matches!(refused, Error::Machine { .. }), "{refused}");
        }
        site.set_machine_state(HardwareState::Provisionable, "");
        // Of another instance, or of none: an operator's.
        let workflow =
            wf::Workflow { hardware_id: MACHINE.into(), id: "w".into(), ..wf::Workflow::default() };
        site.add(workflow);
        let refused = restart(&instances, &peers, &order).await.unwrap_err();
        assert!(matches!(refused, Error::Workflow { .. }), "{refused}");
        assert!(site.state().jobs.is_empty());
        site.end(wf::WorkflowState::Success, "");
        restart(&instances, &peers, &order).await.unwrap();
        site.state().machine = None;
        let refused = restart(&instances, &peers, &order).await.unwrap_err();
        assert!(matches!(refused, Error::Machine { .. }), "{refused}");
    }

    #[tokio::test]
    async fn the_job_of_an_instance_that_is_deleted_meanwhile_is_cancelled() {
        let (site, instances, id) = bench(State::Active, Instance::default()).await;
        let (peers, order) = (site.peers(), order(id, ""));
        let gate = site.hold_creation();
        let delete = async {
            gate.reached.notified().await;
            instances.delete(id, 0, false).await.unwrap();
            gate.opened.notify_one();
        };
        let (refused, ()) = tokio::join!(restart(&instances, &peers, &order), delete);
        assert!(matches!(refused, Err(Error::NotActive { .. })), "{refused:?}");
        let site = site.state();
        assert_eq!((site.jobs.len(), site.cancelled_jobs.len()), (1, 1));
    }
}
