//! What is about to use an image, so that it cannot be deleted: instances that wait for their
//! installation or are being installed, and workflows that have not ended.

use runtime::Channel;
use tinwright::TenantName;
use tinwright::image::v1::Image;
use tinwright::instance::v1 as inst;
use tinwright::workflow::v1 as wf;
use tonic::{Code, Status};

use crate::error::Error;

/// Objects of one page.
const PAGE_SIZE: i32 = 1000;

/// A client of the services whose objects name images.
#[derive(Clone, Debug)]
pub struct Holders {
    /// The instance service.
    pub instance: Channel,
    /// The workflow service.
    pub workflow: Channel,
}

/// An object that is about to use an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    /// What it is, and its name or id.
    name: String,
    tenant: String,
}

impl Holders {
    /// Passes if nothing is about to use `image`. The error names what a caller limited to `tenant`
    /// may see.
    pub(crate) async fn check_none(
        &self,
        image: &Image,
        tenant: Option<&TenantName>,
    ) -> Result<(), Error> {
        let instances = self.instances(&image.id).await.map_err(unanswered("instance"))?;
        let workflows = self.workflows(&image.id).await.map_err(unanswered("workflow"))?;
        // The workflow that installs an instance is no second holder.
        let is_listed = |workflow: &wf::Workflow| {
            instances.iter().any(|instance| instance.id == workflow.instance_id)
        };
        let workflows = workflows.into_iter().filter(|workflow| !is_listed(workflow));
        let mut holders: Vec<_> = instances.iter().map(Holder::from).collect();
        holders.extend(workflows.map(Holder::from));
        let is_visible =
            |holder: &&Holder| tenant.is_none_or(|tenant| tenant.as_str() == holder.tenant);
        let text = match (holders.len(), holders.iter().find(is_visible)) {
            (0, _) => return Ok(()),
            (1, Some(only)) => format!("image {} is in use by {}", image.name, only.name),
            (count, Some(first)) => {
                format!("image {} is in use by {} and {} more", image.name, first.name, count - 1)
            }
            (_, None) => format!("image {} is in use", image.name),
        };
        Err(Error::precondition("IN_USE", "image", &image.id, text))
    }

    /// Returns the id of the image of the live workflow `id`, if its stored file is `digest`.
    pub(crate) async fn image_of_workflow(
        &self,
        id: &str,
        digest: &str,
    ) -> Result<Option<String>, Error> {
        let request = wf::GetWorkflowRequest { id: id.to_owned(), ..Default::default() };
        let found = runtime::call(self.workflow.clone(), request).await;
        let found = match found {
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            found => found.map_err(unanswered("workflow"))?.workflow,
        };
        let live = found.filter(|workflow| !workflow.is_terminal());
        let image = live.and_then(|workflow| workflow.image);
        Ok(image.filter(|image| image.stored_sha256 == digest).map(|image| image.id))
    }

    /// Returns the instances with `image` that wait for their installation or are being installed.
    async fn instances(&self, image: &str) -> Result<Vec<inst::Instance>, Status> {
        let page = |page_token| inst::ListInstancesRequest {
            image_id: image.to_owned(),
            page_size: PAGE_SIZE,
            page_token,
            ..inst::ListInstancesRequest::default()
        };
        let found = runtime::list_all(self.instance.clone(), page).await?;
        Ok(found.into_iter().filter(is_to_be_installed).collect())
    }

    /// Returns the workflows with `image` that have not ended.
    async fn workflows(&self, image: &str) -> Result<Vec<wf::Workflow>, Status> {
        let page = |page_token| wf::ListWorkflowsRequest {
            image_id: image.to_owned(),
            page_size: PAGE_SIZE,
            page_token,
            ..wf::ListWorkflowsRequest::default()
        };
        let found = runtime::list_all(self.workflow.clone(), page).await?;
        Ok(found.into_iter().filter(|workflow| !workflow.is_terminal()).collect())
    }
}

impl From<&inst::Instance> for Holder {
    fn from(instance: &inst::Instance) -> Self {
        let inst::Instance { id, hostname, tenant, .. } = instance;
        let name = if hostname.is_empty() { id } else { hostname };
        Self { name: format!("instance {name}"), tenant: tenant.clone() }
    }
}

impl From<wf::Workflow> for Holder {
    fn from(workflow: wf::Workflow) -> Self {
        Self { name: format!("workflow {}", workflow.id), tenant: workflow.tenant }
    }
}

/// True if the machine of `instance` is being installed, or will be without another order.
fn is_to_be_installed(instance: &inst::Instance) -> bool {
    use inst::State::{Provisioning, Queued, Reinstalling};
    matches!(instance.state(), Queued | Provisioning | Reinstalling)
}

fn unanswered(service: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Unanswered { service, status: Box::new(status) }
}
