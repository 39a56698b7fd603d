//! Templates over gRPC.

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::common::v1::View;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_server::TemplateService;
use tinwright::{Object as _, TemplateId};
use tonic::{Request, Response, Status};

use super::Api;

#[tonic::async_trait]
impl TemplateService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_template(
        &self,
        request: Request<pb::CreateTemplateRequest>,
    ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
        let request = request.into_inner();
        let idempotent = serving::idempotent(&request.request_id, &request)?;
        let template = Violations::require("template", request.template)?;
        let template = self.templates.create(template, idempotent).await?;
        Ok(Response::new(pb::CreateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_template(
        &self,
        request: Request<pb::GetTemplateRequest>,
    ) -> Result<Response<pb::GetTemplateResponse>, Status> {
        let selector = selector(request.into_inner())?;
        let template = self.templates.records().select(&selector).await?;
        Ok(Response::new(pb::GetTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_templates(
        &self,
        request: Request<pb::ListTemplatesRequest>,
    ) -> Result<Response<pb::ListTemplatesResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let pb::ListTemplatesRequest { page_size, page_token, labels, view: _ } =
            request.into_inner();
        let keep = |template: &pb::Template| template.has_labels(&labels);
        let show = |template| visible(template, view);
        let records = self.templates.records();
        let (templates, next_page_token) =
            serving::list(records, page_size, &page_token, keep, show).await?;
        Ok(Response::new(pb::ListTemplatesResponse { templates, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_template(
        &self,
        request: Request<pb::UpdateTemplateRequest>,
    ) -> Result<Response<pb::UpdateTemplateResponse>, Status> {
        let pb::UpdateTemplateRequest { template, update_mask } = request.into_inner();
        let mut update = Violations::require("template", template)?;
        update.id = Violations::parse::<TemplateId>("template.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let template = self.templates.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all, fields(template.id = request.get_ref().id))]
    async fn delete_template(
        &self,
        request: Request<pb::DeleteTemplateRequest>,
    ) -> Result<Response<pb::DeleteTemplateResponse>, Status> {
        let pb::DeleteTemplateRequest { id, revision } = request.into_inner();
        self.templates.delete(Violations::parse("id", &id)?, revision).await?;
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
        serving::watch_by_id(&self.mirrors.0, &request.get_ref().id, &self.stop, show)
    }
}

/// The part of a template that `view` shows.
fn visible(template: pb::Template, view: View) -> pb::Template {
    match view {
        View::Full => template,
        View::Unspecified | View::Basic => pb::Template { data: String::new(), ..template },
    }
}

fn selector(request: pb::GetTemplateRequest) -> Result<Selector, Violations> {
    use pb::get_template_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(text)) => {
            Ok(Selector::Id(Violations::parse::<TemplateId>("id", &text)?.to_string()))
        }
        Some(By::Name(name)) => Ok(Selector::Index("template-name", name)),
    }
}
