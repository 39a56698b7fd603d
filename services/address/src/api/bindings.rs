//! The calls on bindings of locations. A caller with a tenant finds those of its tenant and those of the site.

use nouns::{Edit as _, Noun as _, Served as _, Viewer};
use runtime::access;
use store::records::requests::IdempotentRequest;
use store::records::{self, Kind as _, Selector};
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::location_binding_service_server::LocationBindingService;
use tinwright::common::v1::View;
use tinwright::status::Violations;
use tinwright::{LocationBindingId, LocationId, TenantName};
use tonic::{Request, Response, Status};

use super::Api;
use crate::Error;
use crate::bindings::BindingKind;

impl LocationBindingService for Api {
    async fn create_location_binding(
        &self,
        request: Request<pb::CreateLocationBindingRequest>,
    ) -> Result<Response<pb::CreateLocationBindingResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let binding = Violations::require("location_binding", request.location_binding)?;
        let location_binding = Some(self.create_binding(binding, idempotent).await?);
        Ok(Response::new(pb::CreateLocationBindingResponse { location_binding }))
    }

    async fn get_location_binding(
        &self,
        request: Request<pb::GetLocationBindingRequest>,
    ) -> Result<Response<pb::GetLocationBindingResponse>, Status> {
        let viewer = Viewer::of(&request, View::Basic)?;
        let found = self.find_binding(request.into_inner(), &viewer).await?;
        if !BindingKind::is_visible(&viewer, &found) {
            return Err(Selector::Id(found.id).missing(BindingKind::NOUN).into());
        }
        let location_binding = Some(BindingKind::show(&viewer, found));
        Ok(Response::new(pb::GetLocationBindingResponse { location_binding }))
    }

    async fn list_location_bindings(
        &self,
        request: Request<pb::ListLocationBindingsRequest>,
    ) -> Result<Response<pb::ListLocationBindingsResponse>, Status> {
        nouns::list_where(
            &self.binding_mirror,
            request,
            |request, binding: &pb::LocationBinding| {
                request.location_id.is_empty() || request.location_id == binding.location_id
            },
        )
        .await
    }

    async fn update_location_binding(
        &self,
        request: Request<pb::UpdateLocationBindingRequest>,
    ) -> Result<Response<pb::UpdateLocationBindingResponse>, Status> {
        nouns::update(&self.grants.bindings, request).await
    }

    async fn delete_location_binding(
        &self,
        request: Request<pb::DeleteLocationBindingRequest>,
    ) -> Result<Response<pb::DeleteLocationBindingResponse>, Status> {
        nouns::delete(&self.grants.bindings, request).await
    }

    type WatchLocationBindingsStream = serving::Events<pb::WatchLocationBindingsResponse>;

    async fn watch_location_bindings(
        &self,
        request: Request<pb::WatchLocationBindingsRequest>,
    ) -> Result<Response<Self::WatchLocationBindingsStream>, Status> {
        nouns::watch(&self.binding_mirror, &self.stop, request)
    }
}

impl Api {
    /// Creates `binding`, whose location and tenant have to exist. A repeated `request` returns the
    /// first result.
    async fn create_binding(
        &self,
        binding: pb::LocationBinding,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::LocationBinding, Error> {
        let location: LocationId =
            Violations::parse("location_binding.location_id", &binding.location_id)?;
        let location = self.machines.require_location(location).await?;
        self.tenants.require("location_binding.tenant", &binding.tenant).await?;
        let created = self.grants.bindings.create(binding.clone(), request).await;
        created.map_err(|error| with_location_name(error, &location, &binding))
    }

    /// Returns the binding that `request` names, or the one that is in force for a caller.
    async fn find_binding(
        &self,
        request: pb::GetLocationBindingRequest,
        viewer: &Viewer,
    ) -> Result<pb::LocationBinding, Error> {
        use pb::get_location_binding_request::By;
        let bindings = &self.grants.bindings;
        match request.by {
            None => Err(Violations::single("by", "is missing: set id or in_force").into()),
            Some(By::Id(id)) => {
                let id: LocationBindingId = Violations::parse("id", &id)?;
                Ok(bindings.records().require(&id.to_string()).await?)
            }
            Some(By::InForce(caller)) => {
                let location = Violations::parse("in_force.location_id", &caller.location_id)?;
                let of = viewer.tenant.as_ref().map_or(caller.tenant.as_str(), TenantName::as_str);
                bindings.in_force(location, of, &caller.group).await
            }
        }
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
