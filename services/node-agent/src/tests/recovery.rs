//! Restarts.

use tinwright::node::v1::container::State;
use tinwright::node::v1::image_error::Reason;

use super::Bench;
use super::fake::{FakeDevice, FakeMount, FakeRun};
use super::requests::*;
use crate::kernel::{Exit, KernelErrorKind, RunId, StopSignal};

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_ids_names_counts_and_states_and_containers_go_on() {
    let bench = Bench::new();
    let node = bench.open().await;
    post_container(&node, running("c", stack())).await.unwrap();
    post_mount(&node, bind_reference(1, "/")).await.unwrap();
    let (before, runs) = (node.snapshot(), bench.kernel.live_runs());
    node.close().await;
    bench.kernel.take_operations();
    let node = bench.reopen().await;
    assert_eq!(node.snapshot(), before);
    assert_eq!(bench.kernel.live_runs(), runs);
    assert_eq!(bench.kernel.take_storage_operations(), [""; 0]);
    // Its end is seen.
    bench.kernel.exit(&runs[0], Exit::Status(3));
    reaches(&node, before.containers[0].id, State::Dead).await;
    delete_container(&node, before.containers[0].id, false).await.unwrap();
    node.idle().await;
    assert_eq!(node.snapshot().mounts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_container_while_the_node_was_away_is_found_with_its_status() {
    for (exit, state) in [(Exit::Status(0), State::Exited), (Exit::Status(3), State::Dead)] {
        let bench = Bench::new();
        let node = bench.open().await;
        let c = post_container(&node, running("c", nfs("/export"))).await.unwrap();
        node.close().await;
        bench.kernel.exit(&bench.kernel.live_runs()[0], exit);
        let node = bench.reopen().await;
        reaches(&node, c.id, state).await;
        node.close().await;
        assert!(bench.kernel.tables().runs.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_on_after_a_restart() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, running("c", nfs("/export"))).await.unwrap();
    bench.kernel.ignore(StopSignal::Terminate);
    set_state(&node, c.id, State::Exited).await.unwrap();
    node.close().await;
    let node = bench.reopen().await;
    assert_eq!(get_container(&node, c.id).await.unwrap().state(), State::Stopping);
    reaches(&node, c.id, State::Exited).await;
    assert_eq!(bench.kernel.live_runs(), []);
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_all_has_vanished_and_can_be_deleted() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, running("c", stack())).await.unwrap();
    node.close().await;
    bench.kernel.reboot();
    let node = bench.reopen().await;
    assert_eq!(get_container(&node, c.id).await.unwrap().state(), State::Dead);
    assert_eq!(set_state(&node, c.id, State::Running).await, Err(Reason::Failed));
    assert_eq!(post_mount(&node, bind_reference(1, "/")).await, Err(Reason::Failed));
    delete_container(&node, c.id, false).await.unwrap();
    node.idle().await;
    assert_eq!(node.snapshot(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn ids_are_never_used_again() {
    let bench = Bench::new();
    for expected in 1..5 {
        let node = bench.reopen().await;
        let m = post_mount(&node, bind("/srv")).await.unwrap();
        assert_eq!(m.id, expected);
        delete_mount(&node, m.id, true).await.unwrap();
        node.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_record_names_is_removed_and_what_other_nodes_have_is_not() {
    let bench = Bench::new();
    let node = bench.open().await;
    let kept = post_mount(&node, nfs("/export")).await.unwrap();
    let own_name = node.core.name.clone();
    node.close().await;
    bench.kernel.change_tables(|tables| {
        for (file, mark) in
            [("/dev/loop7", format!("{own_name}-99")), ("/dev/loop8", "other-9".into())]
        {
            let device = FakeDevice { mark, base: None, image: String::new() };
            tables.devices.insert(file.into(), device);
        }
        let lost = std::path::PathBuf::from("/var/run/imageapi/mounts/mount_lost");
        let above = lost.with_file_name("mount_above");
        let mounts = [(&lost, vec!["/dev/loop7".into()]), (&above, vec![lost.clone()])];
        for (mountpoint, uses) in mounts {
            tables.mounts.push(FakeMount { mountpoint: mountpoint.clone(), uses });
            tables.directories.insert(mountpoint.clone());
        }
        tables.directories.insert(lost.with_file_name("upper_lost"));
        let run = RunId { mark: format!("{own_name}-98"), number: 1 };
        tables.runs.insert(run, FakeRun { root: above, exit: None });
    });
    let node = bench.reopen().await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let tables = bench.kernel.tables();
    assert_eq!(tables.mounts.len(), 1);
    assert_eq!(tables.directories.len(), 1);
    assert_eq!(tables.devices.keys().collect::<Vec<_>>(), ["/dev/loop8"]);
    assert!(tables.runs.is_empty());
    assert_eq!(node.snapshot().mounts, [kept]);
}

#[tokio::test(start_paused = true)]
async fn a_collection_goes_on_after_a_restart() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", stack())).await.unwrap();
    bench.kernel.fail("unmount overlay", KernelErrorKind::Busy);
    delete_container(&node, c.id, false).await.unwrap();
    node.close().await;
    assert_eq!(bench.kernel.tables().mounts.len(), 3);
    bench.kernel.heal();
    let node = bench.reopen().await;
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}
