//! The instance that occupies a machine, read from the instance service.

use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{GetInstanceRequest, get_instance_request::By};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// A client of the instance service.
#[derive(Clone, Debug)]
pub struct Occupancy {
    instance: InstanceServiceClient<Channel>,
}

impl Occupancy {
    /// A client for the channel `instance`.
    pub fn new(instance: Channel) -> Self {
        Self { instance: InstanceServiceClient::new(instance) }
    }

    /// Returns the id of the instance that occupies the machine `id`, if there is one.
    pub async fn occupant(&self, id: &str) -> Result<Option<String>, Status> {
        let by = Some(By::HardwareId(id.to_owned()));
        let request = GetInstanceRequest { by, ..GetInstanceRequest::default() };
        match self.instance.clone().get_instance(request).await {
            Ok(found) => Ok(found.into_inner().instance.map(|instance| instance.id)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}
