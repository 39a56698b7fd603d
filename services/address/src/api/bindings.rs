//! The calls on bindings of locations. A caller with a tenant finds those of its tenant and those of the site.

use runtime::access;
use store::records::{self, Kind as _};
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::location_binding_service_server::LocationBindingService;
use tinwright::status::Violations;
use tinwright::{LocationBindingId, LocationId, Object as _, TenantName};
use tonic::{Request, Response, Status};

use super::Api;
use crate::Error;
use crate::bindings::BindingKind;

#[tonic::async_trait]
impl LocationBindingService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_location_binding(
        &self,
        request: Request<pb::CreateLocationBindingRequest>,
    ) -> Result<Response<pb::CreateLocationBindingResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let binding = Violations::require("location_binding", request.location_binding)?;
        let location: LocationId =
            Violations::parse("location_binding.location_id", &binding.location_id)?;
        let location = self.machines.require_location(location).await?;
        self.tenants
            .require("location_binding.tenant", &binding.tenant)
            .await
            .map_err(Error::from)?;
        let taken = |error| with_location_name(error, &location, &binding);
        let created = self.grants.bindings().create(binding.clone(), idempotent).await;
        let location_binding = Some(created.map_err(taken)?);
        Ok(Response::new(pb::CreateLocationBindingResponse { location_binding }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_location_binding(
        &self,
        request: Request<pb::GetLocationBindingRequest>,
    ) -> Result<Response<pb::GetLocationBindingResponse>, Status> {
        use pb::get_location_binding_request::By;
        let tenant = access::tenant(&request).cloned();
        let bindings = self.grants.bindings();
        let found = match request.into_inner().by {
            None => {
                return Err(Violations::single("by", "is missing: set id or in_force").into());
            }
            Some(By::Id(id)) => {
                let id: LocationBindingId = Violations::parse("id", &id)?;
                bindings.records().require(&id.to_string()).await?
            }
            Some(By::InForce(caller)) => {
                let location = Violations::parse("in_force.location_id", &caller.location_id)?;
                let of = tenant.as_ref().map_or(caller.tenant.as_str(), TenantName::as_str);
                bindings.in_force(location, of, &caller.group).await?
            }
        };
        if !is_visible(&found, tenant.as_ref()) {
            let (noun, name) = (BindingKind::NOUN, found.id);
            return Err(records::Error::Missing { noun, name }.into());
        }
        let location_binding = Some(show(found, tenant.as_ref()));
        Ok(Response::new(pb::GetLocationBindingResponse { location_binding }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_location_bindings(
        &self,
        request: Request<pb::ListLocationBindingsRequest>,
    ) -> Result<Response<pb::ListLocationBindingsResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ListLocationBindingsRequest { page_size, page_token, labels, location_id } =
            request.into_inner();
        let keep = |binding: &pb::LocationBinding| {
            is_visible(binding, tenant.as_ref())
                // A tenant does not see the labels, and so does not learn them from the filter.
                && (labels.is_empty() || tenant.is_none() && binding.has_labels(&labels))
                && (location_id.is_empty() || location_id == binding.location_id)
        };
        let show = |binding| show(binding, tenant.as_ref());
        let (location_bindings, next_page_token) =
            serving::list(&self.binding_mirror, page_size, &page_token, keep, show).await?;
        Ok(Response::new(pb::ListLocationBindingsResponse { location_bindings, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_location_binding(
        &self,
        request: Request<pb::UpdateLocationBindingRequest>,
    ) -> Result<Response<pb::UpdateLocationBindingResponse>, Status> {
        let pb::UpdateLocationBindingRequest { location_binding, update_mask } =
            request.into_inner();
        let mut update = Violations::require("location_binding", location_binding)?;
        let id: LocationBindingId = Violations::parse("location_binding.id", &update.id)?;
        update.id = id.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let location_binding = Some(self.grants.bindings().update(update, &paths).await?);
        Ok(Response::new(pb::UpdateLocationBindingResponse { location_binding }))
    }

    #[tracing::instrument(skip_all)]
    async fn delete_location_binding(
        &self,
        request: Request<pb::DeleteLocationBindingRequest>,
    ) -> Result<Response<pb::DeleteLocationBindingResponse>, Status> {
        let pb::DeleteLocationBindingRequest { id, revision } = request.into_inner();
        self.grants.bindings().delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteLocationBindingResponse {}))
    }

    type WatchLocationBindingsStream = serving::Events<pb::WatchLocationBindingsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_location_bindings(
        &self,
        request: Request<pb::WatchLocationBindingsRequest>,
    ) -> Result<Response<Self::WatchLocationBindingsStream>, Status> {
        serving::watch_by_id(&self.binding_mirror, &request.get_ref().id, &self.stop, |it| it)
    }
}

/// Returns `error` of the creation of `binding`. If the location, which has the name `location`, has such a binding, the text says so: the
/// index has ids.
fn with_location_name(error: Error, location: &str, binding: &pb::LocationBinding) -> Error {
    let Error::Records(records::Error::Taken { by: id, .. }) = error else { return error };
    let of = match (binding.tenant.as_str(), binding.group.as_str()) {
        ("", _) => String::new(),
        (tenant, "") => format!(" for tenant {tenant}"),
        (tenant, group) => format!(" for group {group} of tenant {tenant}"),
    };
    let text = format!("location {location} has a binding{of} already: {id}");
    Error::Overlaps { noun: BindingKind::NOUN, id, text }
}

/// True if a caller who may be limited to the objects of `tenant` sees `binding`.
fn is_visible(binding: &pb::LocationBinding, tenant: Option<&TenantName>) -> bool {
    tenant.is_none_or(|tenant| binding.tenant.is_empty() || binding.tenant == tenant.as_str())
}

/// Returns what such a caller sees of it: not the site's labels.
fn show(mut binding: pb::LocationBinding, tenant: Option<&TenantName>) -> pb::LocationBinding {
    if tenant.is_some() {
        binding.labels.clear();
    }
    binding
}
