//! Orders of workflows, and what would come of them.

use nouns::Noun as _;
use runtime::images;
use store::records::requests::IdempotentRequest;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::image::v1::Image;
use tinwright::instance::v1::Instance;
use tinwright::status::{self, Violations};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::render_template_request::Source;
use tinwright::{HardwareId, TemplateId};
use tonic::Status;

use super::Api;
use super::workflow::machine_id;
use crate::create::{self, BootTimes, Parts};
use crate::lifecycle::Event;
use crate::occupancy;

impl Api {
    /// Creates the workflow that `request` orders, whose caller sees machines in `view`. A repeated
    /// order returns the first result.
    pub(super) async fn order(
        &self,
        request: pb::CreateWorkflowRequest,
        view: View,
        idempotent: Option<IdempotentRequest>,
    ) -> Result<pb::Workflow, Status> {
        let made = self.workflows.records.previous_result(idempotent.as_ref()).await?;
        if let Some(made) = made {
            return Ok(made);
        }
        let template = self.template(&request.template_id, &request.template_data).await?;
        create::check_values(&request, &template)?;
        let mut machine = self.machine_for(&template, &request.hardware_id, view).await?;
        check_protection(&machine)?;
        let Instance { tenant, .. } = self.occupy(&mut machine, &request).await?;
        let template = usable(template, &tenant)?;
        let image = self.image(&request.image_id, &tenant).await?;
        let times = self.boot_times(&machine.id).await?;
        let now = self.clock.wall();
        let parts = Parts { template, machine, image };
        let render = move || create::new_workflow(&request, &parts, now);
        let workflow = self.renderings.run(render).await??;
        let workflow = pb::Workflow { tenant, ..times.write(workflow) };
        let created = self.workflows.create(&workflow, idempotent).await?;
        self.keep_with_image(created).await
    }

    /// Returns the image with this id, name or family, if `tenant` may use it; none if `image` is empty.
    async fn image(&self, image: &str, tenant: &str) -> Result<Option<Image>, Status> {
        match image {
            "" => Ok(None),
            image => Ok(Some(self.images.usable(image, tenant).await?)),
        }
    }

    /// Returns `created`, unless its image was deleted while it was created: then it is cancelled.
    async fn keep_with_image(&self, created: pb::Workflow) -> Result<pb::Workflow, Status> {
        let Some(image) = created.image.as_ref().filter(|_| !created.is_terminal()) else {
            return Ok(created);
        };
        match self.images.find(&image.id, &created.tenant).await {
            Err(images::Error::Missing(_)) => {
                let id = Violations::parse("id", &created.id)?;
                self.workflows.apply(id, &Event::Cancel).await?;
                Err(status::not_found("image", &image.name))
            }
            // It was there when the workflow was stored, or its deletion does not see it either.
            Ok(_) | Err(_) => Ok(created),
        }
    }

    /// Returns what the planned workflow would do to its machine.
    pub(super) async fn plan(
        &self,
        request: pb::PlanWorkflowRequest,
        view: View,
    ) -> Result<pb::PlanWorkflowResponse, Status> {
        let pb::PlanWorkflowRequest { template_id, hardware_id, values, tenant, .. } = request;
        let template = usable(self.template(&template_id, "").await?, &tenant)?;
        let later = self.template(&request.deprovision_template_id, "").await?;
        let later = usable(later, &tenant)?;
        let mut machine = self.machine_for(&template, &hardware_id, view).await?;
        check_protection(&machine)?;
        machine.root_disk = request.root_disk.map(Box::new).or(machine.root_disk);
        let image = self.image(&request.image_id, &tenant).await?;
        let now = self.clock.wall();
        let parts = Parts { template, machine, image };
        let plan = move || create::plan(values, &parts, &later, now);
        Ok(self.renderings.run(plan).await??)
    }

