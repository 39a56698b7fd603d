//! What is asked of the hardware, workflow and power services, and what their answers mean here.
//!
//! A peer that is out of reach, restarting or in doubt is asked again later; only words about the request itself end an
//! attempt. Whatever makes something carries a request id, so asking again makes nothing twice.

use std::collections::BTreeMap;

use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// The services behind their channels.
#[derive(Clone, Debug)]
pub struct Peers {
    hardware: HardwareServiceClient<Channel>,
    workflow: WorkflowServiceClient<Channel>,
    power: PowerServiceClient<Channel>,
}

/// Why a peer did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It will not, in its own words: asking the same again is pointless.
    #[error("the {service} service refused: {reason}")]
    Refused {
        /// Which.
        service: &'static str,
        /// What it said.
        reason: String,
    },
    /// The request id was used when the request looked different.
    #[error("request id used before for something else")]
    Reused,
    /// It cannot now: ask again.
    #[error("the {service} service did not answer")]
    Away {
        /// Which.
        service: &'static str,
        /// What came instead.
        #[source]
        status: Box<Status>,
    },
}

impl Peers {
    /// The services behind these channels.
    pub fn new(hardware: Channel, workflow: Channel, power: Channel) -> Self {
        Self {
            hardware: HardwareServiceClient::new(hardware),
            workflow: WorkflowServiceClient::new(workflow),
            power: PowerServiceClient::new(power),
        }
    }

    /// The machine, if there is one.
    pub async fn hardware(&self, id: &str) -> Result<Option<hw::Hardware>, Error> {
        let by = Some(hw::get_hardware_request::By::Id(id.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let asked = self.hardware.clone().get_hardware(request).await;
        Ok(found("hardware", asked)?.and_then(|answer| answer.hardware))
    }

    /// Tells that the machine is in a new boot: its installed system has called. Best effort, since the workflow service
    /// learns it from other signs as well, and the call itself is stored.
    pub async fn note_boot(&self, hardware_id: &str) {
        let request = wf::NoteBootRequest { hardware_id: hardware_id.to_owned() };
        if let Err(status) = self.workflow.clone().note_boot(request).await {
            tracing::debug!(code = ?status.code(), reason = status.message(), "boot not noted");
        }
    }

    /// Puts the machine into maintenance for `reason`. One that is gone, or on its way out, needs no holding.
    pub async fn hold(&self, id: &str, reason: String) -> Result<(), Error> {
        let mut request =
            hw::SetHardwareStateRequest { id: id.into(), reason, ..Default::default() };
        request.set_state(hw::State::Maintenance);
        match found("hardware", self.hardware.clone().set_hardware_state(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused { service, reason }) => {
                tracing::warn!(service, reason, hardware.id = id, "machine not held");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Queues work. Answers the workflow's id.
    pub async fn begin(&self, request: wf::CreateWorkflowRequest) -> Result<String, Error> {
        let asked = self.workflow.clone().create_workflow(request).await;
        let made = asked.map_err(|status| judged("workflow", status))?.into_inner().workflow;
        made.map(|workflow| workflow.id)
            .ok_or_else(|| judged("workflow", Status::internal("the answer has no workflow")))
    }

    /// The workflow, if there still is one.
    pub async fn workflow(&self, id: &str) -> Result<Option<wf::Workflow>, Error> {
        let request = wf::GetWorkflowRequest { id: id.to_owned(), ..Default::default() };
        let asked = self.workflow.clone().get_workflow(request).await;
        Ok(found("workflow", asked)?.and_then(|answer| answer.workflow))
    }

    /// All that was ever queued on the machine for the instance, and is still there.
    pub async fn workflows(
        &self,
        hardware: &str,
        instance: &str,
    ) -> Result<Vec<wf::Workflow>, Error> {
        let (mut ours, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = wf::ListWorkflowsRequest {
                hardware_id: hardware.to_owned(),
                page_token,
                ..Default::default()
            };
            let asked = self.workflow.clone().list_workflows(request).await;
            let page = found("workflow", asked)?.unwrap_or_default();
            ours.extend(page.workflows.into_iter().filter(|each| each.instance_id == instance));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(ours);
            }
        }
    }

    /// Ends a workflow before its time, if it is still there.
    pub async fn cancel(&self, id: &str) -> Result<(), Error> {
        let request = wf::CancelWorkflowRequest { id: id.to_owned() };
        found("workflow", self.workflow.clone().cancel_workflow(request).await).map(drop)
    }

    /// Has the machine boot from the network once, now. Answers whether it has a BMC to do that.
    pub async fn boot(
        &self,
        hardware: &str,
        labels: BTreeMap<String, String>,
        request_id: String,
    ) -> Result<bool, Error> {
        use power::operation::{Boot, Power, What, boot::Device};
        let boot = Boot { device: Device::Pxe.into(), ..Boot::default() };
        let operations = [What::Boot(boot), What::Power(Power::Cycle.into())]
            .map(|what| power::Operation { what: Some(what) });
        let request = power::CreatePowerJobRequest {
            hardware_id: hardware.to_owned(),
            operations: operations.into(),
            labels,
            request_id,
        };
        Ok(found("power", self.power.clone().create_power_job(request).await)?.is_some())
    }

    /// A client for following all workflows.
    pub fn workflow_client(&self) -> WorkflowServiceClient<Channel> {
        self.workflow.clone()
    }
}

/// The answer; nothing where the peer knows of no such thing.
fn found<T>(service: &'static str, asked: Result<Response<T>, Status>) -> Result<Option<T>, Error> {
    match asked {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(judged(service, status)),
    }
}

/// Never or later?
fn judged(service: &'static str, status: Status) -> Error {
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition => {
            Error::Refused { service, reason: status.message().to_owned() }
        }
        Code::AlreadyExists => Error::Reused,
        // A site that is set up wrongly is mended by people, and the work goes on: later, as with the others.
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Error::Away { service, status: Box::new(status) },
    }
}
