//! The agents of nodes that are connected, as the node service has them.
//!
//! While an agent is connected, its boot goes on: whoever presents a token of another boot of the node imitates one.

use std::time::Duration;

use runtime::Channel;
use tinwright::node::v1::get_node_request::By;
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{GetNodeRequest, Node};
use tinwright::{BootId, HardwareId};
use tonic::{Code, Status};

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the node service, if the site has one.
#[derive(Clone, Debug)]
pub(crate) struct NodeAgents(Option<NodeServiceClient<Channel>>);

impl NodeAgents {
    /// Asks the node service at `channel`.
    pub(crate) fn new(channel: Option<Channel>) -> Self {
        Self(channel.map(NodeServiceClient::new))
    }

    /// Refuses `boot` of `machine` with `UNAVAILABLE` while the agent of another boot is connected, or while the node service does not answer:
    /// the stream of a boot that has ended is closed within half a minute.
    pub(crate) async fn check(&self, machine: HardwareId, boot: &BootId) -> Result<(), Status> {
        let Some(client) = &self.0 else { return Ok(()) };
        let request = GetNodeRequest { by: Some(By::Id(machine.to_string())) };
        let found = tokio::time::timeout(TIMEOUT, client.clone().get_node(request)).await;
        match found {
            Ok(Ok(found)) => check_boot(&found.into_inner().node.unwrap_or_default(), boot),
            Ok(Err(status)) if status.code() == Code::NotFound => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Status::unavailable(
                "the node service does not say whether an agent of the node is connected",
            )),
        }
    }
}

fn check_boot(node: &Node, boot: &BootId) -> Result<(), Status> {
    if !node.connected || node.boot_id == boot.0 {
        return Ok(());
    }
    tracing::error!(
        node.id,
        node.name,
        connected = node.boot_id,
        presented = boot.0,
        "boot token refused: the agent of another boot of the node is connected"
    );
    Err(Status::unavailable("the agent of another boot of the node is connected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_boot_is_refused_and_only_while_an_agent_is_connected() {
        let node = |connected| Node { connected, boot_id: "b1".into(), ..Node::default() };
        assert!(check_boot(&node(true), &"b1".into()).is_ok());
        assert!(check_boot(&node(false), &"b2".into()).is_ok());
        let refused = check_boot(&node(true), &"b2".into()).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn a_site_without_a_node_service_has_no_agents() {
        assert!(NodeAgents::new(None).check(HardwareId::new(), &"b".into()).await.is_ok());
    }
}
