//! Templates over gRPC.

use std::pin::Pin;

use futures_util::Stream;
use runtime::access;
use store::records::requests::IdempotentRequest;
use store::serving;
use tinwright::common::v1::View;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_server::TemplateService;
use tinwright::{TemplateId, check};
use tonic::{Request, Response, Status};

use super::Api;
use crate::templates::{Error, TemplateKey};

#[tonic::async_trait]
impl TemplateService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_template(
        &self,
        request: Request<pb::CreateTemplateRequest>,
    ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
        let request = request.into_inner();
        check::length(&request.request_id, 128).map_err(|e| Violations::single("request_id", e))?;
        let request_key = IdempotentRequest::new(&request.request_id, &request);
        let pb::CreateTemplateRequest { template, request_id: _ } = request;
        let template = self.templates.create(required(template)?, request_key).await?;
        Ok(Response::new(pb::CreateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_template(
        &self,
        request: Request<pb::GetTemplateRequest>,
    ) -> Result<Response<pb::GetTemplateResponse>, Status> {
        let template = self.templates.get(&key(request.into_inner())?).await?;
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
        let size = serving::page_size(page_size)?;
        let listing = self.templates.list(&page_token, size, &labels).await?;
        let templates =
            listing.records.into_iter().map(|template| visible(template, view)).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListTemplatesResponse { templates, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_template(
        &self,
        request: Request<pb::UpdateTemplateRequest>,
    ) -> Result<Response<pb::UpdateTemplateResponse>, Status> {
        let pb::UpdateTemplateRequest { template, update_mask } = request.into_inner();
        let mut update = required(template)?;
        update.id = id("template.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let template = self.templates.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateTemplateResponse { template: Some(template) }))
    }

    #[tracing::instrument(skip_all, fields(template.id = request.get_ref().id))]
    async fn delete_template(
        &self,
        request: Request<pb::DeleteTemplateRequest>,
    ) -> Result<Response<pb::DeleteTemplateResponse>, Status> {
        let pb::DeleteTemplateRequest { id: text, revision } = request.into_inner();
        self.templates.delete(id("id", &text)?, revision).await?;
        Ok(Response::new(pb::DeleteTemplateResponse {}))
    }

    type WatchTemplatesStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchTemplatesResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_templates(
        &self,
        request: Request<pb::WatchTemplatesRequest>,
    ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let watcher = match request.get_ref().id.as_str() {
            "" => self.mirrors.0.watch(),
            one => self.mirrors.0.watch_one(&id("id", one)?.to_string()),
        };
        let events =
            serving::watch(watcher, self.stop.clone(), move |template| visible(template, view));
        Ok(Response::new(Box::pin(events)))
    }
}

/// The part of a template that `view` shows.
fn visible(template: pb::Template, view: View) -> pb::Template {
    match view {
        View::Full => template,
        View::Unspecified | View::Basic => pb::Template { data: String::new(), ..template },
    }
}

fn required(template: Option<pb::Template>) -> Result<pb::Template, Violations> {
    template.ok_or_else(|| Violations::single("template", "is missing"))
}

pub(super) fn id(field: &str, text: &str) -> Result<TemplateId, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

fn key(request: pb::GetTemplateRequest) -> Result<TemplateKey, Violations> {
    use pb::get_template_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(text)) => id("id", &text).map(TemplateKey::Id),
        Some(By::Name(name)) => Ok(TemplateKey::Name(name)),
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Records(error) => error.into(),
        }
    }
}
