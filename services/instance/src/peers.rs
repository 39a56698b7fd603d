//! Calls to the address, hardware, identity, workflow and power services.
//!
//! Temporary errors are retried by the caller, final ones end an attempt (`runtime::retry::is_final`). Each call that
//! creates something has a request id, so repeating it creates nothing twice.

mod grants;
mod machines;

use std::collections::BTreeMap;
use std::time::SystemTime;

use runtime::Channel;
use runtime::images::ImageDirectory;
use runtime::retry::is_final;
use runtime::tenants::{self, TenantDirectory};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tinwright::instance::v1::Instance;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

pub use self::grants::NoGrant;

/// The longest page of machines.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct CalledServices {
    /// The address service, which has the grants that are attached to instances.
    pub address: Channel,
    /// The hardware service, which has the machines.
    pub hardware: Channel,
    /// The identity service, which has the tenants.
    pub identity: Channel,
    /// The image service; none on a site without images.
    pub image: Option<Channel>,
    /// The workflow service, which installs and cleans machines.
    pub workflow: Channel,
    /// The power service, which switches machines on.
    pub power: Channel,
}

/// The services behind their channels.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Their channels.
    pub services: CalledServices,
    /// The tenants.
    pub tenants: TenantDirectory,
    /// The images.
    pub images: ImageDirectory,
    address: GrantServiceClient<Channel>,
    hardware: HardwareServiceClient<Channel>,
    locations: LocationServiceClient<Channel>,
    models: ModelServiceClient<Channel>,
    workflow: WorkflowServiceClient<Channel>,
    power: PowerServiceClient<Channel>,
}

/// A failed call to another service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service refused the request for good.
    #[error("the {service} service refused: {reason}")]
    Refused {
        /// The service.
        service: &'static str,
        /// Its message.
        reason: String,
        /// The reason in its `ErrorInfo`; empty if there is none.
        code: String,
    },
    /// The request id was used before with another body.
    #[error("request id was used before for another request")]
    RequestIdReused,
    /// The service did not answer, or cannot answer now.
    #[error("the {service} service did not answer")]
    Unavailable {
        /// The service.
        service: &'static str,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
}

impl Peers {
    /// Clients of `services`.
    pub fn new(services: CalledServices) -> Self {
        let CalledServices { address, hardware, identity, image, workflow, power } =
            services.clone();
        Self {
            services,
            tenants: TenantDirectory::new(identity),
            images: ImageDirectory::new(image),
            address: GrantServiceClient::new(address),
            hardware: HardwareServiceClient::new(hardware.clone())
                .max_decoding_message_size(MAX_LIST_BYTES),
            locations: LocationServiceClient::new(hardware.clone()),
            models: ModelServiceClient::new(hardware),
            workflow: WorkflowServiceClient::new(workflow),
            power: PowerServiceClient::new(power),
        }
    }

