//! Followers of kinds of keys.

use std::pin::pin;

use futures_util::FutureExt as _;

use super::*;

const DOGS: &str = "pets/dog/";

/// Publishes one write of `key`.
fn write(feed: &ChangeFeed, revision: u64, key: &str) {
    feed.publish([(Revision(revision), key)].into_iter());
}

fn keys(names: &[&str], revision: u64) -> Changes {
    let keys = names.iter().map(|name| (*name).to_owned()).collect();
    Changes::Keys { keys, revision: Revision(revision) }
}

#[tokio::test]
async fn a_follower_of_a_kind_gets_its_keys_only() {
    let feed = ChangeFeed::new(Revision(0));
    let mut next = pin!(feed.follow().changed(DOGS, Revision(0)));
    write(&feed, 1, "pets/cat/tom");
    assert!(next.as_mut().now_or_never().is_none());
    write(&feed, 2, "pets/dog/rex");
    assert_eq!(next.await.unwrap(), keys(&["pets/dog/rex"], 2));
}

#[tokio::test]
async fn a_write_before_the_follower_waits_is_not_missed() {
    let feed = ChangeFeed::new(Revision(0));
    let follower = feed.follow();
    write(&feed, 1, "pets/dog/rex");
    assert_eq!(follower.changed(DOGS, Revision(0)).await.unwrap(), keys(&["pets/dog/rex"], 1));
}

#[tokio::test]
async fn many_writes_of_other_kinds_lose_no_follower_of_a_kind() {
    let feed = ChangeFeed::new(Revision(0));
    write(&feed, 1, "pets/dog/rex");
    let follower = feed.follow();
    let mut next = pin!(feed.follow().changed(DOGS, Revision(1)));
    assert!(next.as_mut().now_or_never().is_none());
    for revision in 2..3 + MAX_NAMES as u64 {
        write(&feed, revision, "pets/cat/tom");
    }
    let last = 3 + MAX_NAMES as u64;
    write(&feed, last, "pets/dog/ada");
    assert_eq!(next.await.unwrap(), keys(&["pets/dog/ada"], last));
    // The name of the first dog was dropped.
    let late = follower.changed(DOGS, Revision(0)).await.unwrap();
    assert_eq!(late, Changes::Lost { revision: Revision(last) });
}

#[tokio::test]
async fn the_end_of_the_feed_ends_its_followers() {
    let feed = ChangeFeed::new(Revision(0));
    let (waiting, late) = (feed.follow(), feed.follow());
    let mut waiting = pin!(waiting.changed(DOGS, Revision(0)));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(feed);
    assert!(matches!(waiting.await, Err(Error::Unavailable(_))));
    assert!(matches!(late.changed(DOGS, Revision(0)).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_restart_of_the_feed_wakes_its_followers() {
    let feed = ChangeFeed::new(Revision(5));
    let mut waiting = pin!(feed.follow().newer(DOGS, Revision(5)));
    assert!(waiting.as_mut().now_or_never().is_none());
    feed.restart(Revision(3));
    assert_eq!(waiting.await.unwrap(), Changes::Lost { revision: Revision(3) });
}
