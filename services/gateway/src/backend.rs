//! The services behind the gateway.

use tonic::transport::Channel;

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
    /// Boots and leases.
    pub netboot: Channel,
    /// Explanations of metadata.
    pub metadata: Channel,
}

impl Backend {
    /// Returns the channel to the service that serves the proto package `package`, such as `tinwright.instance.v1`.
    pub fn of_package(&self, package: &str) -> Option<&Channel> {
        match package.strip_prefix("tinwright.")?.strip_suffix(".v1")? {
            "address" => Some(&self.address),
            "event" | "identity" => Some(&self.identity),
            "hardware" => Some(&self.hardware),
            "instance" => Some(&self.instance),
            "metadata" => Some(&self.metadata),
            "netboot" => Some(&self.netboot),
            "power" => Some(&self.power),
            "workflow" => Some(&self.workflow),
            _ => None,
        }
    }
}
