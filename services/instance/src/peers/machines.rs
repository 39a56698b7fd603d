//! The calls that a choice of a machine makes.

use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::{get_location_request, get_model_request};
use tinwright::workflow::v1 as wf;

use super::{Error, Peers, classify, optional};

/// Machines that are read at once.
const PAGE_SIZE: i32 = 1000;

impl Peers {
    /// Returns all machines that `request` selects. One that was created or deleted meanwhile may be among them or not.
    pub async fn machines(
        &self,
        request: hw::ListHardwareRequest,
    ) -> Result<Vec<hw::Hardware>, Error> {
        let (mut machines, mut page_token) = (Vec::new(), String::new());
        loop {
            let request =
                hw::ListHardwareRequest { page_size: PAGE_SIZE, page_token, ..request.clone() };
            let response = self.hardware.clone().list_hardware(request).await;
            let page = response.map_err(|status| classify("hardware", status))?.into_inner();
            machines.extend(page.hardware);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(machines);
            }
        }
    }

    /// Returns the id of the model with this id, or else of the one with this name, if there is one.
    pub async fn model_id(&self, name: Result<&str, &str>) -> Result<Option<String>, Error> {
        let by = match name {
            Ok(id) => get_model_request::By::Id(id.to_owned()),
            Err(name) => get_model_request::By::Name(name.to_owned()),
        };
        let request = hw::GetModelRequest { by: Some(by) };
        let response = optional("hardware", self.models.clone().get_model(request).await)?;
        Ok(response.and_then(|response| response.model).map(|model| model.id))
    }

    /// Returns the location with this id, or else the one with this name, if there is one.
    pub async fn location(&self, name: Result<&str, &str>) -> Result<Option<hw::Location>, Error> {
        let by = match name {
            Ok(id) => get_location_request::By::Id(id.to_owned()),
            Err(name) => get_location_request::By::Name(name.to_owned()),
        };
        let request = hw::GetLocationRequest { by: Some(by) };
        let response = optional("hardware", self.locations.clone().get_location(request).await)?;
        Ok(response.and_then(|response| response.location))
    }

    /// True if a workflow on the machine has not ended.
    pub async fn has_open_workflow(&self, hardware: &str) -> Result<bool, Error> {
        let mut page_token = String::new();
        loop {
            let hardware_id = hardware.to_owned();
            let request =
                wf::ListWorkflowsRequest { hardware_id, page_token, ..Default::default() };
            let response = self.workflow.clone().list_workflows(request).await;
            let page = response.map_err(|status| classify("workflow", status))?.into_inner();
            if page.workflows.iter().any(|workflow| !workflow.is_terminal()) {
                return Ok(true);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Returns what a workflow would do.
    pub async fn plan_workflow(
        &self,
        request: wf::PlanWorkflowRequest,
    ) -> Result<wf::PlanWorkflowResponse, Error> {
        let response = self.workflow.clone().plan_workflow(request).await;
        Ok(response.map_err(|status| classify("workflow", status))?.into_inner())
    }
}
