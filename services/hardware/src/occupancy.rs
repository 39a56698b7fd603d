//! The one question asked of the instance service: does anything occupy this machine?

use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{GetInstanceRequest, get_instance_request::By};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Knows who to ask.
#[derive(Clone, Debug)]
pub struct Occupancy {
    instance: InstanceServiceClient<Channel>,
}

impl Occupancy {
    /// Asks over `instance`.
    pub fn new(instance: Channel) -> Self {
        Self { instance: InstanceServiceClient::new(instance) }
    }

    /// The id of the instance that occupies the machine `id`, if one does.
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
