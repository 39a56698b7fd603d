//! A fake of the hardware service: machines by id.

use std::pin::Pin;

use futures_util::Stream;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_server::HardwareService;
use tinwright::status;
use tonic::{Request, Response, Status};

/// Knows every machine except `NO_MACHINE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FakeHardware;

/// The id of no machine.
pub(crate) const NO_MACHINE: &str = "00000000-0000-7000-8000-00000000dead";

type Answer<T> = Result<Response<T>, Status>;

fn closed<T>() -> Answer<T> {
    Err(Status::unimplemented("not part of the fake"))
}

#[tonic::async_trait]
impl HardwareService for FakeHardware {
    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Answer<pb::GetHardwareResponse> {
        let Some(pb::get_hardware_request::By::Id(id)) = request.into_inner().by else {
            return closed();
        };
        if id == NO_MACHINE {
            return Err(status::not_found("hardware", &id));
        }
        let interface = pb::Interface { mac: "02:00:00:00:00:01".into(), ..Default::default() };
        let hardware = pb::Hardware { id, interfaces: vec![interface], ..Default::default() };
        Ok(Response::new(pb::GetHardwareResponse { hardware: Some(hardware) }))
    }

    async fn create_hardware(
        &self,
        _: Request<pb::CreateHardwareRequest>,
    ) -> Answer<pb::CreateHardwareResponse> {
        closed()
    }

    async fn list_hardware(
        &self,
        _: Request<pb::ListHardwareRequest>,
    ) -> Answer<pb::ListHardwareResponse> {
        closed()
    }

    async fn update_hardware(
        &self,
        _: Request<pb::UpdateHardwareRequest>,
    ) -> Answer<pb::UpdateHardwareResponse> {
        closed()
    }

    async fn set_hardware_state(
        &self,
        _: Request<pb::SetHardwareStateRequest>,
    ) -> Answer<pb::SetHardwareStateResponse> {
        closed()
    }

    async fn delete_hardware(
        &self,
        _: Request<pb::DeleteHardwareRequest>,
    ) -> Answer<pb::DeleteHardwareResponse> {
        closed()
    }

    type WatchHardwareStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchHardwareResponse, Status>> + Send>>;

    async fn watch_hardware(
        &self,
        _: Request<pb::WatchHardwareRequest>,
    ) -> Answer<Self::WatchHardwareStream> {
        closed()
    }
}
