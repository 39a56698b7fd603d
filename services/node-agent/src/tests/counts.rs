//! Reference counts.

use tinwright::node::v1::image_error::Reason;

use super::Bench;
use super::requests::*;
use crate::Node;
use tinwright::node::v1::container::State;

async fn refs(node: &Node, attachment: i64, mount: i64) -> (Option<i64>, Option<i64>) {
    // Reads, on objects of another type too, change no count.
    for id in [attachment, mount] {
        let _other_type = get_attachment(node, id).await;
        let _other_type = get_mount(node, id).await;
        let _other_type = get_container(node, id).await;
    }
    let attachment = get_attachment(node, attachment).await.ok().map(|a| a.refs);
    (attachment, get_mount(node, mount).await.ok().map(|m| m.refs))
}

#[tokio::test(start_paused = true)]
async fn counts_by_reference_follow_the_table() {
    let bench = Bench::new();
    let node = bench.open().await;
    let a = post_attachment(&node, local("/dev/sdb")).await.unwrap();
    assert_eq!((a.id, a.refs), (1, 1));
    let m = post_mount(&node, attach_mount(attachment_reference(a.id))).await.unwrap();
    assert_eq!(refs(&node, a.id, m.id).await, (Some(2), Some(1)));
    let c = post_container(&node, container("c", mount_reference(m.id))).await.unwrap();
    assert_eq!(c.refs, 1);
    assert_eq!(c.mount.unwrap().refs, 2);
    assert_eq!(refs(&node, a.id, m.id).await, (Some(2), Some(2)));
    assert_eq!(delete_mount(&node, m.id, false).await, Err(Reason::Busy));
    assert_eq!(refs(&node, a.id, m.id).await, (Some(2), Some(2)));
    assert_eq!(delete_container(&node, c.id, false).await.unwrap().refs, 1);
    assert_eq!(refs(&node, a.id, m.id).await, (Some(2), Some(1)));
    assert_eq!(delete_mount(&node, m.id, true).await.unwrap().refs, 1);
    assert_eq!(refs(&node, a.id, m.id).await, (Some(1), None));
    assert_eq!(delete_attachment(&node, a.id, true).await.unwrap().refs, 1);
    assert_eq!(refs(&node, a.id, m.id).await, (None, None));
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nested_counts_are_one_and_all_is_collected_with_the_container() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", stack())).await.unwrap();
    let snapshot = node.snapshot();
    assert_eq!(c.id, 5);
    assert!(snapshot.mounts.iter().all(|mount| mount.refs == 1), "{snapshot:?}");
    assert!(snapshot.attachments.iter().all(|attachment| attachment.refs == 1));
    assert_eq!((snapshot.mounts.len(), snapshot.attachments.len()), (3, 1));
    assert_eq!(refs(&node, 2, 1).await, (Some(1), Some(1)));
    delete_container(&node, c.id, false).await.unwrap();
    node.idle().await;
    assert_eq!(node.snapshot(), Default::default());
    assert!(bench.kernel.tables().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_nested_object_stays_if_something_else_refers_to_it_by_then() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, bind_over(nfs("/export"), "/a")).await.unwrap();
    let other = post_mount(&node, bind_reference(1, "/b")).await.unwrap();
    assert_eq!(get_mount(&node, 1).await.unwrap().refs, 2);
    delete_mount(&node, m.id, true).await.unwrap();
    node.idle().await;
    assert_eq!(get_mount(&node, 1).await.unwrap().refs, 1);
    delete_mount(&node, other.id, true).await.unwrap();
    node.idle().await;
    assert_eq!(get_mount(&node, 1).await, Err(Reason::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_reads_change_no_count() {
    let bench = Bench::new();
    let node = bench.open().await;
    let a = post_attachment(&node, local("/dev/sdb")).await.unwrap();
    for _ in 0..100 {
        assert_eq!(get_attachment(&node, a.id).await.unwrap().refs, 1);
        assert_eq!(get_mount(&node, a.id).await, Err(Reason::NotFound));
    }
}

#[tokio::test(start_paused = true)]
async fn refused_calls_change_no_count() {
    let bench = Bench::new();
    let node = bench.open().await;
    let m = post_mount(&node, bind("/srv")).await.unwrap();
    let c = post_container(&node, running("c", mount_reference(m.id))).await.unwrap();
    for _ in 0..3 {
        assert_eq!(delete_container(&node, c.id, false).await, Err(Reason::Busy));
        assert_eq!(delete_container(&node, m.id, true).await, Err(Reason::NotFound));
        assert_eq!(set_state(&node, m.id, State::Running).await, Err(Reason::NotFound));
        assert_eq!(delete_mount(&node, c.id, true).await, Err(Reason::NotFound));
        assert_eq!(delete_mount(&node, 0, true).await, Err(Reason::NotFound));
        assert_eq!(delete_mount(&node, -1, true).await, Err(Reason::NotFound));
        let same_name = container("c", mount_reference(m.id));
        assert_eq!(post_container(&node, same_name).await, Err(Reason::Busy));
    }
    assert_eq!(get_mount(&node, m.id).await.unwrap().refs, 2);
}
