//! What people ask about the metadata service, over gRPC.

use std::sync::Arc;
use std::time::SystemTime;

use tinwright::check;
use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::metadata_service_server::{MetadataService, MetadataServiceServer};
use tinwright::status::{self, Violations};
use tonic::{Request, Response, Status};

use crate::http::{Service, Subject};

/// Explains what `Service` answers.
#[derive(Clone, Debug)]
pub struct Api(Arc<Service>);

impl Api {
    /// An API over the service that answers machines.
    pub fn new(service: Arc<Service>) -> Self {
        Self(service)
    }

    /// As a service for a tonic router.
    pub fn into_service(self) -> MetadataServiceServer<Self> {
        MetadataServiceServer::new(self)
    }
}

#[tonic::async_trait]
impl MetadataService for Api {
    #[tracing::instrument(skip_all)]
    async fn explain_metadata(
        &self,
        request: Request<pb::ExplainMetadataRequest>,
    ) -> Result<Response<pb::ExplainMetadataResponse>, Status> {
        let subject = subject(request.into_inner())?;
        match self.0.explain(&subject, SystemTime::now()).await {
            Some(told) => Ok(Response::new(told)),
            None => Err(status::not_found("machine", &name(&subject))),
        }
    }
}

fn subject(request: pb::ExplainMetadataRequest) -> Result<Subject, Violations> {
    use pb::explain_metadata_request::By;
    let pb::ExplainMetadataRequest { by } = request;
    match by {
        None => Err(Violations::single("by", "is missing: say which machine or address")),
        Some(By::HardwareId(text)) => {
            text.parse().map(Subject::Hardware).map_err(|e| Violations::single("hardware_id", e))
        }
        Some(By::Address(text)) => check::address(&text)
            .map(Subject::Address)
            .map_err(|e| Violations::single("address", e)),
        Some(By::Hostname(text)) => check::hostname(&text)
            .map(Subject::Hostname)
            .map_err(|e| Violations::single("hostname", e)),
    }
}

fn name(subject: &Subject) -> String {
    match subject {
        Subject::Hardware(id) => id.to_string(),
        Subject::Address(address) => address.to_string(),
        Subject::Hostname(name) => name.clone(),
    }
}
