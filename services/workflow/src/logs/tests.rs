//! Logs in a store.

use std::sync::Arc;

use proptest::prelude::*;
use store::memory::MemoryStore;

use super::*;

fn logs() -> Logs {
    Logs::new(ScopedStore::new(Arc::new(MemoryStore::default()), "workflow"))
}

fn key() -> LogKey {
    LogKey { workflow: "w".into(), action: "a".into() }
}

async fn all(logs: &Logs, attempt: i32) -> Vec<u8> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let chunks = logs.chunks(&key(), attempt, &after).await.unwrap();
        let Some((last, _)) = chunks.last() else { return all };
        after.clone_from(last);
        all.extend(chunks.into_iter().flat_map(|(_, chunk)| chunk.data));
    }
}

#[tokio::test]
async fn bytes_sent_twice_are_stored_once_and_after_a_gap_none() {
    let logs = logs();
    assert_eq!(logs.append(&key(), 1, 0, b"abc").await.unwrap(), 3);
    assert_eq!(logs.append(&key(), 1, 0, b"abc").await.unwrap(), 3);
    assert_eq!(logs.append(&key(), 1, 1, b"bcde").await.unwrap(), 5);
    assert_eq!(logs.append(&key(), 1, 6, b"x").await.unwrap(), 5, "continue from there");
    assert_eq!(all(&logs, 1).await, b"abcde");
}

#[tokio::test]
async fn attempts_are_read_one_after_another_or_one_alone() {
    let logs = logs();
    for (attempt, data) in [(1, b"one"), (2, b"two"), (10, b"ten")] {
        logs.append(&key(), attempt, 0, data).await.unwrap();
    }
    assert_eq!(all(&logs, 0).await, b"onetwoten");
    assert_eq!(all(&logs, 2).await, b"two");
}

#[tokio::test]
async fn a_log_is_cut_at_a_mebibyte_with_a_mark_and_further_bytes_are_accepted() {
    let (logs, chunk) = (logs(), vec![b'x'; MAX_CHUNK_BYTES - 1]);
    let (mut offset, end) = (0, MAX_LOG_BYTES + 3 * MAX_CHUNK_BYTES as u64);
    while offset < end {
        let next = logs.append(&key(), 1, offset, &chunk).await.unwrap();
        assert_eq!(next, offset + chunk.len() as u64);
        offset = next;
    }
    let stored = all(&logs, 1).await;
    assert_eq!(stored.len() as u64, MAX_LOG_BYTES + CUT_MARK.len() as u64);
    assert!(stored.ends_with(CUT_MARK.as_bytes()));
}

#[tokio::test]
async fn deleting_a_log_deletes_all_of_it_and_no_other() {
    let logs = logs();
    let other = LogKey { action: "ab".into(), ..key() };
    for n in 0..150 {
        logs.append(&key(), 1, n, b"x").await.unwrap();
    }
    logs.append(&other, 1, 0, b"y").await.unwrap();
    logs.delete(&key()).await.unwrap();
    assert_eq!(all(&logs, 0).await, b"");
    assert_eq!(logs.append(&key(), 1, 0, b"z").await.unwrap(), 1, "a new log");
    assert_eq!(logs.append(&other, 1, 0, b"y").await.unwrap(), 1);
}

proptest! {
    #[test]
    fn overlapping_pieces_make_the_whole(cuts in prop::collection::vec((0..40_usize, 1..20_usize), 1..30)) {
        let whole: Vec<u8> = (0..60).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stored = runtime.block_on(async {
            let logs = logs();
            for (from, length) in cuts {
                let piece = whole.get(from..from + length).unwrap_or_default();
                let _next = logs.append(&key(), 1, from as u64, piece).await;
            }
            all(&logs, 1).await
        });
        prop_assert_eq!(&whole[..stored.len()], &stored[..]);
    }
}
