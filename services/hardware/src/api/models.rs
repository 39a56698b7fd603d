//! The calls on models.

use nouns::Noun as _;
use runtime::access;
use store::serving;
use tinwright::HardwareId;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::model_service_server::ModelService;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;
use crate::matching::matches;
use crate::models::Wanted;

impl ModelService for Api {
    async fn create_model(
        &self,
        request: Request<pb::CreateModelRequest>,
    ) -> Result<Response<pb::CreateModelResponse>, Status> {
        nouns::create(&self.models, request).await
    }

    async fn get_model(
        &self,
        request: Request<pb::GetModelRequest>,
    ) -> Result<Response<pb::GetModelResponse>, Status> {
        nouns::get(self.models.records(), request).await
    }

    async fn list_models(
        &self,
        request: Request<pb::ListModelsRequest>,
    ) -> Result<Response<pb::ListModelsResponse>, Status> {
        let is_tenant = access::tenant(&request).is_some();
        let pb::ListModelsRequest { count_machines, hardware_id, .. } = request.get_ref().clone();
        check_tenant_list(is_tenant, &hardware_id, count_machines)?;
        let is_of_machine = self.models_of(&hardware_id).await?;
        let mut response =
            nouns::list_where(&self.model_mirror, request, |_, model| is_of_machine(model)).await?;
        if count_machines {
            self.count(response.get_mut()).await?;
        }
        Ok(response)
    }

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

    async fn update_model(
        &self,
        request: Request<pb::UpdateModelRequest>,
    ) -> Result<Response<pb::UpdateModelResponse>, Status> {
        nouns::update(&self.models, request).await
    }

    #[tracing::instrument(skip_all, fields(model.id = request.get_ref().id))]
    async fn delete_model(
        &self,
        request: Request<pb::DeleteModelRequest>,
    ) -> Result<Response<pb::DeleteModelResponse>, Status> {
        nouns::delete(&self.models, request).await
    }

    type WatchModelsStream = serving::Events<pb::WatchModelsResponse>;

    async fn watch_models(
        &self,
        request: Request<pb::WatchModelsRequest>,
    ) -> Result<Response<Self::WatchModelsStream>, Status> {
        nouns::watch(&self.model_mirror, &self.stop, request)
    }
}

impl Api {
    /// Returns the filter for the models of the machine `id`; all models pass if it is empty.
    async fn models_of(&self, id: &str) -> Result<impl Fn(&pb::Model) -> bool + use<>, Status> {
        let machine = match id {
            "" => None,
            id => {
                let id: HardwareId = Violations::parse("hardware_id", id)?;
                Some(self.records.records.require(&id.to_string()).await?)
            }
        };
        Ok(move |model: &pb::Model| machine.as_ref().is_none_or(|it| matches(model, it)))
    }

    /// Adds the numbers of machines to a page of models.
    async fn count(&self, page: &mut pb::ListModelsResponse) -> Result<(), Status> {
        if !page.models.is_empty() {
            let occupied = self.peers.occupied_machines(None).await?;
            page.counts = self.models.count(&page.models, &occupied).await?;
        }
        Ok(())
    }
}

/// Passes unless a caller with a tenant asks for what the site's machines are.
fn check_tenant_list(is_tenant: bool, hardware_id: &str, counts: bool) -> Result<(), Status> {
    if is_tenant && !hardware_id.is_empty() {
        let text = "a caller with a tenant does not see the models of a machine";
        return Err(Status::permission_denied(text));
    }
    if is_tenant && counts {
        let text = "a caller with a tenant does not see the numbers of the site's machines";
        return Err(Status::permission_denied(text));
    }
    Ok(())
}
