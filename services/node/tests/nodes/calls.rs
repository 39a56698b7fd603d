//! Calls: made once, by whatever process has the stream, or refused.

use std::sync::Arc;
use std::time::Duration;

use runtime::Clock;
use store::memory::MemoryStore;
use store::{ScopedStore, Store};
use tinwright::HardwareId;
use tinwright::node::v1::CallNodeRequest;
use tinwright::node::v1::NodeCallResult;
use tinwright::node::v1::connect_request::Message as Up;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::support::{Replica, begin, manual, mounts, request, result, soon};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// Returns the keys of calls that are passed on.
async fn forwarded(store: &Arc<dyn Store>) -> Vec<String> {
    let store = ScopedStore::new(store.clone(), "node");
    let page = store.list("call/", "", 100).await.unwrap();
    page.pairs.into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn a_call_that_reaches_the_process_without_the_stream_is_made_by_the_other_one() {
    let (store, machine) = (memory(), HardwareId::new());
    let first = Replica::start(&store, "a", &Clock::system()).await;
    let second = Replica::start(&store, "b", &Clock::system()).await;
    let mut agent = second.connect(machine).await;
    for n in 1..4 {
        let calling = begin(first.operator("anna"), request(machine, ""));
        let call = agent.next_call().await;
        agent.answer(&call, n).await;
        assert_eq!(result(calling).await.unwrap(), mounts(n));
    }
    assert_eq!(forwarded(&store).await, [""; 0]);
}

#[tokio::test]
async fn a_node_without_a_stream_is_refused_and_does_not_get_the_call_later() {
    let (store, machine) = (memory(), HardwareId::new());
    let replica = Replica::start(&store, "a", &Clock::system()).await;
    let unknown = result(begin(replica.operator("anna"), request(machine, ""))).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    drop(replica.connect(machine).await);
    replica.until(machine, |node| !node.connected).await;
    let refused = result(begin(replica.operator("anna"), request(machine, ""))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "NODE_NOT_CONNECTED");
    let mut agent = replica.connect(machine).await;
    let calling = begin(replica.operator("anna"), request(machine, ""));
    let call = agent.next_call().await;
    agent.answer(&call, 7).await;
    assert_eq!(
        result(calling).await.unwrap(),
        mounts(7),
        "it is the first call that the node gets"
    );
}

/// The process that had the stream is gone, and its record is still there.
#[tokio::test]
async fn a_call_that_no_process_takes_is_refused_within_a_second_and_taken_back() {
    let (store, machine, clock) = (memory(), HardwareId::new(), manual());
    let left = Replica::start(&store, "gone", &Clock::system()).await;
    let agent = left.connect(machine).await;
    let snapshot = ScopedStore::new(store.clone(), "node");
    let key = format!("node/{machine}");
    let record = snapshot.get(&key).await.unwrap().unwrap().value;
    drop((agent, left));
    let present = Replica::start(&store, "present", &clock).await;
    present.until(machine, |node| !node.connected).await;
    // As a process that was killed leaves it.
    let write = store::Write::Put(key, record);
    snapshot.write_all(&[write]).await.unwrap();
    let calling = begin(present.operator("anna"), request(machine, ""));
    let posted = async {
        while forwarded(&store).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon(posted).await;
    clock.advance(Duration::from_millis(899));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!calling.is_finished(), "a process may still take it");
    clock.advance(Duration::from_millis(1));
    let refused = result(calling).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "NODE_NOT_CONNECTED");
    assert_eq!(forwarded(&store).await, [""; 0]);
}

#[tokio::test]
async fn a_call_whose_stream_is_cut_comes_again_with_its_id_by_the_next_stream() {
    for other_process in [false, true] {
        let (store, machine) = (memory(), HardwareId::new());
        let first = Replica::start(&store, "a", &Clock::system()).await;
        let second = Replica::start(&store, "b", &Clock::system()).await;
        let mut agent = first.connect(machine).await;
        let calling = begin(first.operator("anna"), request(machine, "once"));
        let call = agent.next_call().await;
        drop(agent);
        let mut agent = if other_process { &second } else { &first }.connect(machine).await;
        let again = agent.next_call().await;
        assert_eq!(again.call_id, call.call_id, "the node has the result by this id");
        agent.answer(&again, 3).await;
        assert_eq!(result(calling).await.unwrap(), mounts(3));
    }
}

