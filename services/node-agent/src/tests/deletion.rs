//! Deletion of attachments and mounts.

use std::time::Duration;

use tinwright::node::v1::image_error::Reason;

use super::Bench;
use super::requests::*;
use crate::kernel::KernelErrorKind;

#[tokio::test(start_paused = true)]
async fn force_overrides_counts_but_not_the_kernel() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, attach_mount(loopback(nfs("/export"), "/image"))).await.unwrap();
    let before = (node.snapshot(), bench.kernel.tables());
    // A loop device under a file system, and a file system under a loop device.
    assert_eq!(delete_attachment(&node, 2, true).await, Err(Reason::Busy));
    assert_eq!(delete_mount(&node, 1, true).await, Err(Reason::Busy));
    assert_eq!((node.snapshot(), bench.kernel.tables()), before);
    delete_mount(&node, m.id, true).await.unwrap();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unforced_deletion_succeeds_if_the_owner_is_released_and_nobody_else_uses_it() {
    let mut bench = Bench::new();
    bench.options.delete_releases_owner = true;
    let node = bench.open().await;
    let base = post_mount(&node, nfs("/export")).await.unwrap();
    let over = post_mount(&node, bind_reference(base.id, "/")).await.unwrap();
    assert_eq!(delete_mount(&node, base.id, false).await, Err(Reason::Busy));
    assert_eq!(delete_mount(&node, over.id, false).await.unwrap().refs, 1);
    assert_eq!(delete_mount(&node, base.id, false).await.unwrap().refs, 1);
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_teardown_keeps_the_object_and_its_dependencies() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, attach_mount(rbd("image"))).await.unwrap();
    bench.kernel.fail("unmount device", KernelErrorKind::Failed);
    assert_eq!(delete_mount(&node, m.id, true).await, Err(Reason::Failed));
    bench.kernel.heal();
    assert_eq!(get_mount(&node, m.id).await.unwrap(), m);
    delete_mount(&node, m.id, true).await.unwrap();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_vanished_from_the_kernel_is_deleted_and_releases_its_dependencies() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, attach_mount(rbd("image"))).await.unwrap();
    bench.kernel.reboot();
    let deleted = delete_mount(&node, m.id, true).await.unwrap();
    assert_eq!(deleted, m);
    node.idle().await;
    assert_eq!(node.snapshot(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn users_of_a_deleted_object_stay_and_skip_it_later() {
    let bench = Bench::new();
    let node = bench.open().await;
    let a = post_attachment(&node, local("/dev/sdb")).await.unwrap();
    let m = post_mount(&node, attach_mount(attachment_reference(a.id))).await.unwrap();
    // Nothing is to be detached of a local device, so the kernel does not refuse.
    delete_attachment(&node, a.id, true).await.unwrap();
    assert_eq!(get_mount(&node, m.id).await.unwrap().refs, 1);
    delete_mount(&node, m.id, true).await.unwrap();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn deletions_at_the_same_time_happen_once() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, nfs("/export")).await.unwrap();
    let deletions = (0..5).map(|_| delete_mount(&node, m.id, true));
    let outcomes = futures_util::future::join_all(deletions).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let not_found = Err(Reason::NotFound);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == not_found).count(), 4);
    assert_eq!(bench.kernel.take_storage_operations(), ["mount nfs", "unmount nfs"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_fails_in_time_and_goes_on() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, nfs("/export")).await.unwrap();
    bench.kernel.hang("unmount nfs");
    let began = tokio::time::Instant::now();
    assert_eq!(delete_mount(&node, m.id, true).await, Err(Reason::Failed));
    assert_eq!(began.elapsed(), Duration::from_secs(25));
    // A second one waits for the first.
    assert_eq!(delete_mount(&node, m.id, true).await, Err(Reason::Failed));
    bench.kernel.heal();
    node.idle().await;
    assert_eq!(get_mount(&node, m.id).await, Err(Reason::NotFound));
    assert!(bench.kernel.tables().is_empty());
}
