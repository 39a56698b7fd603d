//! Logs in a store.

use std::sync::Arc;

use proptest::prelude::*;
use store::memory::MemoryStore;

use super::*;

fn logs() -> Logs {
    Logs::new(ScopedStore::new(Arc::new(MemoryStore::default()), "workflow"))
}

fn of() -> Of {
    Of { workflow: "w".into(), action: "a".into() }
}

async fn all(logs: &Logs, attempt: i32) -> Vec<u8> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let chunks = logs.chunks(&of(), attempt, &after).await.unwrap();
        let Some((last, _)) = chunks.last() else { return all };
        after.clone_from(last);
        all.extend(chunks.into_iter().flat_map(|(_, chunk)| chunk.data));
    }
}

#[tokio::test]
async fn what_is_sent_twice_is_there_once_and_a_gap_is_told() {
    let logs = logs();
    assert_eq!(logs.append(&of(), 1, 0, b"abc").await.unwrap(), 3);
    assert_eq!(logs.append(&of(), 1, 0, b"abc").await.unwrap(), 3);
    assert_eq!(logs.append(&of(), 1, 1, b"bcde").await.unwrap(), 5);
    let gap = logs.append(&of(), 1, 6, b"x").await.unwrap_err();
    assert_eq!(gap.to_string(), "bytes are missing: go on from offset 5");
    assert_eq!(all(&logs, 1).await, b"abcde");
}

#[tokio::test]
async fn tries_are_read_one_after_another_or_one_alone() {
    let logs = logs();
    for (attempt, data) in [(1, b"one"), (2, b"two"), (10, b"ten")] {
        logs.append(&of(), attempt, 0, data).await.unwrap();
    }
    assert_eq!(all(&logs, 0).await, b"onetwoten");
    assert_eq!(all(&logs, 2).await, b"two");
}

#[tokio::test]
async fn a_log_ends_at_a_mebibyte_with_a_mark_and_the_worker_is_not_held_up() {
    let (logs, chunk) = (logs(), vec![b'x'; CHUNK - 1]);
    let (mut offset, end) = (0, LIMIT + 3 * CHUNK as u64);
    while offset < end {
        let next = logs.append(&of(), 1, offset, &chunk).await.unwrap();
        assert_eq!(next, offset + chunk.len() as u64);
        offset = next;
    }
    let stored = all(&logs, 1).await;
    assert_eq!(stored.len() as u64, LIMIT + MARK.len() as u64);
    assert!(stored.ends_with(MARK.as_bytes()));
}

#[tokio::test]
async fn a_deleted_log_leaves_nothing_and_another_actions_stays() {
    let logs = logs();
    let other = Of { action: "ab".into(), ..of() };
    for n in 0..150 {
        logs.append(&of(), 1, n, b"x").await.unwrap();
    }
    logs.append(&other, 1, 0, b"y").await.unwrap();
    logs.delete(&of()).await.unwrap();
    assert_eq!(all(&logs, 0).await, b"");
    assert_eq!(logs.append(&of(), 1, 0, b"z").await.unwrap(), 1, "as if nothing had been");
    assert_eq!(logs.append(&other, 1, 0, b"y").await.unwrap(), 1);
}

proptest! {
    #[test]
    fn pieces_in_any_overlap_make_the_whole(cuts in prop::collection::vec((0..40_usize, 1..20_usize), 1..30)) {
        let whole: Vec<u8> = (0..60).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stored = runtime.block_on(async {
            let logs = logs();
            for (from, length) in cuts {
                let piece = whole.get(from..from + length).unwrap_or_default();
                let _gaps_are_told = logs.append(&of(), 1, from as u64, piece).await;
            }
            all(&logs, 1).await
        });
        prop_assert_eq!(&whole[..stored.len()], &stored[..]);
    }
}
