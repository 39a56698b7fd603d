//! What the other services have for a machine: the instance that occupies it, its workflows, power jobs and BMC.

use std::collections::BTreeSet;

use runtime::Channel;
use tinwright::TenantName;
use tinwright::instance::v1::get_instance_request::By as InstanceBy;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{GetInstanceRequest, Instance, ListInstancesRequest};
use tinwright::power::v1 as power;
use tinwright::power::v1::get_bmc_request::By as BmcBy;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::WorkflowState;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Response, Status};

/// Instances of a page.
const PAGE_SIZE: i32 = 1000;

/// A machine that cannot be released.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An instance occupies the machine.
    #[error("hardware {id} is occupied by instance {by}: delete that first")]
    Occupied {
        /// The machine.
        id: String,
        /// The instance.
        by: String,
    },
    /// A workflow has begun on the machine and has not ended.
    #[error("hardware {id} is used by workflow {by}: cancel that first")]
    Working {
        /// The machine.
        id: String,
        /// The workflow.
        by: String,
    },
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

impl Error {
    /// True if the machine is in use: repeating the delete is useless until that has ended.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Occupied { .. } | Self::Working { .. } => true,
            Self::Unavailable { .. } => false,
        }
    }
}

/// The services behind their channels.
#[derive(Clone, Debug)]
pub struct Peers {
    instance: InstanceServiceClient<Channel>,
    workflow: WorkflowServiceClient<Channel>,
    power: PowerServiceClient<Channel>,
}

impl Peers {
    /// Clients for these channels.
    pub fn new(instance: Channel, workflow: Channel, power: Channel) -> Self {
        Self {
            instance: InstanceServiceClient::new(instance),
            workflow: WorkflowServiceClient::new(workflow),
            power: PowerServiceClient::new(power),
        }
    }

    /// Removes what the other services have for the machine `id`: cancels waiting workflows and power jobs, and deletes its BMC.
    /// Changes nothing if an instance or a workflow uses the machine. May be repeated.
    pub async fn release(&self, id: &str) -> Result<(), Error> {
        if let Some(occupant) = self.occupant(id).await? {
            return Err(Error::Occupied { id: id.to_owned(), by: occupant.id });
        }
        let workflows = self.open_workflows(id).await?;
        if let Some(working) = workflows.iter().find(|workflow| has_begun(workflow)) {
            return Err(Error::Working { id: id.to_owned(), by: working.id.clone() });
        }
        for workflow in workflows {
            self.cancel_workflow(id, workflow.id).await?;
        }
        self.cancel_power_jobs(id).await?;
        self.delete_bmc(id).await
    }

    /// True if a caller may see the machine `id`. One who is limited to the objects of `tenant`
    /// sees the machines of its instances.
    pub async fn is_visible(&self, id: &str, tenant: Option<&TenantName>) -> Result<bool, Error> {
        let Some(tenant) = tenant else { return Ok(true) };
        let occupant = self.occupant(id).await?;
        Ok(occupant.is_some_and(|occupant| occupant.tenant == tenant.as_str()))
    }

    /// Returns the instance that occupies the machine, if there is one.
    pub(crate) async fn occupant(&self, id: &str) -> Result<Option<Instance>, Error> {
        let by = Some(InstanceBy::HardwareId(id.to_owned()));
        let request = GetInstanceRequest { by, ..GetInstanceRequest::default() };
        let found = response("instance", self.instance.clone().get_instance(request)).await?;
        Ok(found.and_then(|found| found.instance))
    }

    /// Returns the ids of the machines that instances of `tenant` occupy, or any instances if there is none.
    pub async fn occupied_machines(
        &self,
        tenant: Option<&TenantName>,
    ) -> Result<BTreeSet<String>, Error> {
        let (mut machines, mut page_token) = (BTreeSet::new(), String::new());
        loop {
            let tenant = tenant.map(TenantName::to_string).unwrap_or_default();
            let request = ListInstancesRequest {
                page_size: PAGE_SIZE,
                tenant,
                page_token,
                ..Default::default()
            };
            let page = response("instance", self.instance.clone().list_instances(request)).await?;
            let page = page.unwrap_or_default();
            let occupants = page.instances.into_iter().filter(|instance| !instance.released);
            machines.extend(occupants.map(|instance| instance.hardware_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(machines);
            }
        }
    }

    /// Returns the machine's workflows that have not ended.
    async fn open_workflows(&self, id: &str) -> Result<Vec<wf::Workflow>, Error> {
        let (mut open, mut page_token) = (Vec::new(), String::new());
        loop {
            let hardware_id = id.to_owned();
            let request =
                wf::ListWorkflowsRequest { hardware_id, page_token, ..Default::default() };
            let page = response("workflow", self.workflow.clone().list_workflows(request)).await?;
            let page = page.unwrap_or_default();
            open.extend(page.workflows.into_iter().filter(|workflow| !workflow.is_terminal()));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(open);
            }
        }
    }

    /// Cancels a waiting workflow of the machine `hardware`. It may have begun meanwhile: then it has not ended yet.
    async fn cancel_workflow(&self, hardware: &str, id: String) -> Result<(), Error> {
        let request = wf::CancelWorkflowRequest { id };
        let cancelled =
            response("workflow", self.workflow.clone().cancel_workflow(request)).await?;
        match cancelled.and_then(|response| response.workflow) {
            Some(workflow) if !workflow.is_terminal() => {
                Err(Error::Working { id: hardware.to_owned(), by: workflow.id })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Cancels the machine's power jobs that have not ended.
    async fn cancel_power_jobs(&self, id: &str) -> Result<(), Error> {
        let mut page_token = String::new();
        loop {
            let hardware_id = id.to_owned();
            let request =
                power::ListPowerJobsRequest { hardware_id, page_token, ..Default::default() };
            let page = response("power", self.power.clone().list_power_jobs(request)).await?;
            let page = page.unwrap_or_default();
            for job in page.power_jobs.into_iter().filter(|job| !job.is_terminal()) {
                let request = power::CancelPowerJobRequest { id: job.id };
                response("power", self.power.clone().cancel_power_job(request)).await?;
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Deletes the machine's BMC, if it has one.
    async fn delete_bmc(&self, id: &str) -> Result<(), Error> {
        let request = power::GetBmcRequest { by: Some(BmcBy::HardwareId(id.to_owned())) };
        let found = response("power", self.power.clone().get_bmc(request)).await?;
        let Some(bmc) = found.and_then(|found| found.bmc) else { return Ok(()) };
        let request = power::DeleteBmcRequest { id: bmc.id, revision: 0 };
        response("power", self.power.clone().delete_bmc(request)).await.map(drop)
    }
}

/// True if a workflow that has not ended is more than waiting: its machine was at least prepared for it.
fn has_begun(workflow: &wf::Workflow) -> bool {
    workflow.state() != WorkflowState::Pending || workflow.prepared
}

/// Waits for the response of `service`. Returns none if it does not have the object.
async fn response<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, Error> {
    let found = runtime::find(call).await;
    found.map_err(|status| Error::Unavailable { service, status: Box::new(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_workflow_has_begun_once_its_machine_is_prepared() {
        let mut workflow = wf::Workflow::default();
        workflow.set_state(WorkflowState::Pending);
        assert!(!has_begun(&workflow));
        workflow.prepared = true;
        assert!(has_begun(&workflow));
        workflow.prepared = false;
        workflow.set_state(WorkflowState::Running);
        assert!(has_begun(&workflow));
    }
}
