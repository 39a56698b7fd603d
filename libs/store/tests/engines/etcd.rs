//! Properties of the etcd engine alone: servers that die, fall silent, lose history or go back.

use std::future::Future;
use std::time::Duration;

use store::etcd::{Etcd, REQUEST_TIMEOUT};
use store::{Changes, Commit, Error, Expect, Revision, Store, Write};

use super::conformance;
use super::gate::Gate;
use super::peer::{self, Peer};

fn put(key: &str) -> Commit {
    Commit { writes: vec![Write::Put(key.into(), "v".into())], ..Commit::default() }
}

fn named(key: &str, revision: Revision) -> Changes {
    Changes::Keys { keys: vec![key.into()], revision }
}

/// Waits for what must come, but not for ever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("comes within a minute")
}

/// Commits as often as it takes.
async fn insist(store: &Etcd, commit: Commit) -> Revision {
    loop {
        match store.commit(commit.clone()).await {
            Ok(revision) => return revision,
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn conforms() {
    let peer = Peer::start().await;
    conformance::all(&peer.store().await).await;
}

#[tokio::test]
async fn a_follower_outlives_a_killed_etcd() {
    let mut peer = Peer::start().await;
    let store = peer.store().await;
    let before = store.commit(put("m/1")).await.unwrap();
    let restart = async {
        tokio::task::yield_now().await;
        peer.kill();
        peer.start_again().await;
        insist(&store, put("m/2")).await
    };
    let (changes, written) =
        soon(async { tokio::join!(store.changed("m/", before), restart) }).await;
    assert_eq!(changes.unwrap(), named("m/2", written));
    assert!(store.get("m/1").await.unwrap().is_some());
}

#[tokio::test]
async fn changes_during_a_broken_watch_are_reported_afterwards() {
    let peer = Peer::start().await;
    let mut gate = Gate::to(peer.port()).await;
    let (store, other) = (peer::connect([gate.url()]).await, peer.store().await);
    let before = store.commit(put("m/1")).await.unwrap();
    gate.cut().await;
    let missed = other.commit(put("m/2")).await.unwrap();
    gate.mend().await;
    assert_eq!(soon(store.changed("m/", before)).await.unwrap(), named("m/2", missed));
}

#[tokio::test]
async fn a_follower_behind_a_compaction_is_lost() {
    let peer = Peer::start().await;
    let mut gate = Gate::to(peer.port()).await;
    let (store, other) = (peer::connect([gate.url()]).await, peer.store().await);
    let before = store.commit(put("m/1")).await.unwrap();
    gate.cut().await;
    other.commit(put("m/2")).await.unwrap();
    let last = other.commit(put("m/3")).await.unwrap();
    peer.compact(last);
    gate.mend().await;
    let Changes::Lost { revision } = soon(store.changed("m/", before)).await.unwrap() else {
        panic!("what was forgotten cannot be named");
    };
    let next = other.commit(put("m/4")).await.unwrap();
    assert_eq!(soon(store.changed("m/", revision)).await.unwrap(), named("m/4", next));
}

#[tokio::test]
async fn a_follower_of_a_restored_cluster_is_lost() {
    let mut peer = Peer::start().await;
    let store = peer.store().await;
    store.commit(put("m/1")).await.unwrap();
    let before = store.commit(put("m/2")).await.unwrap();
    peer.kill();
    peer.wipe();
    peer.start_again().await;
    let lost = soon(store.changed("m/", before)).await.unwrap();
    assert!(matches!(lost, Changes::Lost { revision } if revision < before));
}

#[tokio::test]
async fn a_paused_etcd_is_unavailable_within_the_deadline() {
    let peer = Peer::start().await;
    let store = peer.store().await;
    peer.pause();
    let (read, write) = (store.get("m/1"), store.commit(put("m/1")));
    let ended =
        tokio::time::timeout(2 * REQUEST_TIMEOUT, async { tokio::join!(read, write) }).await;
    peer.resume();
    let (read, write) = ended.expect("both end");
    assert!(matches!(read, Err(Error::Unavailable(_))));
    assert!(matches!(write, Err(Error::Unavailable(_))));
    soon(insist(&store, put("m/2"))).await;
}

#[tokio::test]
async fn a_commit_with_a_lost_response_is_not_sent_again() {
    let peer = Peer::start().await;
    let gate = Gate::to(peer.port()).await;
    let store = peer::connect([gate.url(), peer.url()]).await;
    gate.silence();
    let once = Commit { expect: vec![Expect::Absent("m/1".into())], ..put("m/1") };
    let unknown = soon(store.commit(once)).await;
    assert!(matches!(unknown, Err(Error::Unavailable(_))), "{unknown:?}");
    assert!(peer.store().await.get("m/1").await.unwrap().is_some(), "it was applied");
}

#[tokio::test]
async fn a_read_without_a_response_is_sent_to_the_next_member() {
    let peer = Peer::start().await;
    let mut gate = Gate::to(peer.port()).await;
    let dead = peer::url(peer::free_port());
    let store = peer::connect([dead, gate.url(), peer.url()]).await;
    gate.cut().await;
    assert_eq!(soon(store.get("m/1")).await.unwrap(), None);
    gate.mend().await;
    let store = peer::connect([gate.url(), peer.url()]).await;
    gate.silence();
    assert_eq!(soon(store.get("m/1")).await.unwrap(), None);
}

#[tokio::test]
async fn a_follower_leaves_a_silent_member() {
    let peer = Peer::start().await;
    let gate = Gate::to(peer.port()).await;
    let (store, other) = (peer::connect([gate.url(), peer.url()]).await, peer.store().await);
    let before = store.commit(put("m/1")).await.unwrap();
    gate.silence();
    let written = other.commit(put("m/2")).await.unwrap();
    assert_eq!(soon(store.changed("m/", before)).await.unwrap(), named("m/2", written));
}

#[tokio::test]
async fn nothing_outside_the_prefix_is_seen_or_followed() {
    let peer = Peer::start().await;
    let store = peer.store().await;
    let theirs = store::etcd::Options { prefix: "/tinwright0".into(), ..peer.options() };
    let theirs = Etcd::connect(theirs).await.unwrap();
    let before = store.commit(put("a")).await.unwrap();
    theirs.commit(put("b")).await.unwrap();
    let after = store.commit(put("c")).await.unwrap();
    assert_eq!(store.changed("", before).await.unwrap(), named("c", after));
    let keys: Vec<_> =
        store.list("", "", 9).await.unwrap().pairs.into_iter().map(|p| p.0).collect();
    assert_eq!(keys, ["a", "c"]);
}

#[tokio::test]
async fn an_address_without_a_server_is_unavailable() {
    let endpoints = vec![peer::url(peer::free_port())];
    for endpoints in [endpoints, vec![], vec!["not an address".into()]] {
        let options = store::etcd::Options { endpoints, ..peer::options([]) };
        assert!(matches!(soon(Etcd::connect(options)).await, Err(Error::Unavailable(_))));
    }
}