    /// Returns what the template of `request` would run on its machine.
    pub(super) async fn render(
        &self,
        request: pb::RenderTemplateRequest,
        view: View,
    ) -> Result<pb::RenderTemplateResponse, Status> {
        let pb::RenderTemplateRequest { source, hardware_id, values, .. } = request;
        let mut request = pb::CreateWorkflowRequest {
            hardware_id,
            values,
            occupied_by: request.occupied_by,
            image_id: request.image_id,
            ..pb::CreateWorkflowRequest::default()
        };
        match source {
            None if !request.image_id.is_empty() => {}
            None => {
                let text = "is missing: set it or template_data";
                return Err(Violations::single("template_id", text).into());
            }
            Some(Source::TemplateId(id)) => request.template_id = id,
            Some(Source::TemplateData(data)) => request.template_data = data,
        }
        create::check(&request)?;
        let template = self.template(&request.template_id, &request.template_data).await?;
        let mut machine = self.machine_for(&template, &request.hardware_id, view).await?;
        let mut tenant = String::new();
        if !request.occupied_by.is_empty() {
            tenant = self.occupy(&mut machine, &request).await?.tenant;
        }
        let image = self.image(&request.image_id, &tenant).await?;
        let now = self.clock.wall();
        let parts = Parts { template, machine, image };
        let render = move || create::render_template(&request, &parts, now);
        Ok(self.renderings.run(render).await??)
    }

    /// Gives `machine` the root disk hint of its occupant, if that has one. Returns the occupant, if it allows the workflow of `request`;
    /// the default instance if the machine is free.
    async fn occupy(
        &self,
        machine: &mut hw::Hardware,
        request: &pb::CreateWorkflowRequest,
    ) -> Result<Instance, Status> {
        let occupant = self.occupancy.check(machine, request).await?.unwrap_or_default();
        if let Some(hint) = occupancy::root_disk(&occupant) {
            machine.root_disk = Some(hint);
        }
        Ok(occupant)
    }

    /// Returns the stored template `id`, or one with the text `data` if `id` is empty.
    async fn template(&self, id: &str, data: &str) -> Result<pb::Template, Status> {
        if id.is_empty() {
            return Ok(pb::Template { data: data.to_owned(), ..pb::Template::default() });
        }
        let id: TemplateId = Violations::parse("template_id", id)?;
        Ok(self.templates.records().require(&id.to_string()).await?)
    }

    /// Returns the times of the machine `id`, from its models.
    async fn boot_times(&self, id: &str) -> Result<BootTimes, Status> {
        let page = |page_token| hw::ListModelsRequest {
            hardware_id: id.to_owned(),
            page_token,
            ..hw::ListModelsRequest::default()
        };
        let mut times = BootTimes::default();
        let models = runtime::list_all(self.hardware.clone(), page).await?;
        models.iter().for_each(|model| times.add(model));
        Ok(times)
    }

    /// Reads a machine from the hardware service, as `view` shows it.
    pub(super) async fn machine(&self, id: HardwareId, view: View) -> Result<hw::Hardware, Status> {
        let by = Some(hw::get_hardware_request::By::Id(id.to_string()));
        let request = hw::GetHardwareRequest { by, view: view.into() };
        let found = runtime::call(self.hardware.clone(), request).await?.hardware;
        found.ok_or_else(|| status::not_found("hardware", &id.to_string()))
    }

    /// Reads the machine `id`, as `view` shows it, for the placeholders of `template`. A tenant may
    /// have written its own template, whoever orders the workflow: it gets the basic view.
    async fn machine_for(
        &self,
        template: &pb::Template,
        id: &str,
        view: View,
    ) -> Result<hw::Hardware, Status> {
        let view = if template.tenant.is_empty() { view } else { View::Basic };
        self.machine(machine_id(id)?, view).await
    }
}

/// Returns `template`, if a workflow of `tenant` may be made from it.
fn usable(template: pb::Template, tenant: &str) -> Result<pb::Template, Status> {
    match template.tenant.is_empty() || template.tenant == tenant {
        true => Ok(template),
        false => Err(status::not_found("template", &template.id)),
    }
}

/// Passes unless `machine` is protected: an action of any workflow may change its disks.
fn check_protection(machine: &hw::Hardware) -> Result<(), Status> {
    if !machine.protect {
        return Ok(());
    }
    let subject = format!("hardware/{}", machine.id);
    let name = if machine.name.is_empty() { &machine.id } else { &machine.name };
    let text = format!("{name} is protected: tinwright hardware unprotect {name}");
    Err(status::failed_precondition("PROTECTED", &subject, text))
}
