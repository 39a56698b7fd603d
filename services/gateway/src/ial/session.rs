//! The client of a call, and the services as this client. The catalogue is read as the gateway itself: all clients see one, each its own
//! locations.

use std::sync::Arc;

use tinwright::client::Call;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as inst;
use tonic::{Code as Grpc, Status};

use super::catalogue::Scope;
use super::fault::{Code, Fault};
use super::requests::Named;
use super::status;
use super::wrapper::PlatformId;
use crate::errors::reason;
use crate::{Backend, Client, ClientChannel};

/// The label of instances with the platform's hub.
pub(super) const HUB: &str = "ial/hub";
/// The annotation of instances with the name of the location.
pub(super) const LOCATION: &str = "ial/location_id";
/// The annotation of instances with the name of the model.
pub(super) const MODEL: &str = "ial/model_id";
/// The annotation of instances with the name of the zone, if the platform chose it.
pub(super) const ZONE: &str = "ial/zone_id";

/// What there is of an instance.
#[derive(Debug)]
pub(super) enum Found {
    /// Its record.
    Instance(Box<inst::Instance>),
    /// Nothing is left of it but that it was deleted.
    Gone,
    /// It is not one of the client's, or never was.
    Nothing,
}

/// The client of a call.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    hub: Option<PlatformId>,
    backend: Arc<Backend>,
}

impl Session {
    /// A session for a hub that the client may act for.
    pub(super) fn new(
        client: Client,
        hub: Option<PlatformId>,
        backend: Arc<Backend>,
    ) -> Result<Self, Fault> {
        let hubs = client.credential.as_ref().map(|it| &it.hubs[..]).unwrap_or_default();
        let is_allowed =
            hubs.iter().any(|it| Some(it.as_str()) == hub.as_ref().map(PlatformId::as_str));
        if !hubs.is_empty() && !is_allowed {
            let fault = Fault::new(Code::Permissions, "the credentials are not for this hub");
            return Err(fault.at("/auth/cycle/hub_id"));
        }
        Ok(Self { client, hub, backend })
    }

    /// Returns the tenant; empty for the site.
    pub(super) fn tenant(&self) -> String {
        self.client.caller.tenant().map(|tenant| tenant.as_str().to_owned()).unwrap_or_default()
    }

    /// Returns the hub; empty if the request names none.
    pub(super) fn hub(&self) -> String {
        self.hub.as_ref().map(|hub| hub.as_str().to_owned()).unwrap_or_default()
    }

    /// Returns the part of the catalogue that the client sees.
    pub(super) fn scope(&self) -> Scope {
        let locations = self.client.credential.as_ref().map(|it| it.locations.clone());
        Scope {
            locations: locations.unwrap_or_default(),
            has_boot_url: !self.boot_url().is_empty(),
        }
    }

    /// Returns the URL of the client's own boot script; empty for that of the location.
    pub(super) fn boot_url(&self) -> String {
        self.client.credential.as_ref().map(|it| it.boot_url.clone()).unwrap_or_default()
    }

    /// Returns a channel for a call as the client.
    pub(super) fn channel<R: Call>(&self) -> ClientChannel {
        self.client.channel(&self.backend.of_call::<R>())
    }

