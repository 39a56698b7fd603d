//! Properties of the sled engine alone: reopening, failing disks, broken stores.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::space::DiskSpace;
use super::staged::Staged;
use super::*;
use crate::{Expect, Write, limits};

fn put(key: &str, value: impl Into<bytes::Bytes>) -> Commit {
    Commit { writes: vec![Write::Put(key.into(), value.into())], ..Commit::default() }
}

async fn resolves<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("resolves")
}

fn open(path: &Path) -> Sled {
    Sled::open(path).expect("opens")
}

#[tokio::test]
async fn survives_reopening() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let long = vec![7; limits::MAX_VALUE_BYTES];
    let at = {
        let store = open(dir.path());
        store.commit(put("a", long.clone())).await.expect("commits")
    };
    let store = open(dir.path());
    let found = store.get("a").await.expect("reads").expect("is there");
    assert_eq!((found.revision, found.value.as_ref()), (at, &long[..]));
    assert_eq!(
        store.changed("", Revision(0)).await.expect("answers"),
        Changes::Lost { revision: at }
    );
    assert!(store.commit(put("a", "2")).await.expect("commits") > at);
}

#[tokio::test]
async fn a_shorter_value_leaves_no_parts_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path());
    for length in [limits::MAX_VALUE_BYTES, 10_000, 4097, 4096, 0] {
        let value = vec![length as u8; length];
        store.commit(put("a", value.clone())).await.expect("commits");
        assert_eq!(store.get("a").await.expect("reads").expect("is there").value, value);
    }
    assert_eq!(store.layout.entries(), 2, "the revision and one pair");
}

#[tokio::test]
async fn no_value_becomes_a_file_that_sled_never_syncs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path());
    for n in 0..100 {
        store.commit(put(&format!("{n:01000}"), vec![n; 4096])).await.expect("commits");
    }
    for n in 0..8 {
        store.commit(put(&n.to_string(), vec![n; limits::MAX_VALUE_BYTES])).await.expect("commits");
    }
    let files = std::fs::read_dir(dir.path().join("blobs")).expect("sled's folder").count();
    assert_eq!(files, 0);
}

#[tokio::test]
async fn dropping_the_store_completes_queued_commits() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path());
    for n in 0..100 {
        let (reply, _nobody_waits) = oneshot::channel();
        let queued = QueuedCommit { commit: put(&format!("{n:03}"), "v"), reply };
        store.queue.send(Queued::Commit(queued)).await.expect("queues");
    }
    drop(store);
    assert_eq!(open(dir.path()).list("", "", 200).await.expect("lists").pairs.len(), 100);
}

#[tokio::test]
async fn after_a_disk_error_commits_and_reads_of_unsynced_data_fail() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    open(dir.path()).commit(put("old", "v")).await.expect("commits");
    let broken = File::open("/dev/null").expect("opens"); // fdatasync of it is an error
    let store = Sled::open_syncing(dir.path(), broken).expect("opens");
    let waiting = store.changed("", Revision(1));
    let (waiting, first, failed) =
        tokio::join!(waiting, store.commit(put("new", "v")), resolves(store.failed()));
    assert!(matches!(first, Err(Error::Unavailable(_))));
    assert!(matches!(waiting, Err(Error::Unavailable(_))));
    assert!(matches!(failed, Error::Unavailable(_)));
    assert!(matches!(store.commit(put("new", "v")).await, Err(Error::Unavailable(_))));
    assert!(matches!(store.get("new").await, Err(Error::Unavailable(_))));
    assert!(matches!(store.list("", "", 9).await, Err(Error::Unavailable(_))));
    assert!(store.get("old").await.expect("still reads").is_some());
}

/// Free bytes on a disk of 8 MiB with a reserve of 1 MiB.
static FREE: AtomicU64 = AtomicU64::new(0);
const RESERVE_BYTES: u64 = 1024 * 1024;

fn small_disk(_: &Path) -> std::io::Result<DiskSpace> {
    Ok(DiskSpace { total: 8 * RESERVE_BYTES, free: FREE.load(Ordering::Relaxed) })
}

