//! The calls on machines without a record.

use store::serving;
use tinwright::Mac;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::unknown_machine_service_server::UnknownMachineService;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;

impl UnknownMachineService for Api {
    async fn get_unknown_machine(
        &self,
        request: Request<pb::GetUnknownMachineRequest>,
    ) -> Result<Response<pb::GetUnknownMachineResponse>, Status> {
        let mac: Mac = Violations::parse("mac", &request.into_inner().mac)?;
        let found = self.unknown.records.require(&mac.to_string()).await?;
        Ok(Response::new(pb::GetUnknownMachineResponse { unknown_machine: Some(found) }))
    }

    async fn list_unknown_machines(
        &self,
        request: Request<pb::ListUnknownMachinesRequest>,
    ) -> Result<Response<pb::ListUnknownMachinesResponse>, Status> {
        nouns::list(&self.unknown_mirror, request).await
    }

    #[tracing::instrument(skip_all, fields(mac = request.get_ref().mac))]
    async fn delete_unknown_machine(
        &self,
        request: Request<pb::DeleteUnknownMachineRequest>,
    ) -> Result<Response<pb::DeleteUnknownMachineResponse>, Status> {
        let pb::DeleteUnknownMachineRequest { mac, revision } = request.into_inner();
        self.unknown.delete(Violations::parse("mac", &mac)?, revision).await?;
        Ok(Response::new(pb::DeleteUnknownMachineResponse {}))
    }

    type WatchUnknownMachinesStream = serving::Events<pb::WatchUnknownMachinesResponse>;

    async fn watch_unknown_machines(
        &self,
        request: Request<pb::WatchUnknownMachinesRequest>,
    ) -> Result<Response<Self::WatchUnknownMachinesStream>, Status> {
        nouns::watch(&self.unknown_mirror, &self.stop, request)
    }

    async fn record_unknown_machines(
        &self,
        request: Request<pb::RecordUnknownMachinesRequest>,
    ) -> Result<Response<pb::RecordUnknownMachinesResponse>, Status> {
        self.unknown.record(request.into_inner().unknown_machines).await?;
        Ok(Response::new(pb::RecordUnknownMachinesResponse {}))
    }
}
