//! The identity of a node's boot, while the agent of the boot before is connected.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use runtime::authority::SiteAuthority;
use runtime::boot_token::{BootTokens, Purpose};
use tinwright::node::v1::node_service_client::NodeServiceClient;
use tinwright::node::v1::{AgentHello, ConnectRequest, connect_request::Message};
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{Holder, RedeemRequest, RedeemResponse};
use tonic::{Code, Status};

use super::agent::{Agent, Machine};
use super::site::Site;
use crate::support::until;

/// Redeems a token of the machine `id`, made now, in the boot `boot_id`.
async fn redeem(site: &Site, id: &str, boot_id: &str) -> Result<RedeemResponse, Status> {
    let authority = SiteAuthority::open(&site.server.secrets()).unwrap();
    let tokens = BootTokens::new(authority.keys().clone()).unwrap();
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let id = id.parse().unwrap();
    let boot_token = tokens.mint(Purpose::Node, id, 0, address, SystemTime::now()).unwrap();
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let holder = Some(Holder { boot_id: boot_id.into(), process_id: "p".into() });
    let mut client = WorkerServiceClient::new(site.server.channel(None).await);
    let request = RedeemRequest { boot_token, csr, holder };
    client.redeem(request).await.map(tonic::Response::into_inner)
}

/// A container on the node may imitate firmware, get a script with a token, and make up a boot id.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_no_other_identity_while_its_agent_is_connected() {
    let mut site = Site::start(1, None).await;
    let id = site.machines[0].id.clone();
    let refused = redeem(&site, &id, "made-up").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("another boot"), "{refused}");
    site.agents[0] = None;
    let is_gone = async || site.nodes().await[0]["connected"] != true;
    until(is_gone, "the stream has ended").await;
    let redeemed = redeem(&site, &id, "next-boot").await.unwrap();
    assert_eq!(redeemed.hardware_id, id);
    // The identity of the boot before was of epoch 0.
    let former = connect(&site, &site.machines[0]).await.unwrap_err();
    assert_eq!(former.code(), Code::PermissionDenied, "{former}");
}

/// Connects with an identity of boot epoch 0.
async fn connect(site: &Site, machine: &Arc<Machine>) -> Result<(), Status> {
    let channel = site.server.channel_of(Some(Agent::caller(machine))).await;
    let hello = AgentHello { boot_id: "b".into(), ..AgentHello::default() };
    let hello = ConnectRequest { message: Some(Message::Hello(hello)) };
    let requests = tokio_stream::iter([hello]);
    NodeServiceClient::new(channel).connect(requests).await.map(drop)
}
