//! Backups that are made while others write.

use std::cell::Cell;

use store::memory::MemoryStore;
use store::{Commit, Store, Write, backup};
use tokio::sync::mpsc;

use super::put;

/// Keys that are listed before and after the others, and always written together.
const PAIRS: usize = 40;
/// Keys in between, more than are listed at a time.
const FILLERS: usize = 1200;

pub(super) async fn all(store: &dyn Store) {
    store.commit(put("schema", "2")).await.unwrap();
    store.commit(put(backup::SITE_KEY, "ours")).await.unwrap();
    for n in (0..FILLERS).step_by(100) {
        let writes = (n..n + 100).map(|n| Write::Put(format!("filler/{n:04}"), "filler".into()));
        store.commit(Commit { writes: writes.collect(), ..Commit::default() }).await.unwrap();
    }
    let (reading, written) = (Cell::new(true), Cell::new(0_u64));
    let writing = async {
        while reading.get() {
            let n = written.get();
            written.set(n + 1);
            let keys = ["a", "z"].map(|at| format!("{at}/{}", n as usize % PAIRS));
            let writes = keys.map(|key| match n % 3 {
                2 => Write::Delete(key),
                _ => Write::Put(key, n.to_string().into()),
            });
            let writes = writes.into_iter();
            store.commit(Commit { writes: writes.collect(), ..Commit::default() }).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (out, mut chunks) = mpsc::channel(1);
    let copying = async {
        backup::write(store, &out).await.unwrap();
        drop(out);
    };
    let receiving = async {
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            bytes.extend_from_slice(&chunk);
        }
        reading.set(false);
        bytes
    };
    let (_, (), bytes) = tokio::join!(writing, copying, receiving);
    assert!(written.get() > 0);
    let restored = MemoryStore::default();
    backup::restore(&restored, &["ours".into()], &mut bytes.as_slice()).await.unwrap();
    for n in 0..PAIRS {
        let [a, z] = [format!("a/{n}"), format!("z/{n}")];
        let value = async |key: &str| restored.get(key).await.unwrap().map(|found| found.value);
        assert_eq!(value(&a).await, value(&z).await, "{n} of {} commits", written.get());
    }
    let fillers = restored.list("filler/", "", 2 * FILLERS).await.unwrap().pairs.len();
    assert_eq!(fillers, FILLERS);
    assert_eq!(restored.get("schema").await.unwrap().unwrap().value.as_ref(), b"2");
}