    /// Returns the machine, if there is one.
    pub async fn hardware(&self, id: &str) -> Result<Option<hw::Hardware>, Error> {
        let by = Some(hw::get_hardware_request::By::Id(id.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let response = self.hardware.clone().get_hardware(request).await;
        Ok(optional("hardware", response)?.and_then(|response| response.hardware))
    }

    /// Returns the reason for doing nothing for `tenant`; none if it exists. Fails while the tenant is
    /// being deleted: the deletion may be refused.
    pub async fn missing_tenant(&self, tenant: &str) -> Result<Option<String>, Error> {
        match self.tenants.require("tenant", tenant).await {
            Ok(()) => Ok(None),
            Err(tenants::Error::Missing { tenant, .. }) => {
                Ok(Some(format!("there is no tenant {tenant}")))
            }
            Err(
                error @ (tenants::Error::Invalid(_)
                | tenants::Error::BeingDeleted { .. }
                | tenants::Error::Unavailable { .. }),
            ) => Err(Error::Unavailable { service: "identity", status: Box::new(error.into()) }),
        }
    }

    /// Reports to the workflow service that the machine's installed system has booted. Failures are only logged: the workflow
    /// service also learns of boots from other sources.
    pub async fn report_boot(&self, hardware_id: &str) {
        let request = wf::NoteBootRequest {
            hardware_id: hardware_id.to_owned(),
            ..wf::NoteBootRequest::default()
        };
        if let Err(status) = self.workflow.clone().note_boot(request).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not reported");
        }
    }

    /// Moves the machine to maintenance for `reason`. A machine that is gone or being deleted is left alone.
    pub async fn move_to_maintenance(&self, id: &str, reason: String) -> Result<(), Error> {
        let mut request =
            hw::SetHardwareStateRequest { id: id.into(), reason, ..Default::default() };
        request.set_state(hw::State::Maintenance);
        match optional("hardware", self.hardware.clone().set_hardware_state(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused { service, reason, .. }) => {
                tracing::warn!(
                    service,
                    reason,
                    hardware.id = id,
                    "machine not moved to maintenance"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a workflow, held back, and returns its id.
    pub async fn create_workflow(
        &self,
        request: wf::CreateWorkflowRequest,
    ) -> Result<String, Error> {
        let request = wf::CreateWorkflowRequest { held: true, ..request };
        let response = self.workflow.clone().create_workflow(request).await;
        let created = response.map_err(|status| classify("workflow", status))?.into_inner();
        let workflow = created.workflow.ok_or_else(|| {
            classify("workflow", Status::internal("the response has no workflow"))
        })?;
        if workflow.held && workflow.is_terminal() {
            // The request was made before, and its workflow was not released in time.
            return Err(Error::RequestIdReused);
        }
        Ok(workflow.id)
    }

    /// Returns the workflow, if there still is one.
    pub async fn workflow(&self, id: &str) -> Result<Option<wf::Workflow>, Error> {
        let request = wf::GetWorkflowRequest { id: id.to_owned(), ..Default::default() };
        let response = self.workflow.clone().get_workflow(request).await;
        Ok(optional("workflow", response)?.and_then(|response| response.workflow))
    }

    /// True if the workflow has run all its actions with success, whether its clean-up has ended or not.
    pub async fn has_run_all_actions(&self, id: &str) -> Result<bool, Error> {
        if id.is_empty() {
            return Ok(false);
        }
        let Some(workflow) = self.workflow(id).await? else { return Ok(false) };
        let has_ended = |action: &wf::Action| {
            matches!(action.state(), wf::ActionState::Success | wf::ActionState::Skipped)
        };
        let is_over =
            matches!(workflow.state(), wf::WorkflowState::Post | wf::WorkflowState::Success);
        Ok(is_over && workflow.actions.iter().all(has_ended))
    }

    /// Lists all workflows of the instance on the machine, ended ones included.
    pub async fn workflows(
        &self,
        hardware: &str,
        instance: &str,
    ) -> Result<Vec<wf::Workflow>, Error> {
        let workflows = self.machine_workflows(hardware).await?;
        Ok(workflows.into_iter().filter(|each| each.instance_id == instance).collect())
    }

    /// Lists all workflows of the machine, ended ones included.
    pub async fn machine_workflows(&self, hardware: &str) -> Result<Vec<wf::Workflow>, Error> {
        let (mut workflows, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = wf::ListWorkflowsRequest {
                hardware_id: hardware.to_owned(),
                page_token,
                ..Default::default()
            };
            let response = self.workflow.clone().list_workflows(request).await;
            let page = optional("workflow", response)?.unwrap_or_default();
            workflows.extend(page.workflows);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(workflows);
            }
        }
    }

    /// Lets a workflow begin that was created held back.
    pub async fn release_workflow(&self, id: &str) -> Result<(), Error> {
        let request = wf::ReleaseWorkflowRequest { id: id.to_owned() };
        optional("workflow", self.workflow.clone().release_workflow(request).await).map(drop)
    }

    /// Cancels a workflow, if it is still there, and returns it.
    pub async fn cancel_workflow(&self, id: &str) -> Result<Option<wf::Workflow>, Error> {
        let request = wf::CancelWorkflowRequest { id: id.to_owned() };
        let response = self.workflow.clone().cancel_workflow(request).await;
        Ok(optional("workflow", response)?.and_then(|response| response.workflow))
    }

    /// True if the machine has a BMC.
    pub async fn has_bmc(&self, hardware: &str) -> Result<bool, Error> {
        let by = Some(power::get_bmc_request::By::HardwareId(hardware.to_owned()));
        let response = self.power.clone().get_bmc(power::GetBmcRequest { by }).await;
        Ok(optional("power", response)?.is_some())
    }

    /// Returns the time at which the machine's BMC last reported the power off, or an operator confirmed a restart, if that began the present
    /// boot epoch.
    pub async fn restart_time(&self, hardware: &str) -> Result<Option<SystemTime>, Error> {
        let request = wf::GetBootEpochRequest { hardware_id: hardware.to_owned() };
        let response = optional("workflow", self.workflow.clone().get_boot_epoch(request).await)?;
        let time = response.and_then(|response| response.restart_time);
        Ok(time.and_then(|time| SystemTime::try_from(time).ok()))
    }

    /// Creates a power job, held back, that restarts the machine of `instance` into one network boot. Returns its id, or nothing if the
    /// machine has no BMC.
    pub async fn create_network_boot(
        &self,
        instance: &Instance,
        labels: BTreeMap<String, String>,
        request_id: String,
    ) -> Result<Option<String>, Error> {
        use power::operation::{Boot, Power, What, boot::Device};
        let boot = Boot { device: Device::Pxe.into(), ..Boot::default() };
        let operations = [What::Boot(boot), What::Power(Power::Cycle.into())]
            .map(|what| power::Operation { what: Some(what), ..Default::default() });
        let request = power::CreatePowerJobRequest {
            hardware_id: instance.hardware_id.clone(),
            operations: operations.into(),
            labels,
            request_id,
            instance_id: instance.id.clone(),
            held: true,
        };
        self.create_power_job(request).await
    }

    /// Creates a power job. Returns its id, or nothing if the machine has no BMC.
    pub async fn create_power_job(
        &self,
        request: power::CreatePowerJobRequest,
    ) -> Result<Option<String>, Error> {
        let response = self.power.clone().create_power_job(request).await;
        let Some(created) = optional("power", response)? else { return Ok(None) };
        let job = created.power_job.unwrap_or_default();
        if job.held && job.is_terminal() {
            // The request was made before, and its job was not released in time.
            return Err(Error::RequestIdReused);
        }
        Ok(Some(job.id))
    }

    /// Lets a power job begin that was created held back. Returns false if it was cancelled before, or is gone.
    pub async fn release_power_job(&self, id: &str) -> Result<bool, Error> {
        let request = power::ReleasePowerJobRequest { id: id.to_owned() };
        let response = optional("power", self.power.clone().release_power_job(request).await)?;
        let job = response.and_then(|response| response.power_job);
        Ok(job.is_some_and(|job| !job.held))
    }

    /// Cancels a power job, if it is still there. A step of it that has begun is carried out.
    pub async fn cancel_power_job(&self, id: &str) -> Result<(), Error> {
        let request = power::CancelPowerJobRequest { id: id.to_owned() };
        optional("power", self.power.clone().cancel_power_job(request).await).map(drop)
    }

    /// Detaches a grant from the instance `instance`, if it is attached to that.
    pub async fn detach_grant(&self, id: &str, instance: &str) -> Result<(), Error> {
        let (id, instance_id) = (id.to_owned(), instance.to_owned());
        let request = addr::DetachGrantRequest { id, instance_id };
        match optional("address", self.address.clone().detach_grant(request).await) {
            // It is attached to another instance now.
            Ok(_) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the response, or nothing if the peer does not have the object.
fn optional<T>(
    service: &'static str,
    response: Result<Response<T>, Status>,
) -> Result<Option<T>, Error> {
    match response {
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(classify(service, status)),
    }
}

/// Returns the error that stands for `status`: final, a used request id, or temporary.
fn classify(service: &'static str, status: Status) -> Error {
    if status.code() == Code::AlreadyExists {
        Error::RequestIdReused
    } else if is_final(status.code()) {
        let code = status.get_details_error_info().map_or_else(String::new, |info| info.reason);
        Error::Refused { service, reason: status.message().to_owned(), code }
    } else {
        Error::Unavailable { service, status: Box::new(status) }
    }
}
