//! A site in memory: machines, locations and templates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::hardware::v1::location_service_server::{LocationService, LocationServiceServer};
use tinwright::secret::Secrets as _;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_server::{TemplateService, TemplateServiceServer};
use tinwright::{HardwareId, LocationId, TemplateId, field_mask};
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::tests::{fake, tinwright};

/// The stored objects, by id. The machine `taken` cannot be created.
#[derive(Clone, Default)]
pub(in crate::tests) struct Site(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    machines: BTreeMap<String, hw::Hardware>,
    locations: BTreeMap<String, hw::Location>,
    templates: BTreeMap<String, wf::Template>,
    writes: usize,
}

impl Site {
    /// Runs `tinwright` with `arguments`. Returns its output and its error.
    pub(in crate::tests) async fn run(&self, arguments: &str) -> (String, Result<(), String>) {
        let server = Server::builder()
            .add_service(HardwareServiceServer::new(self.clone()))
            .add_service(LocationServiceServer::new(self.clone()))
            .add_service(TemplateServiceServer::new(self.clone()));
        tinwright(arguments, server).await
    }

    /// Returns the number of changes since the last call.
    pub(in crate::tests) fn writes(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Returns the machine `name`.
    pub(super) fn machine(&self, name: &str) -> hw::Hardware {
        let stored = self.0.lock().unwrap();
        stored.machines.values().find(|it| it.name == name).unwrap().clone()
    }
}

fn missing() -> Status {
    Status::not_found("nothing")
}

mod machines {
    use tinwright::hardware::v1 as pb;

    use super::*;

    fake! {
        impl HardwareService for Site {
            type WatchHardwareStream = Empty<Result<pb::WatchHardwareResponse, Status>>;

            async fn create_hardware(
                &self,
                request: Request<pb::CreateHardwareRequest>,
            ) -> Result<Response<pb::CreateHardwareResponse>, Status> {
                let mut machine = request.into_inner().hardware.unwrap();
                if machine.name == "taken" {
                    return Err(Status::already_exists("hardware.name: is taken"));
                }
                machine.id = HardwareId::new().to_string();
                machine.revision = 1;
                let mut stored = self.0.lock().unwrap();
                stored.writes += 1;
                stored.machines.insert(machine.id.clone(), machine.clone());
                Ok(Response::new(pb::CreateHardwareResponse { hardware: Some(machine.without_secrets()) }))
            }

            async fn get_hardware(
                &self,
                request: Request<pb::GetHardwareRequest>,
            ) -> Result<Response<pb::GetHardwareResponse>, Status> {
                use pb::get_hardware_request::By;
                let pb::GetHardwareRequest { by, view } = request.into_inner();
                let stored = self.0.lock().unwrap();
                let found = stored.machines.values().find(|it| match by.as_ref().unwrap() {
                    By::Id(id) => it.id == *id,
                    By::Name(name) => it.name == *name,
                    By::Mac(mac) => it.interfaces.iter().any(|it| it.mac == *mac),
                    By::Address(_) => false,
                });
                let view = tinwright::common::v1::View::try_from(view).unwrap();
                let hardware = Some(found.ok_or_else(missing)?.clone().in_view(view));
                Ok(Response::new(pb::GetHardwareResponse { hardware }))
            }

            async fn list_hardware(
                &self,
                _: Request<pb::ListHardwareRequest>,
            ) -> Result<Response<pb::ListHardwareResponse>, Status> {
                let stored = self.0.lock().unwrap();
                let machines = stored.machines.values().cloned();
                let hardware = machines.map(|it| it.without_secrets()).collect();
                Ok(Response::new(pb::ListHardwareResponse { hardware, ..Default::default() }))
            }

            async fn update_hardware(
                &self,
                request: Request<pb::UpdateHardwareRequest>,
            ) -> Result<Response<pb::UpdateHardwareResponse>, Status> {
                let pb::UpdateHardwareRequest { hardware, update_mask, .. } = request.into_inner();
                let update = hardware.unwrap();
                let mut stored = self.0.lock().unwrap();
                let old = stored.machines.get(&update.id).ok_or_else(missing)?.clone();
                let paths = update_mask.unwrap_or_default().paths;
                let mut new = field_mask::merge(&old, &update, &paths).unwrap();
                new.revision += 1;
                stored.writes += 1;
                stored.machines.insert(new.id.clone(), new.clone());
                Ok(Response::new(pb::UpdateHardwareResponse { hardware: Some(new.without_secrets()) }))
            }

            async fn delete_hardware(
                &self,
                request: Request<pb::DeleteHardwareRequest>,
            ) -> Result<Response<pb::DeleteHardwareResponse>, Status> {
                let mut stored = self.0.lock().unwrap();
                let machine = stored.machines.get(&request.into_inner().id).ok_or_else(missing)?.clone();
                if machine.protect {
                    return Err(Status::failed_precondition("it is protected"));
                }
                stored.machines.remove(&machine.id);
                Ok(Response::new(pb::DeleteHardwareResponse {}))
            }

            async fn watch_hardware(
                &self,
                _: Request<pb::WatchHardwareRequest>,
            ) -> Result<Response<Self::WatchHardwareStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            set_hardware_state: SetHardwareStateRequest => SetHardwareStateResponse,
            record_inventory: RecordInventoryRequest => RecordInventoryResponse,
            record_bmc_inventory: RecordBmcInventoryRequest => RecordBmcInventoryResponse,
            check_bmc_identity: CheckBmcIdentityRequest => CheckBmcIdentityResponse,
            enrol_machine: EnrolMachineRequest => EnrolMachineResponse,
        }
    }
}

mod locations {
    use tinwright::hardware::v1 as pb;

