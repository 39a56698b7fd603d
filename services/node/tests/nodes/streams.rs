//! Streams of agents: which are accepted, and what is recorded of them.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use store::Store;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::node::v1::connect_request::Message as Up;
use tinwright::node::v1::get_node_request::By as GetBy;
use tinwright::node::v1::{
    AgentHello, ContainerStatus, DeleteNodeRequest, GetNodeRequest, NodeObservation, NodeState,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::site::Site;
use super::support::{Replica, manual};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

#[tokio::test]
async fn a_later_boot_ends_the_stream_of_an_earlier_one_at_each_process() {
    let (store, machine) = (memory(), HardwareId::new());
    let site = Site::default();
    let first = Replica::start_at(&site, &store, "a", &Clock::system()).await;
    let second = Replica::start_at(&site, &store, "b", &Clock::system()).await;
    site.begin_epoch(machine);
    let mut old = first.try_connect(machine, "boot-1", 1).await.unwrap();
    let other = second.try_connect(machine, "boot-2", 1).await;
    assert_eq!(other.err().unwrap().code(), Code::PermissionDenied, "a boot has its own epoch");
    site.begin_epoch(machine);
    let new = second.try_connect(machine, "boot-2", 2).await.unwrap();
    assert_eq!(old.ended().await.code(), Code::Unavailable);
    let replaced = first.try_connect(machine, "boot-1", 2).await;
    assert_eq!(replaced.err().unwrap().code(), Code::PermissionDenied);
    let node = first.until(machine, |node| node.boot_id == "boot-2").await;
    assert_eq!((node.connections.len(), node.boot_epoch), (1, 2));
    drop(new);
}

#[tokio::test]
async fn only_an_identity_of_the_present_boot_epoch_connects() {
    let (store, machine, site) = (memory(), HardwareId::new(), Site::default());
    let replica = Replica::start_at(&site, &store, "a", &Clock::system()).await;
    for _ in 0..3 {
        site.begin_epoch(machine);
    }
    for epoch in [0, 2, 4] {
        let refused = replica.try_connect(machine, "boot-1", epoch).await;
        assert_eq!(refused.err().unwrap().code(), Code::PermissionDenied, "{epoch}");
    }
    for (failure, code) in [
        (Status::unavailable("no leader"), Code::Unavailable),
        (Status::unimplemented("an older version"), Code::Unavailable),
        (Status::not_found("no record"), Code::NotFound),
    ] {
        site.state().epoch_failures.push_back(failure);
        let refused = replica.try_connect(machine, "boot-1", 3).await;
        assert_eq!(refused.err().unwrap().code(), code);
    }
    let by = Some(GetBy::Id(machine.to_string()));
    let none = replica.operator("anna").get_node(GetNodeRequest { by }).await;
    assert_eq!(none.unwrap_err().code(), Code::NotFound, "nothing is recorded of them");
    let _agent = replica.try_connect(machine, "boot-1", 3).await.unwrap();
}

#[tokio::test]
async fn the_first_message_and_only_the_first_is_a_hello() {
    let (store, machine) = (memory(), HardwareId::new());
    let replica = Replica::start(&store, "a", &Clock::system()).await;
    for boot in ["", "with space", &"x".repeat(65)] {
        let refused = replica.try_connect(machine, boot, 0).await;
        assert_eq!(refused.err().unwrap().code(), Code::InvalidArgument, "{boot}");
    }
    let mut agent = replica.connect(machine).await;
    agent.send(Up::Hello(AgentHello::default())).await;
    assert_eq!(agent.ended().await.code(), Code::Unavailable);
    replica.until(machine, |node| !node.connected).await;
}

#[tokio::test]
async fn what_an_agent_observes_is_recorded_and_a_node_is_forgotten_when_it_is_away() {
    let (store, machine) = (memory(), HardwareId::new());
    let replica = Replica::start(&store, "a", &Clock::system()).await;
    let agent = replica.connect(machine).await;
    let container = ContainerStatus { id: 4, name: "os".into(), ..ContainerStatus::default() };
    let observation = NodeObservation {
        state: NodeState::Unassigned.into(),
        containers: vec![container],
        ..NodeObservation::default()
    };
    agent.send(Up::Observation(observation.clone())).await;
    let node = replica.until(machine, |node| node.observation.is_some()).await;
    assert_eq!((node.observation, node.connected), (Some(observation), true));
    let delete = DeleteNodeRequest { id: machine.to_string(), revision: 0 };
    let mut operator = replica.operator("anna");
    let refused = operator.delete_node(delete.clone()).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "NODE_CONNECTED");
    drop(agent);
    replica.until(machine, |node| !node.connected).await;
    operator.delete_node(delete.clone()).await.unwrap();
    assert_eq!(operator.delete_node(delete).await.unwrap_err().code(), Code::NotFound);
    let by = Some(GetBy::Id(machine.to_string()));
    let gone = operator.get_node(GetNodeRequest { by }).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
}

#[tokio::test]
async fn the_connections_of_a_process_that_is_gone_are_removed_after_half_a_minute() {
    let (store, machine, clock) = (memory(), HardwareId::new(), manual());
    let killed = Replica::start(&store, "killed", &manual()).await;
    let agent = killed.connect(machine).await;
    let present = Replica::start(&store, "present", &clock).await;
    present.until(machine, |node| node.connected).await;
    // Its clock stands still, so it does not show that it is there.
    let removed = present.until(machine, |node| !node.connected);
    let passing = async {
        for _ in 0..6000 {
            clock.advance(Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let node = tokio::select! {
        node = removed => node,
        () = passing => panic!("it is not removed"),
    };
    assert!(node.connections.is_empty());
    drop((agent, killed));
}
