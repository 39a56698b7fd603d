//! The services behind the gateway.

use runtime::Channel;

/// A channel to each service. The gateway is a caller of the role `door` there.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Subnets, ranges, grants and bindings.
    pub address: Channel,
    /// Machines, locations, models and unknown machines.
    pub hardware: Channel,
    /// Tenants, identities, and the events of the site.
    pub identity: Channel,
    /// Instances.
    pub instance: Channel,
    /// Templates and workflows.
    pub workflow: Channel,
    /// BMCs and power jobs.
    pub power: Channel,
    /// Nodes and their stacks.
    pub node: Channel,
    /// Boots and leases.
    pub netboot: Channel,
    /// Explanations of metadata.
    pub metadata: Channel,
}

impl Backend {
    /// Returns the backend whose services are all at `channel`.
    pub fn at_one(channel: impl Into<Channel>) -> Self {
        let channel = channel.into();
        let one = || channel.clone();
        Self {
            address: one(),
            hardware: one(),
            identity: one(),
            instance: one(),
            workflow: one(),
            power: one(),
            node: one(),
            netboot: one(),
            metadata: one(),
        }
    }

    /// Returns the channel to the service that serves the proto package `package`, such as `tinwright.instance.v1`.
    pub fn of_package(&self, package: &str) -> Option<&Channel> {
        match package.strip_prefix("tinwright.")?.strip_suffix(".v1")? {
            "address" => Some(&self.address),
            "event" | "identity" => Some(&self.identity),
            "hardware" => Some(&self.hardware),
            "instance" => Some(&self.instance),
            "metadata" => Some(&self.metadata),
            "netboot" => Some(&self.netboot),
            "node" => Some(&self.node),
            "power" => Some(&self.power),
            "workflow" => Some(&self.workflow),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tinwright::hardware::v1::ListHardwareRequest;
    use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
    use tokio::net::TcpListener;
    use tonic::Code;
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn a_server_that_closes_connections_is_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let _closing = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let channel = Endpoint::from_shared(url).unwrap().connect_lazy();
        let mut client = HardwareServiceClient::new(Channel::from(channel));
        let listed = client.list_hardware(ListHardwareRequest::default()).await;
        let status = listed.unwrap_err();
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
    }
}
