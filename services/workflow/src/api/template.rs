//! Templates over gRPC.

use nouns::{Delete as _, Edit as _, Noun as _};
use runtime::access;
use runtime::tenants::IfUnanswered;
use store::records::requests::IdempotentRequest;
use store::records::{self, Selector};
use store::serving;
use tinwright::Stored as _;
use tinwright::hardware::v1 as hw;
use tinwright::status::{self, Violations};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_server::TemplateService;
use tinwright::{TemplateId, TenantName};
use tonic::{Request, Response, Status};

use super::Api;

/// The number of users that the refusal to delete a template names.
const MAX_SHOWN_USERS: usize = 3;
/// The number of machines that are read at once.
const MACHINES_PER_PAGE: i32 = 100;

impl TemplateService for Api {
    async fn create_template(
        &self,
        request: Request<pb::CreateTemplateRequest>,
    ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
        let caller = access::request_scope(&request);
        let tenant = access::tenant(&request).cloned();
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let mut template = Violations::require("template", request.template)?;
        take_tenant(&mut template, tenant.as_ref())?;
        let create = self.clone().create(template, idempotent);
        let template = Some(serving::to_the_end(Box::pin(create)).await?);
        Ok(Response::new(pb::CreateTemplateResponse { template }))
    }

    async fn get_template(
        &self,
        request: Request<pb::GetTemplateRequest>,
    ) -> Result<Response<pb::GetTemplateResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let selectors = selectors(request.into_inner(), tenant.as_ref())?;
        let template = self.find(&selectors, tenant.as_ref()).await?;
        Ok(Response::new(pb::GetTemplateResponse { template: Some(template) }))
    }

    async fn list_templates(
        &self,
        request: Request<pb::ListTemplatesRequest>,
    ) -> Result<Response<pb::ListTemplatesResponse>, Status> {
        nouns::list(&self.mirrors.0, request).await
    }

    async fn update_template(
        &self,
        request: Request<pb::UpdateTemplateRequest>,
    ) -> Result<Response<pb::UpdateTemplateResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::UpdateTemplateRequest { template, update_mask } = request.into_inner();
        let mut update = Violations::require("template", template)?;
        let id: TemplateId = Violations::parse("template.id", &update.id)?;
        update.id = id.to_string();
        self.check_owner(id, tenant.as_ref()).await?;
        let paths = update_mask.unwrap_or_default().paths;
        let template = self.templates.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all, fields(template.id = request.get_ref().id))]
    async fn delete_template(
        &self,
        request: Request<pb::DeleteTemplateRequest>,
    ) -> Result<Response<pb::DeleteTemplateResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::DeleteTemplateRequest { id, revision, force } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        self.check_owner(id, tenant.as_ref()).await?;
        if !force {
            self.check_unused(id).await?;
        }
        self.templates.delete(id, revision).await?;
        Ok(Response::new(pb::DeleteTemplateResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn render_template(
        &self,
        request: Request<pb::RenderTemplateRequest>,
    ) -> Result<Response<pb::RenderTemplateResponse>, Status> {
        let view = access::largest_view(&request);
        self.render(request.into_inner(), view).await.map(Response::new)
    }

    type WatchTemplatesStream = serving::Events<pb::WatchTemplatesResponse>;

    async fn watch_templates(
        &self,
        request: Request<pb::WatchTemplatesRequest>,
    ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
        nouns::watch(&self.mirrors.0, &self.stop, request)
    }
}

impl Api {
    /// Creates `template`, whose tenant has to exist. A repeated `request` returns the first
    /// result.
    async fn create(
        self,
        template: pb::Template,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Template, Status> {
        if let Some(made) = self.templates.records().previous_result(request.as_ref()).await? {
            return Ok(made);
        }
        let tenant = template.tenant.clone();
        let first = self.templates.create(template, request.clone());
        let create = async { Ok(first.await?) };
        let (records, request) = (self.templates.records(), request.as_ref());
        let take_back = |created: pb::Template| async move {
            Ok(records.take_back(&created.id, request, |_| false).await?)
        };
        self.tenants
            .create("template.tenant", &tenant, IfUnanswered::TakeBack, create, take_back)
            .await
    }

    /// Passes unless instances refer to the template `id`, or machines whose clean-up it is.
    async fn check_unused(&self, id: TemplateId) -> Result<(), Status> {
        let id = id.to_string();
        let name = self.templates.records().require(&id).await?.name;
        let instances = self.occupancy.users_of(&id).await.map_err(unknown_use)?;
        let instances = instances.into_iter().map(|instance| format!("instance {instance}"));
        let machines = self.machines_cleaned_by(&id).await.map_err(unknown_use)?;
        let users: Vec<_> = instances.chain(machines).collect();
        if users.is_empty() {
            return Ok(());
        }
        let (shown, others) = users.split_at(users.len().min(MAX_SHOWN_USERS));
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "template {name} is used by {}{more}: delete it with --force if it is not needed",
            shown.join(", ")
        );
        Err(status::failed_precondition("IN_USE", &format!("template/{id}"), text))
    }

    /// Returns the machines whose policy has the template `id` for their clean-up, as people call them.
    async fn machines_cleaned_by(&self, id: &str) -> Result<Vec<String>, Status> {
        let (mut users, mut page_token) = (Vec::new(), String::new());
        loop {
            let page_size = MACHINES_PER_PAGE;
            let request = hw::ListHardwareRequest {
                page_size,
                page_token,
                ..hw::ListHardwareRequest::default()
            };
            let page = runtime::call(self.hardware.clone(), request).await?;
            let uses = |machine: &hw::Hardware| {
                machine.policy.as_ref().is_some_and(|policy| policy.deprovision_template_id == id)
            };
            let name = |machine: hw::Hardware| match machine.name.is_empty() {
                true => format!("hardware {}", machine.id),
                false => format!("hardware {}", machine.name),
            };
            users.extend(page.hardware.into_iter().filter(uses).map(name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(users);
            }
        }
    }

    /// Returns the first template that one of `selectors` selects and a caller limited to `tenant` may see.
    pub(super) async fn find(
        &self,
        selectors: &[Selector],
        tenant: Option<&TenantName>,
    ) -> Result<pb::Template, records::Error> {
        for selector in selectors {
            match self.templates.records().select(selector).await {
                Ok(template) if template.is_visible_to(tenant) => return Ok(template),
                Ok(_) | Err(records::Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // The last one has the name that was asked for.
        let missing = selectors.last().map(|selector| selector.missing("template"));
        missing.map_or_else(|| Err(Violations::single("by", "is missing").into()), Err)
    }

    /// Passes if a caller limited to `tenant` may change the template `id`: the site's are only readable.
    async fn check_owner(&self, id: TemplateId, tenant: Option<&TenantName>) -> Result<(), Status> {
        let Some(tenant) = tenant else { return Ok(()) };
        let found = self.find(&[Selector::Id(id.to_string())], Some(tenant)).await?;
        match found.tenant == tenant.as_str() {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("template {id} belongs to the site"))),
        }
    }
}

/// The status if a service does not say whether a template is used.
fn unknown_use(status: Status) -> Status {
    let text = format!("it is not known whether the template is used: {}", status.message());
    Status::unavailable(text)
}

/// Gives `template` to the `tenant` of its creator, if there is one. Another tenant is refused.
fn take_tenant(template: &mut pb::Template, tenant: Option<&TenantName>) -> Result<(), Violations> {
    let Some(tenant) = tenant else { return Ok(()) };
    if !template.tenant.is_empty() && template.tenant != tenant.as_str() {
        return Err(Violations::single("template.tenant", "is not the tenant of the caller"));
    }
    template.tenant = tenant.to_string();
    Ok(())
}

/// Returns what selects the requested template, in the order of precedence: a name is that of the tenant's own template, else
/// that of the site's.
fn selectors(
    request: pb::GetTemplateRequest,
    tenant: Option<&TenantName>,
) -> Result<Vec<Selector>, Violations> {
    use pb::get_template_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(text)) => {
            Ok(vec![Selector::Id(Violations::parse::<TemplateId>("id", &text)?.to_string())])
        }
        Some(By::Name(name)) => {
            let own = tenant.map(|tenant| format!("{tenant}/{name}"));
            let names = own.into_iter().chain([name]);
            Ok(names.map(|name| Selector::Index("template-name", name)).collect())
        }
    }
}
