//! Containers.

use std::time::Duration;

use tinwright::node::v1::Container;
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{Call, DeleteContainer, ListContainers, SetContainerState};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;
use tokio::time::Instant;

use super::Bench;
use super::requests::*;
use crate::Node;
use crate::kernel::{Exit, KernelErrorKind, StopSignal};

async fn started(bench: &Bench) -> (Node, Container) {
    let node = bench.open().await;
    let c = post_container(&node, running("c", nfs("/export"))).await.unwrap();
    assert_eq!(c.state(), State::Running);
    (node, c)
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_processes_decides_the_state() {
    for (exit, state) in [
        (Exit::Status(0), State::Exited),
        (Exit::Status(3), State::Dead),
        (Exit::Signal(11), State::Dead),
    ] {
        let bench = Bench::new();
        let (node, c) = started(&bench).await;
        bench.kernel.exit(&bench.kernel.live_runs()[0], exit);
        reaches(&node, c.id, state).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_exited_only_after_the_last_process_and_the_synchronization() {
    let bench = Bench::new();
    let (node, c) = started(&bench).await;
    bench.kernel.ignore(StopSignal::Terminate);
    let began = Instant::now();
    assert_eq!(set_state(&node, c.id, State::Exited).await.unwrap().state(), State::Stopping);
    assert_eq!(delete_container(&node, c.id, false).await, Err(Reason::Busy));
    assert_eq!(set_state(&node, c.id, State::Running).await, Err(Reason::Busy));
    assert_eq!(set_state(&node, c.id, State::Exited).await.unwrap().state(), State::Stopping);
    reaches(&node, c.id, State::Exited).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    let operations = bench.kernel.take_operations();
    let position = |name: &str| operations.iter().position(|o| o == name).unwrap();
    assert!(position("terminate") < position("kill") && position("kill") < position("sync"));
    assert_eq!(bench.kernel.live_runs(), []);
}

#[tokio::test(start_paused = true)]
async fn systemd_is_stopped_by_its_own_signal_and_has_more_time() {
    let bench = Bench::new();
    let node = bench.open().await;
    let posted = Container { systemd: true, ..running("c", nfs("/export")) };
    let c = post_container(&node, posted).await.unwrap();
    bench.kernel.ignore(StopSignal::HaltSystemd);
    let began = Instant::now();
    set_state(&node, c.id, State::Exited).await.unwrap();
    reaches(&node, c.id, State::Exited).await;
    assert_eq!(began.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_period_it_is_killed_at_once() {
    let mut bench = Bench::new();
    bench.options.stop_grace = Duration::ZERO;
    let (node, c) = started(&bench).await;
    set_state(&node, c.id, State::Exited).await.unwrap();
    reaches(&node, c.id, State::Exited).await;
    assert!(!bench.kernel.take_operations().contains(&"terminate".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_dead_created_by_a_post_and_an_error_of_a_patch() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.fail("start", KernelErrorKind::Invalid);
    let c = post_container(&node, running("c", nfs("/export"))).await.unwrap();
    assert_eq!(c.state(), State::Dead);
    assert_eq!(set_state(&node, c.id, State::Running).await, Err(Reason::Failed));
    assert_eq!(get_container(&node, c.id).await.unwrap().state(), State::Dead);
    bench.kernel.heal();
    // A start that failed changes nothing for others.
    post_attachment(&node, local("/dev/sdb")).await.unwrap();
    assert_eq!(set_state(&node, c.id, State::Running).await.unwrap().state(), State::Running);
}

#[tokio::test(start_paused = true)]
async fn starts_at_the_same_time_start_one_process() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    let starts = (0..5).map(|_| set_state(&node, c.id, State::Running));
    for outcome in futures_util::future::join_all(starts).await {
        assert_eq!(outcome.unwrap().state(), State::Running);
    }
    assert_eq!(bench.kernel.live_runs().len(), 1);
    let operations = bench.kernel.take_operations();
    assert_eq!(operations.iter().filter(|name| *name == "start").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_earlier_run_changes_nothing_of_a_later_one() {
    let bench = Bench::new();
    let (node, c) = started(&bench).await;
    let first = bench.kernel.live_runs()[0].clone();
    bench.kernel.exit(&first, Exit::Status(0));
    reaches(&node, c.id, State::Exited).await;
    set_state(&node, c.id, State::Running).await.unwrap();
    crate::containers::record_end(&node.core, c.id, &first, Exit::Signal(9)).await;
    assert_eq!(get_container(&node, c.id).await.unwrap().state(), State::Running);
    assert_eq!(bench.kernel.live_runs()[0].number, 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_what_does_not_run_changes_nothing() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    assert_eq!(set_state(&node, c.id, State::Exited).await.unwrap().state(), State::Created);
    for state in [State::Paused, State::Created, State::Unspecified] {
        assert_eq!(set_state(&node, c.id, state).await, Err(Reason::Invalid));
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_deletion_kills_and_a_process_that_cannot_be_killed_is_busy() {
    let bench = Bench::new();
    let (node, c) = started(&bench).await;
    bench.kernel.ignore(StopSignal::Kill);
    bench.kernel.ignore(StopSignal::Terminate);
    let began = Instant::now();
    assert_eq!(delete_container(&node, c.id, true).await, Err(Reason::Busy));
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(bench.kernel.tables().mounts.len(), 1);
    bench.kernel.heal();
    let deleted = delete_container(&node, c.id, true).await.unwrap();
    assert_eq!(deleted.state(), State::Exited);
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
    let log = &bench.kernel.logs()[&std::path::PathBuf::from(&c.logfile)];
    assert_eq!(log.first().unwrap(), "container created");
    assert_eq!(log.last().unwrap(), "container deleted");
}

#[tokio::test(start_paused = true)]
async fn a_container_without_identification_is_invalid_and_the_id_beats_the_name() {
    let bench = Bench::new();
    let node = bench.open().await;
    let first = post_container(&node, container("a", bind("/srv"))).await.unwrap();
    let second = post_container(&node, container("b", bind("/srv"))).await.unwrap();
    let delete = |id, name: Option<&str>| {
        Call::DeleteContainer(DeleteContainer { id, name: name.map(Into::into), force: false })
    };
    let patch = SetContainerState { state: State::Paused.into(), ..SetContainerState::default() };
    for refused in [delete(None, None), delete(None, Some("")), Call::SetContainerState(patch)] {
        let result = node
            .call(None, tinwright::node::v1::ImageCall { call: Some(refused) })
            .await
            .result
            .unwrap();
        let Outcome::Error(error) = result else { panic!("{result:?}") };
        assert_eq!(error.reason(), Reason::Invalid);
        assert_eq!(error.message, "either ID or Name must be provided");
    }
    let outcome = call(&node, None, delete(None, Some("c"))).await;
    assert_eq!(outcome, Err(Reason::NotFound));
    let outcome = call(&node, None, delete(Some(first.id), Some("b"))).await.unwrap();
    assert!(matches!(outcome, Outcome::Container(container) if container.id == first.id));
    let list = ListContainers { name: Some("b".into()), ..ListContainers::default() };
    let Outcome::Containers(list) = call(&node, None, Call::ListContainers(list)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(list.containers, [second]);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_mount_was_deleted_does_not_start_and_can_be_deleted() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    delete_mount(&node, 1, true).await.unwrap();
    assert_eq!(set_state(&node, c.id, State::Running).await, Err(Reason::Failed));
    delete_container(&node, c.id, false).await.unwrap();
    assert_eq!(node.snapshot(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_too_late_is_undone() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    bench.kernel.hang("start");
    assert_eq!(set_state(&node, c.id, State::Running).await, Err(Reason::Failed));
    bench.kernel.heal();
    reaches(&node, c.id, State::Dead).await;
    assert_eq!(bench.kernel.live_runs(), []);
    assert_eq!(set_state(&node, c.id, State::Running).await.unwrap().state(), State::Running);
}
