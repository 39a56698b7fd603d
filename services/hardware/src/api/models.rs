//! The calls on models.

use std::collections::BTreeMap;

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::model_service_server::ModelService;
use tinwright::status::Violations;
use tinwright::{HardwareId, ModelId, Object as _, TenantName, check};
use tonic::{Request, Response, Status};

use super::{Api, missing_selector};
use crate::matching::matches;
use crate::models::Wanted;
use crate::{models, tenant};

#[tonic::async_trait]
impl ModelService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_model(
        &self,
        request: Request<pb::CreateModelRequest>,
    ) -> Result<Response<pb::CreateModelResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let model = Violations::require("model", request.model)?;
        let model = self.models.create(model, idempotent).await?;
        Ok(Response::new(pb::CreateModelResponse { model: Some(model) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_model(
        &self,
        request: Request<pb::GetModelRequest>,
    ) -> Result<Response<pb::GetModelResponse>, Status> {
        use pb::get_model_request::By;
        let tenant = access::tenant(&request).cloned();
        let selector = match request.into_inner().by {
            None => return Err(missing_selector().into()),
            Some(By::Id(text)) => {
                Selector::Id(Violations::parse::<ModelId>("id", &text)?.to_string())
            }
            Some(By::Name(text)) => {
                let name = check::label(&text).map_err(|e| Violations::single("name", e))?;
                Selector::Index(models::NAME_INDEX, name)
            }
        };
        let model = self.models.records().select(&selector).await?;
        let model = Some(show(tenant.as_ref(), model));
        Ok(Response::new(pb::GetModelResponse { model }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_models(
        &self,
        request: Request<pb::ListModelsRequest>,
    ) -> Result<Response<pb::ListModelsResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ListModelsRequest { page_size, page_token, labels, count_machines, hardware_id } =
            request.into_inner();
        if !hardware_id.is_empty() && tenant.is_some() {
            let text = "a caller with a tenant does not see the models of a machine";
            return Err(Status::permission_denied(text));
        }
        let machine = match hardware_id.as_str() {
            "" => None,
            id => {
                let id: HardwareId = Violations::parse("hardware_id", id)?;
                Some(self.records.records().require(&id.to_string()).await?)
            }
        };
        if count_machines && tenant.is_some() {
            let text = "a caller with a tenant does not see the numbers of the site's machines";
            return Err(Status::permission_denied(text));
        }
        let keep = |model: &pb::Model| match &tenant {
            // A tenant does not see the labels, and so does not learn them from the filter.
            Some(_) => labels.is_empty(),
            None => {
                model.has_labels(&labels)
                    && machine.as_ref().is_none_or(|machine| matches(model, machine))
            }
        };
        let (models, next_page_token) =
            serving::list(&self.model_mirror, page_size, &page_token, keep, |model| model).await?;
        let counts = match count_machines && !models.is_empty() {
            true => self.models.count(&models, &self.peers.occupied_machines(None).await?).await?,
            false => BTreeMap::new(),
        };
        let models = models.into_iter().map(|model| show(tenant.as_ref(), model)).collect();
        Ok(Response::new(pb::ListModelsResponse { models, next_page_token, counts }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_model_offers(
        &self,
        request: Request<pb::ListModelOffersRequest>,
    ) -> Result<Response<pb::ListModelOffersResponse>, Status> {
        let is_tenant = access::tenant(&request).is_some();
        let pb::ListModelOffersRequest { model_id, location_id } = request.into_inner();
        let wanted = Wanted { model_id: &model_id, location_id: &location_id };
        let mut offers =
            self.models.offers(wanted, &self.peers.occupied_machines(None).await?).await?;
        if is_tenant {
            // A tenant does not learn the numbers of the site's machines.
            offers.iter_mut().for_each(|offer| (offer.machines, offer.free) = (0, 0));
        }
        Ok(Response::new(pb::ListModelOffersResponse { offers }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_model(
        &self,
        request: Request<pb::UpdateModelRequest>,
    ) -> Result<Response<pb::UpdateModelResponse>, Status> {
        let pb::UpdateModelRequest { model, update_mask } = request.into_inner();
        let mut update = Violations::require("model", model)?;
        update.id = Violations::parse::<ModelId>("model.id", &update.id)?.to_string();
        let model = self.models.update(update, &update_mask.unwrap_or_default().paths).await?;
        Ok(Response::new(pb::UpdateModelResponse { model: Some(model) }))
    }

    #[tracing::instrument(skip_all, fields(model.id = request.get_ref().id))]
    async fn delete_model(
        &self,
        request: Request<pb::DeleteModelRequest>,
    ) -> Result<Response<pb::DeleteModelResponse>, Status> {
        let pb::DeleteModelRequest { id, revision } = request.into_inner();
        self.models.delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteModelResponse {}))
    }

    type WatchModelsStream = serving::Events<pb::WatchModelsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_models(
        &self,
        request: Request<pb::WatchModelsRequest>,
    ) -> Result<Response<Self::WatchModelsStream>, Status> {
        serving::watch_by_id(&self.model_mirror, &request.get_ref().id, &self.stop, |it| it)
    }
}

/// Returns what a caller sees of `model`, who may be limited to the objects of `tenant`.
fn show(tenant: Option<&TenantName>, model: pb::Model) -> pb::Model {
    if tenant.is_some() { tenant::model_view(model) } else { model }
}