#[tokio::test]
async fn a_call_that_was_passed_on_comes_again_when_the_stream_there_is_cut() {
    let (store, machine) = (memory(), HardwareId::new());
    let first = Replica::start(&store, "a", &Clock::system()).await;
    let second = Replica::start(&store, "b", &Clock::system()).await;
    let mut agent = second.connect(machine).await;
    let calling = begin(first.operator("anna"), request(machine, "once"));
    let call = agent.next_call().await;
    drop(agent);
    let mut agent = first.connect(machine).await;
    let again = agent.next_call().await;
    assert_eq!(again.call_id, call.call_id);
    agent.answer(&again, 4).await;
    assert_eq!(result(calling).await.unwrap(), mounts(4));
}

#[tokio::test]
async fn an_id_is_the_same_call_for_one_caller_and_another_one_for_others() {
    let (store, machine) = (memory(), HardwareId::new());
    let replica = Replica::start(&store, "a", &Clock::system()).await;
    let mut agent = replica.connect(machine).await;
    let mut ids = Vec::new();
    for caller in ["anna", "anna", "bert"] {
        let calling = begin(replica.operator(caller), request(machine, "x"));
        let call = agent.next_call().await;
        agent.answer(&call, 1).await;
        result(calling).await.unwrap();
        ids.push(call.call_id);
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    let calling = begin(replica.operator("anna"), request(machine, "x"));
    let call_id = agent.next_call().await.call_id;
    let reused = NodeCallResult { call_id, result: None, id_reused: true };
    agent.send(Up::Result(reused)).await;
    let refused = result(calling).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(refused.message(), "call id x was used for another call");
}

#[tokio::test]
async fn a_call_without_a_result_ends_after_28_seconds() {
    let (store, machine, clock) = (memory(), HardwareId::new(), manual());
    let replica = Replica::start(&store, "a", &clock).await;
    let mut agent = replica.connect(machine).await;
    let calling = begin(replica.operator("anna"), request(machine, ""));
    let call = agent.next_call().await;
    assert_eq!(call.timeout.unwrap().seconds, 28);
    clock.advance(Duration::from_millis(27_999));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!calling.is_finished());
    clock.advance(Duration::from_millis(1));
    assert_eq!(result(calling).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn without_a_name_the_only_node_is_meant() {
    let store = memory();
    let replica = Replica::start(&store, "a", &Clock::system()).await;
    let unnamed = || CallNodeRequest { node_id: String::new(), ..request(HardwareId::new(), "") };
    let none = result(begin(replica.operator("anna"), unnamed())).await.unwrap_err();
    assert_eq!((none.code(), none.message()), (Code::NotFound, "no node has connected yet"));
    let machine = HardwareId::new();
    let mut agent = replica.connect(machine).await;
    let name = format!("n-{}", &machine.to_string()[..4]);
    for node_id in [String::new(), name.clone()] {
        let calling = begin(replica.operator("anna"), CallNodeRequest { node_id, ..unnamed() });
        let call = agent.next_call().await;
        agent.answer(&call, 1).await;
        result(calling).await.unwrap();
    }
    // Ids of one moment begin alike, and so do the names made of them.
    let _other = replica.connect(HardwareId::new()).await;
    for (node_id, reason) in [(String::new(), "SEVERAL_NODES"), (name, "NAME_NOT_UNIQUE")] {
        let request = CallNodeRequest { node_id, ..unnamed() };
        let refused = result(begin(replica.operator("anna"), request)).await.unwrap_err();
        assert_eq!(refused.get_details_error_info().unwrap().reason, reason);
    }
}