#[tokio::test]
async fn a_full_disk_takes_deletes_and_small_updates_but_nothing_new() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let reserve = || dir.path().join("reserve").metadata().map(|found| found.len()).ok();
    let create = |key: &str| Commit { expect: vec![Expect::Absent(key.into())], ..put(key, "v") };
    let delete =
        |key: &str| Commit { writes: vec![Write::Delete(key.into())], ..Commit::default() };
    let full = |outcome| matches!(outcome, Err(Error::Full));
    let free = |bytes| FREE.store(bytes, Ordering::Relaxed);

    free(8 * RESERVE_BYTES);
    let store = Sled::open_measuring(dir.path(), small_disk).expect("opens");
    for key in ["a", "b"] {
        store.commit(create(key)).await.expect("there is space");
    }
    assert_eq!(reserve(), Some(RESERVE_BYTES));

    free(RESERVE_BYTES / 2);
    assert!(full(store.commit(create("c")).await));
    assert!(full(store.commit(put("a", vec![1; 5000])).await));
    store.commit(put("a", vec![1; 4000])).await.expect("a small update");
    store.commit(delete("a")).await.expect("a delete");
    assert_eq!(reserve(), Some(RESERVE_BYTES), "there is space without it");

    free(RESERVE_BYTES / 8 - 1);
    store.commit(delete("b")).await.expect("a delete");
    assert_eq!(reserve(), None);
    free(2 * RESERVE_BYTES);
    assert!(full(store.commit(create("c")).await), "the reserve is missing");

    free(2 * RESERVE_BYTES + 1);
    store.commit(create("c")).await.expect("there is space again");
    assert_eq!(reserve(), Some(RESERVE_BYTES));

    drop(store);
    free(0);
    let store = Sled::open_measuring(dir.path(), small_disk).expect("opens");
    assert_eq!(reserve(), None, "opening needs its space");
    store.commit(delete("c")).await.expect("a delete");
}

#[tokio::test]
async fn an_unreadable_store_is_not_replaced_by_a_new_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    open(dir.path()).commit(put("a", "1")).await.expect("commits");
    std::fs::write(dir.path().join("db"), [1; 4096]).expect("writes");
    let folder = dir.path().canonicalize().expect("is there").display().to_string();
    for _ in 0..2 {
        assert!(matches!(Sled::open(dir.path()), Err(Error::Corrupt(at)) if at == folder));
    }
}

#[test]
fn an_interrupted_creation_is_completed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    drop(open(dir.path()));
    std::fs::remove_file(dir.path().join("ready")).expect("is there");
    drop(open(dir.path()));
    drop(open(dir.path()));
}

#[tokio::test]
async fn commits_that_share_a_batch_see_each_other_and_fail_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path());
    let absent = |key: &str| Commit { expect: vec![Expect::Absent("a".into())], ..put(key, "v") };
    let (mut staged, mut room) = (Staged::on(&store.layout).expect("stages"), u64::MAX);
    assert_eq!(staged.take(&absent("a"), &mut room).expect("holds"), Revision(1));
    assert!(
        matches!(staged.take(&absent("b"), &mut room), Err(Error::Conflict(key)) if key == "a")
    );
    let gone = Commit { writes: vec![Write::Delete("a".into())], ..Commit::default() };
    assert_eq!(staged.take(&gone, &mut room).expect("holds"), Revision(2));
    assert_eq!(staged.take(&absent("c"), &mut room).expect("holds"), Revision(3));
    assert!(store.layout.get("c").expect("reads").is_none(), "nothing is to be seen yet");
    staged.apply().expect("applies");
    let page = store.layout.list("", "", 9).expect("lists");
    assert_eq!(page.pairs.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn a_long_queue_is_applied_in_several_batches_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path());
    let mut outcomes = Vec::new();
    for n in 0..20 {
        let (reply, outcome) = oneshot::channel();
        let queued = QueuedCommit { commit: put("a", vec![n; limits::MAX_VALUE_BYTES]), reply };
        store.queue.send(Queued::Commit(queued)).await.expect("queues");
        outcomes.push(outcome);
    }
    for (n, outcome) in (1..).zip(outcomes) {
        assert_eq!(outcome.await.expect("answers").expect("commits"), Revision(n));
    }
    assert_eq!(store.get("a").await.expect("reads").expect("is there").value[0], 19);
}
