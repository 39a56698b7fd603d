//! Whatever is committed, the engines agree.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use store::etcd::{Etcd, Options};
use store::{Commit, Expect, Page, Revision, Store, Write, memory::MemoryStore, sled::Sled};

use super::peer::Peer;

fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "[ab]/[ab]", Just("a\0\0\0\0".to_owned()), Just("é".to_owned())]
}

fn write() -> impl Strategy<Value = Write> {
    let length = prop_oneof![4 => 0..40_usize, 1 => 4000..20_000_usize];
    let value = (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length].into());
    prop_oneof![
        2 => (key(), value).prop_map(|(key, value)| Write::Put(key, value)),
        1 => key().prop_map(Write::Delete),
    ]
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        key().prop_map(Expect::Absent),
        (key(), 0..12_u64).prop_map(|(key, at)| Expect::At(key, Revision(at))),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    let expect = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(expect(), 1..3)];
    (expect, prop::collection::vec(write(), 0..4))
        .prop_map(|(expect, writes)| Commit { expect, writes })
}

/// A revision that no commit here takes.
const NEVER: Revision = Revision(1 << 40);

/// An engine, and the revisions its commits took: they count differently, and mean the same.
struct Engine {
    store: Arc<dyn Store>,
    took: Vec<Revision>,
}

impl Engine {
    fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), took: vec![Revision(0)] }
    }

    /// Commits `commit`, whose expected revisions count the commits before it.
    async fn commit(&mut self, mut commit: Commit) -> String {
        for expect in &mut commit.expect {
            if let Expect::At(_, at) = expect {
                *at = self.took.get(at.0 as usize).copied().unwrap_or(NEVER);
            }
        }
        let outcome = self.store.commit(commit).await;
        if let Ok(revision) = outcome {
            // Nothing is at the revision of a commit that changed nothing, even where it shares an earlier one's.
            let shared = self.took.contains(&revision);
            self.took.push(if shared { NEVER } else { revision });
        }
        outcome.map_or_else(|error| error.to_string(), |_| "committed".into())
    }

    /// Everything under `prefix` after `after`, in pages of two, and by which commit.
    async fn contents(&self, prefix: &str, after: &str) -> Vec<Page> {
        let mut pages = pages(&*self.store, prefix, after).await;
        for (_, found) in pages.iter_mut().flat_map(|page| &mut page.pairs) {
            let by = self.took.iter().position(|at| *at == found.revision);
            found.revision = Revision(by.unwrap() as u64);
        }
        pages
    }
}

async fn pages(store: &dyn Store, prefix: &str, after: &str) -> Vec<Page> {
    let (mut pages, mut after) = (Vec::new(), after.to_owned());
    loop {
        let page = store.list(prefix, &after, 2).await.unwrap();
        let more = page.more;
        after = page.pairs.last().map_or(after, |(key, _)| key.clone());
        pages.push(page);
        if !more {
            return pages;
        }
    }
}

/// Every outcome is the same everywhere.
async fn carry_out(commits: Vec<Commit>, engines: &mut [Engine]) {
    for commit in commits {
        let mut outcomes = Vec::new();
        for engine in engines.iter_mut() {
            outcomes.push(engine.commit(commit.clone()).await);
        }
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{commit:?}: {outcomes:?}");
    }
}

/// So is what is there afterwards.
async fn agree(engines: &[Engine]) {
    for (prefix, after) in [("", ""), ("a", ""), ("a", "a"), ("", "b"), ("b", "a")] {
        let expected = engines[0].contents(prefix, after).await;
        for engine in engines {
            assert_eq!(engine.contents(prefix, after).await, expected);
        }
    }
}

async fn all_agree(commits: Vec<Commit>, etcd: Etcd) {
    let dir = tempfile::tempdir().unwrap();
    let open = || Engine::new(Sled::open(dir.path()).unwrap());
    let mut engines = vec![Engine::new(MemoryStore::default()), Engine::new(etcd), open()];
    carry_out(commits, &mut engines).await;
    agree(&engines).await;
    let took = engines.pop().unwrap().took; // and the store is closed
    engines.push(Engine { took, ..open() });
    agree(&engines).await;
}

#[test]
fn three_engines_agree() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let peer = runtime.block_on(Peer::start());
    let (config, case) = (
        ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() },
        Cell::new(0),
    );
    proptest!(config, |(commits in prop::collection::vec(commit(), 0..24))| {
        case.set(case.get() + 1);
        let options = Options { prefix: format!("/case/{}/", case.get()), ..peer.options() };
        runtime.block_on(async { all_agree(commits, Etcd::connect(options).await.unwrap()).await });
    });
}