    /// Makes a call as the client.
    pub(super) async fn call<R: Call>(&self, request: R) -> Result<R::Response, Status> {
        runtime::call(self.channel::<R>(), request).await
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns the location `name`, if the client may use it.
    pub(super) async fn location(&self, name: &str) -> Result<hw::Location, Fault> {
        let unknown = unknown_location(name);
        let by = Some(hw::get_location_request::By::Name(name.to_owned()));
        let found = self.backend.call(hw::GetLocationRequest { by }).await;
        let found =
            found.map_err(|error| status::fault(&error, &unknown).at("/request/location_id"))?;
        let location = found.location.ok_or(unknown)?;
        self.check_scope(location.id.clone(), &location.name)?;
        Ok(location)
    }

    /// Returns the model `name`.
    pub(super) async fn model(&self, name: &str) -> Result<hw::Model, Fault> {
        let unknown = Fault::new(Code::Model, "unknown model").at("/request/model_id");
        let by = Some(hw::get_model_request::By::Name(name.to_owned()));
        let found = self.backend.call(hw::GetModelRequest { by }).await;
        let found =
            found.map_err(|error| status::fault(&error, &unknown).at("/request/model_id"))?;
        found.model.ok_or(unknown)
    }

    /// Returns the machine that a request names, also a deleted one. It belongs to the tenant, the hub, and is what the request says.
    pub(super) async fn server(&self, named: &Named) -> Result<inst::Instance, Fault> {
        let gone = || Fault::new(Code::InvalidState, "the machine was decommissioned");
        self.server_unless_gone(named).await?.ok_or_else(gone)
    }

    /// Does the same; returns none for a machine that was deleted so long ago that nothing is left of it.
    pub(super) async fn server_unless_gone(
        &self,
        named: &Named,
    ) -> Result<Option<inst::Instance>, Fault> {
        let by = Some(inst::get_instance_request::By::Id(named.server.clone()));
        let instance = match self.find(by).await? {
            Found::Instance(instance) => *instance,
            Found::Gone => return Ok(None),
            Found::Nothing => return Err(unknown_server()),
        };
        self.check_hub(&instance.labels)?;
        let note = |key: &str| instance.annotations.get(key).map(String::as_str);
        let same = [
            ("location_id", note(LOCATION), Some(named.location.as_str())),
            ("model_id", note(MODEL), named.model.as_deref().or(note(MODEL))),
        ];
        if let Some((key, ..)) = same.into_iter().find(|(_, stored, sent)| stored != sent) {
            return Err(mismatch().at(format!("/request/{key}")));
        }
        self.check_zone(&instance, named.zone.as_deref()).await?;
        let id = instance.placement.as_ref().map(|placement| placement.location_id.clone());
        self.check_scope(id.unwrap_or_default(), &named.location)?;
        Ok(Some(instance))
    }

    /// Refuses another zone than that of the instance's machine. A request that names none is for
    /// any.
    pub(super) async fn check_zone(
        &self,
        instance: &inst::Instance,
        sent: Option<&str>,
    ) -> Result<(), Fault> {
        match sent {
            Some(zone) if !self.is_in_zone(instance, zone).await? => {
                Err(mismatch().at("/request/zone_id"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// True if the instance was ordered in `zone`, or, if it was ordered in any, got a machine
    /// there. Also true if the client cannot see the machine any more.
    pub(super) async fn is_in_zone(
        &self,
        instance: &inst::Instance,
        zone: &str,
    ) -> Result<bool, Fault> {
        if let Some(ordered) = instance.annotations.get(ZONE) {
            return Ok(ordered == zone);
        }
        let by = Some(hw::get_hardware_request::By::Id(instance.hardware_id.clone()));
        match self.call(hw::GetHardwareRequest { by, ..Default::default() }).await {
            Ok(found) => Ok(found.hardware.is_none_or(|machine| machine.zone == zone)),
            Err(error) if error.code() == Grpc::NotFound => Ok(true),
            Err(error) => Err(status::fault(&error, &unknown_server())),
        }
    }

    /// True if the client may order machines.
    pub(super) fn may_order(&self) -> bool {
        let order = <inst::CreateInstanceRequest as Call>::PATH;
        runtime::access::admits(order, Some(&self.client.caller))
    }

    /// Refuses a location, by id and name, that the client may not use.
    pub(super) fn check_scope(&self, id: String, name: &str) -> Result<(), Fault> {
        if self.scope().has(&hw::Location { id, name: name.into(), ..hw::Location::default() }) {
            return Ok(());
        }
        let fault = Fault::new(Code::Permissions, "the credentials are not for this location");
        Err(fault.at("/request/location_id"))
    }

    /// Finds an instance that this door made for the tenant, also a deleted one.
    pub(super) async fn find(
        &self,
        by: Option<inst::get_instance_request::By>,
    ) -> Result<Found, Fault> {
        let request = inst::GetInstanceRequest { by, show_deleted: true, ..Default::default() };
        let found = match self.call(request).await {
            Ok(found) => found.instance,
            // An id that no instance can have is as unknown as any other.
            Err(error) if error.code() == Grpc::InvalidArgument => None,
            Err(error) if error.code() == Grpc::NotFound => {
                let is_gone = reason(&error).as_deref() == Some("INSTANCE_DELETED");
                return Ok(if is_gone { Found::Gone } else { Found::Nothing });
            }
            Err(error) => return Err(status::fault(&error, &unknown_server())),
        };
        // A client of the site also reads the instances of tenants. They are not its own.
        let is_own = |it: &inst::Instance| {
            it.tenant == self.tenant() && it.annotations.contains_key(LOCATION)
        };
        let own = found.filter(is_own).map(Box::new);
        Ok(own.map_or(Found::Nothing, Found::Instance))
    }

    /// Refuses an object of another hub. A request that names no hub is for all of the client's.
    pub(super) fn check_hub(
        &self,
        labels: &std::collections::BTreeMap<String, String>,
    ) -> Result<(), Fault> {
        let stored = labels.get(HUB).map(String::as_str).unwrap_or_default();
        match &self.hub {
            Some(hub) if hub.as_str() != stored => {
                Err(Fault::new(Code::WrongHub, "the object belongs to another hub"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The fault of a location that there is not.
pub(super) fn unknown_location(name: &str) -> Fault {
    let fault = Fault::new(Code::Location, "unknown location").at("/request/location_id");
    fault.with_detail(format!("location {name:?} is not offered by this integration"))
}

/// The fault of a server that there is not, or that is another tenant's.
pub(super) fn unknown_server() -> Fault {
    Fault::new(Code::Server, "unknown server").at("/request/server_id")
}

/// The fault of a request that contradicts what is stored.
pub(super) fn mismatch() -> Fault {
    Fault::new(Code::Mismatch, "the request contradicts the stored object")
}
