//! Templates over gRPC.

use runtime::access;
use store::records::requests::IdempotentRequest;
use store::records::{self, Selector};
use store::serving;
use tinwright::common::v1::View;
use tinwright::status::Violations;
use tinwright::tenant::OfTenant as _;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_server::TemplateService;
use tinwright::{Object as _, TemplateId, TenantName};
use tonic::{Request, Response, Status};

use super::Api;

#[tonic::async_trait]
impl TemplateService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_template(
        &self,
        request: Request<pb::CreateTemplateRequest>,
    ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
        let (caller, tenant) = (access::request_scope(&request), access::tenant(&request).cloned());
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let mut template = Violations::require("template", request.template)?;
        if let Some(tenant) = tenant {
            take_tenant(&mut template, &tenant)?;
        }
        let created = self.templates.records().previous_result(idempotent.as_ref()).await?;
        let template = match created {
            Some(created) => created,
            None => {
                let create = self.clone().create(template, idempotent);
                serving::to_the_end(Box::pin(create)).await?
            }
        };
        Ok(Response::new(pb::CreateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_template(
        &self,
        request: Request<pb::GetTemplateRequest>,
    ) -> Result<Response<pb::GetTemplateResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let selectors = selectors(request.into_inner(), tenant.as_ref())?;
        let template = self.find(&selectors, tenant.as_ref()).await?;
        Ok(Response::new(pb::GetTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_templates(
        &self,
        request: Request<pb::ListTemplatesRequest>,
    ) -> Result<Response<pb::ListTemplatesResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let of_caller = access::tenant(&request).cloned();
        let pb::ListTemplatesRequest { page_size, page_token, labels, view: _, tenant } =
            request.into_inner();
        let keep = |template: &pb::Template| {
            template.is_visible_to(of_caller.as_ref())
                && template.has_labels(&labels)
                && (tenant.is_empty() || template.tenant == tenant)
        };
        let show = |template| visible(template, view);
        let (templates, next_page_token) =
            serving::list(&self.mirrors.0, page_size, &page_token, keep, show).await?;
        Ok(Response::new(pb::ListTemplatesResponse { templates, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
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
        let pb::DeleteTemplateRequest { id, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        self.check_owner(id, tenant.as_ref()).await?;
        self.templates.delete(id, revision).await?;
        Ok(Response::new(pb::DeleteTemplateResponse {}))
    }

    type WatchTemplatesStream = serving::Events<pb::WatchTemplatesResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_templates(
        &self,
        request: Request<pb::WatchTemplatesRequest>,
    ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let show = move |template| visible(template, view);
        let filter = serving::filter_of_tenant(access::tenant(&request));
        let (mirror, id) = (&self.mirrors.0, &request.get_ref().id);
        serving::watch_filtered(mirror, id, &self.stop, filter, show)
    }
}

impl Api {
    /// Creates `template`, whose tenant has to exist.
    async fn create(
        self,
        template: pb::Template,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Template, Status> {
        let tenant = template.tenant.clone();
        let first = self.templates.create(template, request.clone());
        let create = async { Ok(first.await?) };
        let (records, request) = (self.templates.records(), request.as_ref());
        let take_back = |created: pb::Template| async move {
            Ok(records.take_back(&created.id, request, |_| false).await?)
        };
        self.tenants.create("template.tenant", &tenant, create, take_back).await
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
        match found.tenant() == tenant.as_str() {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("template {id} belongs to the site"))),
        }
    }
}

/// Gives `template` to the tenant of its creator. Another tenant is refused.
fn take_tenant(template: &mut pb::Template, tenant: &TenantName) -> Result<(), Violations> {
    if !template.tenant.is_empty() && template.tenant != tenant.as_str() {
        return Err(Violations::single("template.tenant", "is not the tenant of the caller"));
    }
    template.tenant = tenant.to_string();
    Ok(())
}

/// The part of a template that `view` shows.
fn visible(template: pb::Template, view: View) -> pb::Template {
    match view {
        View::Full => template,
        View::Unspecified | View::Basic => pb::Template { data: String::new(), ..template },
    }
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