    use super::*;

    fake! {
        impl LocationService for Site {
            type WatchLocationsStream = Empty<Result<pb::WatchLocationsResponse, Status>>;

            async fn create_location(
                &self,
                request: Request<pb::CreateLocationRequest>,
            ) -> Result<Response<pb::CreateLocationResponse>, Status> {
                let mut location = request.into_inner().location.unwrap();
                location.id = LocationId::new().to_string();
                let mut stored = self.0.lock().unwrap();
                stored.writes += 1;
                stored.locations.insert(location.id.clone(), location.clone());
                Ok(Response::new(pb::CreateLocationResponse { location: Some(location) }))
            }

            async fn get_location(
                &self,
                request: Request<pb::GetLocationRequest>,
            ) -> Result<Response<pb::GetLocationResponse>, Status> {
                use pb::get_location_request::By;
                let by = request.into_inner().by.unwrap();
                let stored = self.0.lock().unwrap();
                let found = stored.locations.values().find(|it| match &by {
                    By::Id(id) => it.id == *id,
                    By::Name(name) => it.name == *name,
                });
                let location = Some(found.ok_or_else(missing)?.clone());
                Ok(Response::new(pb::GetLocationResponse { location }))
            }

            async fn list_locations(
                &self,
                _: Request<pb::ListLocationsRequest>,
            ) -> Result<Response<pb::ListLocationsResponse>, Status> {
                let locations = self.0.lock().unwrap().locations.values().cloned().collect();
                Ok(Response::new(pb::ListLocationsResponse { locations, ..Default::default() }))
            }

            async fn watch_locations(
                &self,
                _: Request<pb::WatchLocationsRequest>,
            ) -> Result<Response<Self::WatchLocationsStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            update_location: UpdateLocationRequest => UpdateLocationResponse,
            delete_location: DeleteLocationRequest => DeleteLocationResponse,
        }
    }
}

mod templates {
    use tinwright::workflow::v1 as pb;

    use super::*;

    fake! {
        impl TemplateService for Site {
            type WatchTemplatesStream = Empty<Result<pb::WatchTemplatesResponse, Status>>;

            async fn create_template(
                &self,
                request: Request<pb::CreateTemplateRequest>,
            ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
                let mut template = request.into_inner().template.unwrap();
                template.id = TemplateId::new().to_string();
                let mut stored = self.0.lock().unwrap();
                stored.writes += 1;
                stored.templates.insert(template.id.clone(), template.clone());
                Ok(Response::new(pb::CreateTemplateResponse { template: Some(template) }))
            }

            async fn get_template(
                &self,
                request: Request<pb::GetTemplateRequest>,
            ) -> Result<Response<pb::GetTemplateResponse>, Status> {
                use pb::get_template_request::By;
                let by = request.into_inner().by.unwrap();
                let stored = self.0.lock().unwrap();
                let found = stored.templates.values().find(|it| match &by {
                    By::Id(id) => it.id == *id,
                    By::Name(name) => it.name == *name,
                });
                let template = Some(found.ok_or_else(missing)?.clone());
                Ok(Response::new(pb::GetTemplateResponse { template }))
            }

            async fn watch_templates(
                &self,
                _: Request<pb::WatchTemplatesRequest>,
            ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            list_templates: ListTemplatesRequest => ListTemplatesResponse,
            update_template: UpdateTemplateRequest => UpdateTemplateResponse,
            delete_template: DeleteTemplateRequest => DeleteTemplateResponse,
            render_template: RenderTemplateRequest => RenderTemplateResponse,
        }
    }
}
