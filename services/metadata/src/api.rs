//! The gRPC API of the metadata service.

use std::sync::Arc;

use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::metadata_service_server::{MetadataService, MetadataServiceServer};
use tonic::{Request, Response, Status};

use crate::http::Service;

/// The API over a `Service`.
#[derive(Clone, Debug)]
pub struct Api(pub Arc<Service>);

impl Api {
    /// Returns the service for a tonic router.
    pub fn into_service(self) -> MetadataServiceServer<Self> {
        MetadataServiceServer::new(self)
    }
}

impl MetadataService for Api {
    async fn explain_metadata(
        &self,
        request: Request<pb::ExplainMetadataRequest>,
    ) -> Result<Response<pb::ExplainMetadataResponse>, Status> {
        self.0.explain(request.into_inner()).await.map(Response::new)
    }
}
