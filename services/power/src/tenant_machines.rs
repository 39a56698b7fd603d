//! The instances that occupy machines: a power job belongs to the tenant of the occupant, and tenants may switch the machines of theirs.
//!
//! ```text
//! CreatePowerJob of a tenant ─▶ check ─▶ queue of the machine ─▶ first of the queue: check again ─▶ BMC
//! DeleteInstance ─▶ deprovisioning ─▶ clean-up workflow ─▶ its power job, in the same queue
//! ```
//!
//! A job that the site or a service orders is checked neither time: the clean-up of a tenant's machine is the tenant's job, too.
//!
//! An instance is deprovisioning before its clean-up is queued. So a tenant's job that passes the second check ends before the clean-up begins,
//! and one that was queued behind it fails.

use runtime::Channel;
use tinwright::Stored as _;
use tinwright::TenantName;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::get_hardware_request::By as HardwareBy;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::get_instance_request::By as InstanceBy;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Power, What};
use tinwright::status::{self, Violations};
use tinwright::workflow::v1::ListWorkflowsRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Response, Status};

/// Clients of the services that know who uses a machine.
#[derive(Clone, Debug)]
pub struct TenantMachines {
    hardware: HardwareServiceClient<Channel>,
    instance: InstanceServiceClient<Channel>,
    workflow: WorkflowServiceClient<Channel>,
}

/// A machine that a tenant may not switch, or not now.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No instance of the tenant occupies it.
    #[error("hardware {0} not found")]
    Missing(String),
    /// Another instance, or none, occupies it.
    #[error("hardware {hardware} is not occupied by instance {instance}")]
    NotOccupant {
        /// The machine.
        hardware: String,
        /// The instance that was named.
        instance: String,
    },
    /// The instance is being deleted.
    #[error("instance {0} is being deprovisioned")]
    Deprovisioning(String),
    /// The machine is in maintenance, or otherwise not in service.
    #[error("hardware {0} is not in service")]
    OutOfService(String),
    /// A workflow has not ended.
    #[error("hardware {0} is used by a workflow")]
    Working(String),
    /// A call to another service failed.
    #[error("the {service} service did not answer")]
    Unavailable {
        /// The service.
        service: &'static str,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
}

impl TenantMachines {
    /// Clients for these channels.
    pub fn new(hardware: Channel, instance: Channel, workflow: Channel) -> Self {
        Self {
            hardware: HardwareServiceClient::new(hardware),
            instance: InstanceServiceClient::new(instance),
            workflow: WorkflowServiceClient::new(workflow),
        }
    }

    /// Returns the instance that occupies the machine `id`, if there is one.
    pub async fn occupant(&self, id: &str) -> Result<Option<inst::Instance>, Error> {
        let by = Some(InstanceBy::HardwareId(id.to_owned()));
        let request = inst::GetInstanceRequest { by, ..Default::default() };
        let mut client = self.instance.clone();
        let found = response("instance", client.get_instance(request)).await?;
        Ok(found.and_then(|found| found.instance))
    }

