//! Collection.

use std::time::Duration;

use tinwright::node::v1::image_error::Reason;
use tokio::time::sleep;

use super::Bench;
use super::requests::*;
use crate::kernel::KernelErrorKind;

#[tokio::test(start_paused = true)]
async fn a_teardown_that_fails_is_tried_again_after_1_2_4_up_to_60_seconds() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    bench.kernel.fail("unmount nfs", KernelErrorKind::Busy);
    bench.kernel.take_operations();
    delete_container(&node, c.id, false).await.unwrap();
    let mut attempts = Vec::new();
    // Half a second after each second.
    sleep(Duration::from_millis(500)).await;
    for second in 0..200 {
        let operations = bench.kernel.take_operations();
        let tried = operations.iter().filter(|name| *name == "unmount nfs").count();
        attempts.extend(std::iter::repeat_n(second, tried));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    bench.kernel.heal();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_collected_is_listed_with_count_0_and_cannot_be_referred_to() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", nfs("/export"))).await.unwrap();
    bench.kernel.fail("unmount nfs", KernelErrorKind::Busy);
    delete_container(&node, c.id, false).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(get_mount(&node, 1).await.unwrap().refs, 0);
    assert_eq!(post_mount(&node, bind_reference(1, "/")).await, Err(Reason::NotFound));
    // A call tries it at once.
    assert_eq!(delete_mount(&node, 1, false).await, Err(Reason::Busy));
    bench.kernel.heal();
    assert_eq!(delete_mount(&node, 1, false).await.unwrap().refs, 0);
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_is_finished_by_the_collection() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.fail("mount overlay", KernelErrorKind::Failed);
    bench.kernel.fail("unmount device", KernelErrorKind::Busy);
    let posted = container("c", stack());
    assert_eq!(post_container(&node, posted).await, Err(Reason::Failed));
    assert_eq!(bench.kernel.tables().mounts.len(), 2);
    bench.kernel.heal();
    // What is left of it does not keep its name.
    bench.kernel.fail("remove log", KernelErrorKind::Failed);
    bench.kernel.fail("log", KernelErrorKind::Failed);
    assert_eq!(post_container(&node, container("d", bind("/srv"))).await, Err(Reason::Failed));
    assert_eq!(node.snapshot().containers.len(), 1);
    bench.kernel.heal();
    bench.kernel.fail("remove log", KernelErrorKind::Failed);
    let again = post_container(&node, container("d", bind("/srv"))).await.unwrap();
    bench.kernel.heal();
    delete_container(&node, again.id, false).await.unwrap();
    node.idle().await;
    assert_eq!(node.snapshot(), Default::default());
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_teardown_that_hangs_delays_no_other_collection() {
    let bench = Bench::new();
    let node = bench.open().await;
    let slow = post_container(&node, container("slow", nfs("/export"))).await.unwrap();
    let other = post_container(&node, container("other", bind("/srv"))).await.unwrap();
    bench.kernel.hang("unmount nfs");
    delete_container(&node, slow.id, false).await.unwrap();
    delete_container(&node, other.id, false).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(node.snapshot().mounts.len(), 1);
    bench.kernel.heal();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}
