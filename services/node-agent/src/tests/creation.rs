//! Creation, and its rollback.

use std::time::Duration;

use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{Call, ListMounts};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;
use tinwright::node::v1::{attachment, mount};

use super::Bench;
use super::requests::*;
use crate::kernel::KernelErrorKind;

#[tokio::test(start_paused = true)]
async fn nested_objects_are_created_from_the_bottom_and_removed_from_the_top() {
    let bench = Bench::new();
    let node = bench.open().await;
    let c = post_container(&node, container("c", stack())).await.unwrap();
    let up = ["mount nfs", "attach loopback", "mount device", "mount overlay"];
    assert_eq!(bench.kernel.take_storage_operations(), up);
    delete_container(&node, c.id, false).await.unwrap();
    node.idle().await;
    let down = ["unmount overlay", "unmount device", "detach loopback", "unmount nfs"];
    assert_eq!(bench.kernel.take_storage_operations(), down);
}

#[tokio::test(start_paused = true)]
async fn every_step_that_fails_is_undone_in_reverse_order_before_the_answer() {
    let steps = ["mount nfs", "attach loopback", "mount device", "mount overlay", "log"];
    let undo = ["unmount overlay", "unmount device", "detach loopback", "unmount nfs"];
    for (done, step) in steps.iter().enumerate() {
        for (kind, reason) in [
            (KernelErrorKind::Failed, Reason::Failed),
            (KernelErrorKind::Invalid, Reason::Invalid),
            (KernelErrorKind::Busy, Reason::Busy),
            (KernelErrorKind::MissingInterface, Reason::Internal),
        ] {
            let bench = Bench::new();
            let node = bench.open().await;
            bench.kernel.fail(step, kind);
            let posted = running("c", stack());
            assert_eq!(post_container(&node, posted).await, Err(reason), "{step}");
            assert!(bench.kernel.tables().is_empty(), "{step}: {:?}", bench.kernel.tables());
            assert_eq!(node.snapshot(), Default::default(), "{step}");
            let undone = bench.kernel.take_storage_operations();
            let begun = (done + 1).min(4);
            assert_eq!(undone[begun..], undo[4 - done..], "{step}");
            assert!(bench.kernel.logs().is_empty(), "{step}");
            // The name is free, and the ids are not used again.
            bench.kernel.heal();
            assert!(post_container(&node, container("c", stack())).await.unwrap().id > 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_lower_that_fails_takes_the_earlier_ones_with_it_and_spares_references() {
    let bench = Bench::new();
    let node = bench.open().await;
    let posted = post_mount(&node, bind("/srv")).await.unwrap();
    bench.kernel.fail("attach loopback", KernelErrorKind::Invalid);
    let lower =
        vec![mount_reference(posted.id), nfs("/a"), attach_mount(loopback(nfs("/b"), "/image"))];
    assert_eq!(post_mount(&node, overlay(lower)).await, Err(Reason::Invalid));
    let snapshot = node.snapshot();
    assert_eq!(snapshot.mounts, [posted]);
    assert_eq!(bench.kernel.tables().mounts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_file_in_a_nested_base_leaves_no_mount() {
    for definition in
        [attach_mount(loopback(nfs("/export"), "/missing")), bind_over(nfs("/export"), "/missing")]
    {
        let bench = Bench::new();
        let node = bench.open().await;
        bench.kernel.fail("attach loopback", KernelErrorKind::Invalid);
        bench.kernel.fail("mount bind", KernelErrorKind::Invalid);
        assert_eq!(post_mount(&node, definition).await, Err(Reason::Invalid));
        assert!(bench.kernel.tables().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_whose_file_does_not_appear_is_detached() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.lose_device_files();
    assert_eq!(post_attachment(&node, rbd("image")).await, Err(Reason::Failed));
    assert!(bench.kernel.tables().is_empty());
    assert_eq!(bench.kernel.take_storage_operations(), ["attach rbd", "detach rbd"]);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_mapped_already_is_busy_and_the_first_one_stays() {
    let bench = Bench::new();
    let node = bench.open().await;
    let first = post_attachment(&node, rbd("image")).await.unwrap();
    assert_eq!(post_attachment(&node, rbd("image")).await, Err(Reason::Busy));
    assert_eq!(node.snapshot().attachments, [first]);
    assert_eq!(bench.kernel.tables().devices.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_in_no_answer_and_not_in_the_journal() {
    let bench = Bench::new();
    let node = bench.open().await;
    let posted = post_attachment(&node, rbd("image")).await.unwrap();
    let Some(attachment::Definition::Rbd(shown)) = &posted.definition else { panic!() };
    assert_eq!(shown.options.as_ref().unwrap().secret, "");
    assert_eq!(shown.options.as_ref().unwrap().name, "images");
    assert_eq!(node.snapshot().attachments, [posted]);
    let journal = std::fs::read(&bench.options.journal).unwrap();
    let secret = b"c2VjcmV0";
    assert!(!journal.windows(secret.len()).any(|bytes| bytes == secret));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_step_ends_the_call_in_time_and_is_undone_when_it_ends() {
    for step in ["mount nfs", "attach loopback", "mount device", "mount overlay", "start", "log"] {
        let bench = Bench::new();
        let node = bench.open().await;
        bench.kernel.hang(step);
        let began = tokio::time::Instant::now();
        let posted = running("c", stack());
        assert_eq!(post_container(&node, posted).await, Err(Reason::Failed), "{step}");
        assert_eq!(began.elapsed(), Duration::from_secs(25), "{step}");
        // Other objects are not delayed by it.
        let other = post_mount(&node, bind("/srv")).await.unwrap();
        delete_mount(&node, other.id, true).await.unwrap();
        bench.kernel.heal();
        node.idle().await;
        assert_eq!(node.snapshot(), Default::default(), "{step}");
        assert!(bench.kernel.tables().is_empty(), "{step}: {:?}", bench.kernel.tables());
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_references_are_not_found_wherever_they_stand() {
    let bench = Bench::new();
    let node = bench.open().await;
    let attachment = post_attachment(&node, local("/dev/sdb")).await.unwrap();
    for id in [99, attachment.id] {
        for mount in [
            bind_reference(id, "/"),
            overlay(vec![mount_reference(id)]),
            attach_mount(loopback(mount_reference(id), "/image")),
        ] {
            assert_eq!(post_mount(&node, mount).await, Err(Reason::NotFound));
        }
        let posted = container("c", mount_reference(id));
        assert_eq!(post_container(&node, posted).await, Err(Reason::NotFound));
    }
    let missing = attach_mount(attachment_reference(99));
    assert_eq!(post_mount(&node, missing).await, Err(Reason::NotFound));
    assert_eq!(bench.kernel.tables().mounts, []);
}

#[tokio::test(start_paused = true)]
async fn lists_are_in_order_of_ids_with_nested_objects_in_full() {
    let bench = Bench::new();
    let node = bench.open().await;
    let over = post_mount(&node, overlay(vec![bind("/srv"), nfs("/export")])).await.unwrap();
    assert_eq!(over.id, 3);
    let Some(mount::Definition::Overlay(shown)) = &over.definition else { panic!() };
    let lower: Vec<_> = shown.lower.iter().map(|lower| (lower.id, lower.refs)).collect();
    assert_eq!(lower, [(1, 1), (2, 1)]);
    assert!(
        shown
            .lower
            .iter()
            .all(|lower| lower.mountpoint.starts_with("/var/run/imageapi/mounts/mount_"))
    );
    assert!(shown.upperdir.starts_with("/var/run/imageapi/mounts/upper_"));
    let ids: Vec<_> = node.snapshot().mounts.iter().map(|mount| mount.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    let mut list = ListMounts::default();
    list.set_kind(tinwright::node::v1::MountKind::Nfs);
    let Ok(Outcome::Mounts(listed)) = call(&node, None, Call::ListMounts(list)).await else {
        panic!()
    };
    assert_eq!(listed.mounts.iter().map(|mount| mount.id).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn more_objects_than_the_limit_are_refused() {
    let mut bench = Bench::new();
    bench.options.max_objects = 3;
    let node = bench.open().await;
    let nested = overlay(vec![bind("/a"), bind("/b"), bind("/c")]);
    assert_eq!(post_mount(&node, nested).await, Err(Reason::Busy));
    assert!(bench.kernel.tables().is_empty());
    for _ in 0..3 {
        post_mount(&node, bind("/srv")).await.unwrap();
    }
    assert_eq!(post_mount(&node, bind("/srv")).await, Err(Reason::Busy));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_listed_only_when_it_is_created() {
    let bench = Bench::new();
    let node = bench.open().await;
    bench.kernel.hang("start");
    let starting = tokio::spawn({
        let node = node.clone();
        async move { post_container(&node, running("slow", nfs("/export"))).await }
    });
    while !bench.kernel.take_operations().contains(&"start".into()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The name is reserved, and another start is not delayed.
    let same_name = container("slow", bind("/srv"));
    assert_eq!(post_container(&node, same_name).await, Err(Reason::Busy));
    assert!(node.snapshot().containers.is_empty());
    let other = post_container(&node, container("other", bind("/srv"))).await.unwrap();
    assert_eq!(other.state(), State::Created);
    bench.kernel.heal();
    assert_eq!(starting.await.unwrap().unwrap().state(), State::Running);
}
