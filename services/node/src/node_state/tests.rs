use std::time::Duration;

use proptest::prelude::*;
use tinwright::node::v1::ContainerStatus;

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn hello(boot: &str) -> AgentHello {
    AgentHello { boot_id: boot.into(), process_id: "p".into(), agent_version: "1".into() }
}

fn connect(node: &Node, boot: &str, epoch: u64, server: &str) -> Result<Node, RefusedHello> {
    connected(node.clone(), &hello(boot), epoch, server, at(1))
}

fn node() -> Node {
    let labels = [("rack".to_owned(), "r1".to_owned())].into();
    new_node("n", &Machine { name: "n1".into(), labels }, at(0))
}

fn of_stack(version: i64) -> Assignment {
    let stack = Stack { id: "s".into(), ..Stack::default() };
    Assignment::new("i", &stack, version)
}

fn reports(assignment: i64, state: NodeState, failure: &str) -> NodeObservation {
    NodeObservation {
        assignment,
        stack_id: "s".into(),
        state: state.into(),
        failure: failure.into(),
        ..NodeObservation::default()
    }
}

#[test]
fn a_node_is_connected_while_one_server_has_a_stream() {
    let node = connect(&node(), "b1", 0, "a").unwrap();
    let node = connect(&node, "b1", 0, "b").unwrap();
    let node = connect(&node, "b1", 0, "b").unwrap();
    assert_eq!(node.connections.len(), 2);
    let node = disconnected(node, "a", at(2));
    assert!(node.connected);
    let node = disconnected(node, "b", at(3));
    assert!(!node.connected && node.connections.is_empty());
    assert_eq!(node.last_seen_time, Some(at(3).into()));
    assert_eq!(disconnected(node.clone(), "b", at(4)), node);
}

#[test]
fn a_later_boot_replaces_an_earlier_one_for_good() {
    let node = assigned(node(), of_stack(1), false, at(0));
    let node = connect(&node, "b1", 1, "a").unwrap();
    let node = observed(node, reports(1, NodeState::Running, ""), at(2));
    assert_eq!(node.state(), NodeState::Running);
    assert_eq!(connect(&node, "b2", 1, "b"), Err(RefusedHello::SameEpoch));
    let node = connect(&node, "b2", 2, "b").unwrap();
    assert_eq!((node.state(), node.connections.len()), (NodeState::Applying, 1));
    assert_eq!(connect(&node, "b1", 1, "a"), Err(RefusedHello::Epoch));
    assert_eq!(connect(&node, "b1", 3, "a"), Err(RefusedHello::Boot));
    let mut node = node;
    for boot in 3..20 {
        node = connect(&node, &format!("b{boot}"), boot, "b").unwrap();
    }
    assert_eq!(node.replaced_boot_ids.len(), MAX_REPLACED_BOOTS);
    assert_eq!(node.replaced_boot_ids.last().unwrap(), "b18");
}

#[test]
fn a_boot_begins_with_its_first_hello() {
    let hello_at = |node: &Node, boot: &str, epoch, seconds| {
        connected(node.clone(), &hello(boot), epoch, "a", at(seconds)).unwrap()
    };
    assert_eq!(node().boot_time, None);
    let first = hello_at(&node(), "b1", 1, 5);
    let later = hello_at(&disconnected(first.clone(), "a", at(6)), "b1", 1, 7);
    assert_eq!([first.boot_time, later.boot_time], [Some(at(5).into()); 2]);
    assert_eq!(hello_at(&later, "b2", 2, 8).boot_time, Some(at(8).into()));
}

#[test]
fn the_state_is_that_of_the_latest_assignment() {
    let node = assigned(node(), of_stack(1), false, at(1));
    assert_eq!((node.assignment, node.state()), (1, NodeState::Applying));
    let node = observed(node, reports(1, NodeState::Failed, "no image\n"), at(2));
    assert_eq!((node.state(), node.state_reason.as_str()), (NodeState::Failed, "no image "));
    assert_eq!(node.progress_time, Some(at(2).into()));
    let same = observed(node.clone(), reports(1, NodeState::Failed, "no image\n"), at(3));
    assert_eq!(same, node, "nothing new");
    let node = assigned(node, of_stack(2), false, at(4));
    assert_eq!((node.assignment, node.state()), (2, NodeState::Applying));
    let late = observed(node.clone(), reports(1, NodeState::Running, ""), at(5));
    assert_eq!((late.state(), late.progress_time), (NodeState::Applying, Some(at(4).into())));
    let node = observed(late, reports(2, NodeState::Running, ""), at(6));
    assert_eq!(node.state(), NodeState::Running);
    let again = assigned(node.clone(), of_stack(2), true, at(7));
    assert_eq!((again.assignment, again.state()), (3, NodeState::Applying));
    assert_eq!(assigned(node.clone(), of_stack(2), false, at(7)), node);
}

#[test]
fn a_node_that_never_had_a_stack_keeps_what_it_has_and_one_that_had_is_told_to_remove_it() {
    let none = |reason: &str| Assignment { reason: reason.into(), ..Assignment::default() };
    let node = assigned(node(), none("there is no stack web"), false, at(1));
    assert_eq!((node.assignment, node.state()), (0, NodeState::Unassigned));
    assert_eq!(node.state_reason, "there is no stack web");
    let node = assigned(node, of_stack(1), false, at(1));
    let node = assigned(node, none(""), false, at(2));
    assert_eq!(
        (node.assignment, node.state(), node.state_reason.as_str()),
        (2, NodeState::Unassigned, "")
    );
}

#[test]
fn what_an_agent_sends_is_bounded() {
    let long = "ä".repeat(100_000);
    let container = ContainerStatus { name: long.clone(), ..ContainerStatus::default() };
    let observation = NodeObservation {
        failure: long.clone(),
        stack_id: long.clone(),
        containers: vec![container; 10_000],
        ..NodeObservation::default()
    };
    let hello = AgentHello { boot_id: "b".into(), process_id: long.clone(), agent_version: long };
    let node = connected(node(), &hello, 0, "a", at(0)).unwrap();
    let node = observed(node, observation, at(1));
    assert!(prost::Message::encoded_len(&node) < 200 * 1024);
}

proptest! {
    /// Whatever servers and boots connect and leave: the node is connected exactly while a server has a stream, and no server is listed twice.
    #[test]
    fn connections_are_those_that_did_not_end(
        steps in proptest::collection::vec((0..3usize, 0..3usize, any::<bool>()), 0..40),
    ) {
        let mut node = node();
        for (server, boot, connects) in steps {
            let server = format!("s{server}");
            node = match connects {
                true => {
                    let epoch = u64::try_from(boot).unwrap();
                    connect(&node, &format!("b{boot}"), epoch, &server).unwrap_or(node)
                }
                false => disconnected(node, &server, at(2)),
            };
            let mut servers: Vec<_> = node.connections.iter().map(|it| it.server.clone()).collect();
            servers.sort();
            servers.dedup();
            prop_assert_eq!(servers.len(), node.connections.len());
            prop_assert_eq!(node.connected, !node.connections.is_empty());
            prop_assert!(!node.replaced_boot_ids.contains(&node.boot_id));
        }
    }
}
