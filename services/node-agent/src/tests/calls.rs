//! Calls with ids.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tinwright::node::v1::image_call::{Call, DeleteObject};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;

use super::Bench;
use super::requests::*;
use crate::kernel::KernelErrorKind;

fn mount_call() -> Call {
    Call::CreateMount(nfs("/export"))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_has_the_same_result_and_is_done_once_also_after_a_restart() {
    let bench = Bench::new();
    let node = bench.open().await;
    let first = call(&node, Some("a"), mount_call()).await;
    assert!(first.is_ok());
    assert_eq!(call(&node, Some("a"), mount_call()).await, first);
    node.close().await;
    let node = bench.reopen().await;
    assert_eq!(call(&node, Some("a"), mount_call()).await, first);
    assert_eq!(node.snapshot().mounts.len(), 1);
    // Without an id, and with another one, it is another call.
    call(&node, None, mount_call()).await.unwrap();
    call(&node, Some(""), mount_call()).await.unwrap();
    call(&node, Some(""), mount_call()).await.unwrap();
    call(&node, Some("b"), mount_call()).await.unwrap();
    assert_eq!(node.snapshot().mounts.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_a_result_too() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.fail("mount nfs", KernelErrorKind::Failed);
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    bench.kernel.heal();
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    node.close().await;
    let node = bench.reopen().await;
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    let delete = || Call::DeleteMount(DeleteObject { id: 7, force: true });
    assert_eq!(call(&node, Some("d"), delete()).await, Err(Reason::NotFound));
}

#[tokio::test(start_paused = true)]
async fn calls_with_one_id_at_the_same_time_are_one() {
    let bench = Bench::new();
    let node = bench.open().await;
    let calls = (0..5).map(|_| call(&node, Some("a"), mount_call()));
    let results = futures_util::future::join_all(calls).await;
    assert!(results[0].is_ok());
    assert!(results.iter().all(|result| *result == results[0]));
    assert_eq!(bench.kernel.take_storage_operations(), ["mount nfs"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_without_its_caller_and_a_repetition_gets_its_result() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.hang("mount nfs");
    let cut = call(&node, Some("a"), mount_call()).now_or_never();
    assert_eq!(cut, None);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.kernel.heal();
    let result = call(&node, Some("a"), mount_call()).await.unwrap();
    assert!(matches!(result, Outcome::Mount(mount) if mount.id == 1));
    assert_eq!(bench.kernel.take_storage_operations(), ["mount nfs"]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_an_expired_call_is_the_same_when_it_is_repeated() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.hang("mount nfs");
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    bench.kernel.heal();
    node.idle().await;
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    node.close().await;
    let node = bench.reopen().await;
    assert_eq!(call(&node, Some("a"), mount_call()).await, Err(Reason::Failed));
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_call_is_invalid() {
    let bench = Bench::new();
    let node = bench.open().await;
    let result = node.call(Some("a"), Default::default()).await.result.unwrap();
    assert!(matches!(result, Outcome::Error(error) if error.reason() == Reason::Invalid));
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_written_refuses_calls_and_is_used_again_afterwards() {
    let bench = Bench::new();
    let node = bench.open().await;
    let kept = post_mount(&node, nfs("/export")).await.unwrap();
    bench.options.refuse_writes.store(true, Ordering::SeqCst);
    assert_eq!(post_mount(&node, nfs("/other")).await, Err(Reason::Internal));
    assert_eq!(bench.kernel.tables().mounts.len(), 1);
    assert_eq!(delete_mount(&node, kept.id, true).await, Err(Reason::Internal));
    assert_eq!(bench.kernel.tables().mounts.len(), 1);
    bench.options.refuse_writes.store(false, Ordering::SeqCst);
    delete_mount(&node, kept.id, true).await.unwrap();
    node.idle().await;
    assert!(bench.kernel.tables().is_empty());
    node.close().await;
    assert_eq!(bench.reopen().await.snapshot(), Default::default());
}