    /// Returns the instance of `tenant` that occupies the machine `id`, if the tenant may switch the machine now.
    pub async fn check(&self, id: &str, tenant: &TenantName) -> Result<inst::Instance, Error> {
        let instance = self.occupant(id).await?;
        let instance = instance.filter(|it| it.is_visible_to(Some(tenant)));
        let instance = instance.ok_or_else(|| Error::Missing(id.to_owned()))?;
        match instance.state() {
            inst::State::Queued
            | inst::State::Provisioning
            | inst::State::Reinstalling
            | inst::State::Active
            | inst::State::Failed => {}
            inst::State::Unspecified
            | inst::State::Deprovisioning
            | inst::State::DeprovisionFailed
            | inst::State::Deleted => return Err(Error::Deprovisioning(instance.id)),
        }
        let by = Some(HardwareBy::Id(id.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let mut client = self.hardware.clone();
        let machine = response("hardware", client.get_hardware(request)).await?;
        let machine = machine.and_then(|found| found.hardware);
        if machine.is_none_or(|machine| machine.state() != hw::State::Provisionable) {
            return Err(Error::OutOfService(id.to_owned()));
        }
        match self.has_open_workflow(id).await? {
            true => Err(Error::Working(id.to_owned())),
            false => Ok(instance),
        }
    }

    /// Passes if `job`, which a tenant ordered, may begin: the instance that it is for is still there.
    pub async fn check_begin(&self, job: &pb::PowerJob) -> Result<(), Error> {
        let missing = || Error::Missing(job.hardware_id.clone());
        let tenant = job.creator_tenant.parse().map_err(|_| missing())?;
        let instance = self.check(&job.hardware_id, &tenant).await?;
        if instance.id == job.instance_id { Ok(()) } else { Err(missing()) }
    }

    /// True if a workflow of the machine `id` has not ended.
    async fn has_open_workflow(&self, id: &str) -> Result<bool, Error> {
        let mut page_token = String::new();
        loop {
            let hardware_id = id.to_owned();
            let request = ListWorkflowsRequest { hardware_id, page_token, ..Default::default() };
            let mut client = self.workflow.clone();
            let page = response("workflow", client.list_workflows(request)).await?;
            let page = page.unwrap_or_default();
            if page.workflows.iter().any(|workflow| !workflow.is_terminal()) {
                return Ok(true);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(false);
            }
        }
    }
}

/// Waits for the response of `service`. Returns none if it does not have the object.
async fn response<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, Error> {
    let found = runtime::find(call).await;
    found.map_err(|status| Error::Unavailable { service, status: Box::new(status) })
}

/// Returns `job` as one of `occupant`, the instance on its machine. A job that names an instance has to name the occupant.
pub fn of_occupant(
    job: pb::PowerJob,
    occupant: Option<inst::Instance>,
) -> Result<pb::PowerJob, Error> {
    let inst::Instance { id, tenant, .. } = occupant.unwrap_or_default();
    if !job.instance_id.is_empty() && job.instance_id != id {
        let (hardware, instance) = (job.hardware_id, job.instance_id);
        return Err(Error::NotOccupant { hardware, instance });
    }
    Ok(pb::PowerJob { tenant, instance_id: id, ..job })
}

/// Passes if a tenant may order these operations: on, off and cycle.
pub fn check_operations(operations: &[pb::Operation]) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    for (n, operation) in operations.iter().enumerate() {
        let is_allowed = match operation.what {
            Some(What::Power(power)) => {
                let power = Power::try_from(power);
                matches!(power, Ok(Power::On | Power::Off | Power::Cycle))
            }
            Some(What::Boot(_) | What::InsertMedia(_) | What::EjectMedia(_)) | None => false,
        };
        if !is_allowed {
            wrong.add(format!("operations[{n}]"), "is none of on, off, cycle: a tenant has these");
        }
    }
    wrong.into_result(())
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Missing(id) => status::not_found("hardware", &id),
            Error::NotOccupant { hardware, .. } => {
                status::failed_precondition("OCCUPANT", &format!("hardware/{hardware}"), text)
            }
            Error::Deprovisioning(id) => {
                status::failed_precondition("STATE", &format!("instance/{id}"), text)
            }
            Error::OutOfService(id) => {
                status::failed_precondition("STATE", &format!("hardware/{id}"), text)
            }
            Error::Working(id) => {
                status::failed_precondition("WORKFLOW", &format!("hardware/{id}"), text)
            }
            Error::Unavailable { .. } => Self::unavailable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_switches_on_off_and_cycles_and_nothing_else() {
        let power = |power: Power| pb::Operation {
            what: Some(What::Power(power.into())),
            ..Default::default()
        };
        check_operations(&[power(Power::Off), power(Power::On), power(Power::Cycle)]).unwrap();
        let boot = pb::operation::Boot::default();
        let boot = pb::Operation { what: Some(What::Boot(boot)), ..Default::default() };
        let empty = pb::Operation::default();
        for wrong in
            [power(Power::SoftOff), power(Power::Reset), power(Power::Unspecified), boot, empty]
        {
            let refused = check_operations(&[power(Power::On), wrong]).unwrap_err();
            assert!(refused.to_string().starts_with("operations[1]: "), "{refused}");
        }
    }
}
