//! Following records: everything, then what changed; one reader for all.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use prost::Message as _;
use tinwright::watch::WatchEvent;
use tokio::sync::Semaphore;

use super::table::Content;
use super::*;
use crate::memory::MemoryStore;
use crate::records::{Index, Mirrored};
use crate::{Changes, Commit, Page, Revision, ScopedStore, Store, Versioned, Write, limits};

#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    revision: i64,
    #[prost(string, tag = "3")]
    text: String,
}

impl tinwright::secret::Sealable for Note {}

#[derive(Debug)]
enum Notes {}

tinwright::stored_record!(Note, "note", id);

impl Kind for Notes {
    type Record = Note;
    type Id = String;
    const KIND: &'static str = "note";
}

/// Counts what is asked of a store, and makes trouble.
#[derive(Default)]
struct Counting {
    store: MemoryStore,
    gets: AtomicUsize,
    lists: AtomicUsize,
    /// Somebody writes this when the first listing has been read and is not answered yet.
    meanwhile: Mutex<Option<Commit>>,
    /// The reader is too far behind to get keys.
    lost: AtomicBool,
    /// One permit for each page that is read; none if pages are not limited.
    pages: Option<Semaphore>,
}

#[async_trait]
impl Store for Counting {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, crate::Error> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, crate::Error> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        if let Some(pages) = &self.pages {
            pages.acquire().await.unwrap().forget();
        }
        let page = self.store.list(prefix, after, limit).await;
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(commit) = meanwhile {
            self.store.commit(commit).await?;
        }
        page
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, crate::Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, crate::Error> {
        let changes = self.store.changed(prefix, after).await?;
        let (Changes::Keys { revision, .. } | Changes::Lost { revision }) = changes;
        let lost = self.lost.load(Ordering::Relaxed);
        Ok(if lost { Changes::Lost { revision } } else { changes })
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.store.is_unchanged(prefix, revision)
    }
}

struct Fixture {
    store: Arc<Counting>,
    notes: Records<Notes>,
    mirror: Mirror<Notes>,
    stop: CancellationToken,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A mirror that runs.
fn fixture() -> Fixture {
    fixture_over(Counting::default())
}

fn fixture_over(store: Counting) -> Fixture {
    let store = Arc::new(store);
    let notes = Records::new(ScopedStore::new(store.clone(), "notes"));
    let (mirror, stop) = (Mirror::new(notes.clone()), CancellationToken::new());
    let (running, until) = (mirror.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    Fixture { store, notes, mirror, stop }
}

impl Fixture {
    async fn write(&self, id: &str, text: &str) -> Note {
        let new = Note { id: id.into(), revision: 0, text: text.into() };
        let change = match self.notes.get(id).await.unwrap() {
            Some(old) => self.notes.to_replace(&old, &new),
            None => self.notes.to_create(&new),
        };
        self.notes.commit(change).await.unwrap();
        self.notes.get(id).await.unwrap().unwrap()
    }

    async fn delete(&self, id: &str) {
        let old = self.notes.get(id).await.unwrap().unwrap();
        self.notes.commit(self.notes.to_delete(&old)).await.unwrap();
    }
}

async fn next(watcher: &mut Watcher<Notes>) -> WatchEvent<Note> {
    let soon = tokio::time::timeout(Duration::from_secs(60), watcher.next());
    soon.await.expect("something to tell").unwrap()
}

#[tokio::test]
async fn a_watcher_gets_all_records_then_synced_then_changes() {
    let f = fixture();
    let a = f.write("a", "1").await;
    f.mirror.ready().await;
    let mut watcher = f.mirror.watch();
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(a));
    assert_eq!(next(&mut watcher).await, WatchEvent::Synced);
    let b = f.write("b", "1").await;
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(b.clone()));
    f.delete("b").await;
    assert_eq!(next(&mut watcher).await, WatchEvent::Deleted("b".into()));
    assert_eq!(f.mirror.get("b"), None);
}

#[tokio::test]
async fn the_creator_of_a_record_who_follows_it_at_once_gets_it_before_synced() {
    let f = fixture();
    f.mirror.ready().await;
    let a = f.write("a", "1").await;
    assert_eq!(f.mirror.get("a"), None, "the mirror has not read it yet");
    let mut watcher = f.mirror.watch_one("a");
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(a));
    assert_eq!(next(&mut watcher).await, WatchEvent::Synced);
    let mut of_none = f.mirror.watch_one("b");
    assert_eq!(next(&mut of_none).await, WatchEvent::Synced);
}

#[tokio::test]
async fn a_slow_watcher_gets_only_the_latest_state() {
    let f = fixture();
    f.mirror.ready().await;
    let (mut slow, mut quick) = (f.mirror.watch(), f.mirror.watch());
    assert_eq!(next(&mut slow).await, WatchEvent::Synced);
    let mut last = f.write("a", "0").await;
    for n in 1..20 {
        last = f.write("a", &n.to_string()).await;
    }
    while next(&mut quick).await != WatchEvent::Put(last.clone()) {}
    assert_eq!(next(&mut slow).await, WatchEvent::Put(last));
}

#[tokio::test]
async fn a_record_written_during_the_first_list_is_sent() {
    let note = Note { id: "a".into(), revision: 0, text: "1".into() };
    let write = Write::Put("notes/note/a".into(), note.encode_to_vec().into());
    let commit = Commit { expect: Vec::new(), writes: vec![write] };
    let f = fixture_over(Counting { meanwhile: Some(commit).into(), ..Counting::default() });
    let mut watcher = f.mirror.watch();
    while !matches!(next(&mut watcher).await, WatchEvent::Put(found) if found.id == "a") {}
}

#[tokio::test]
async fn a_change_during_the_snapshot_is_sent_after_it() {
    let f = fixture();
    let a = f.write("a", "1").await;
    f.mirror.ready().await;
    let mut watcher = f.mirror.watch();
    while f.mirror.get("a").is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(a));
    let b = f.write("b", "1").await;
    while f.mirror.get("b").is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(next(&mut watcher).await, WatchEvent::Synced);
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(b));
}

#[tokio::test]
async fn a_mirror_that_was_too_far_behind_drops_what_was_deleted_meanwhile() {
    let f = fixture();
    let a = f.write("a", "1").await;
    f.mirror.ready().await;
    let mut watcher = f.mirror.watch();
    while next(&mut watcher).await != WatchEvent::Put(a.clone()) {}
    f.store.lost.store(true, Ordering::Relaxed);
    f.delete("a").await;
    while next(&mut watcher).await != WatchEvent::Deleted("a".into()) {}
    assert_eq!(f.mirror.get("a"), None);
}

#[tokio::test]
async fn a_long_list_is_applied_page_by_page() {
    let store = Counting { pages: Some(Semaphore::new(1)), ..Counting::default() };
    for ids in (0..600).collect::<Vec<_>>().chunks(limits::MAX_WRITES) {
        let put = |id: &i32| Write::Put(format!("notes/note/{id:03}"), "".into());
        let commit = Commit { writes: ids.iter().map(put).collect(), ..Commit::default() };
        store.commit(commit).await.unwrap();
    }
    let f = fixture_over(store);
    let first_page = async {
        while f.mirror.get("000").is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), first_page).await.expect("before the second");
    assert_eq!(f.mirror.get("599"), None);
    f.store.pages.as_ref().unwrap().add_permits(1);
    f.mirror.ready().await;
    assert!(f.mirror.get("599").is_some());
}

#[tokio::test]
async fn repeated_changes_of_a_record_take_no_more_memory() {
    let f = fixture();
    f.mirror.ready().await;
    let mut watcher = f.mirror.watch_one("a");
    for n in 0..20 {
        let last = f.write("a", &n.to_string()).await;
        while next(&mut watcher).await != WatchEvent::Put(last.clone()) {}
    }
    assert_eq!(f.mirror.follower.read().changes(), 1);
}

/// Returns the ids of all notes, in pages of two.
async fn listed(mirror: &Mirror<Notes>) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = mirror.records().list_from(mirror, &after, 2, |_| true).await.unwrap();
        ids.extend(page.records.into_iter().map(|note| note.id));
        match page.next {
            Some(next) => after = next,
            None => return ids,
        }
    }
}

#[tokio::test]
async fn pages_are_read_from_memory_while_the_mirror_has_everything() {
    let fixture = fixture();
    for id in ["c", "a", "e", "b", "d"] {
        fixture.write(id, "text").await;
    }
    fixture.delete("b").await;
    let mut watcher = fixture.mirror.watch();
    while next(&mut watcher).await != WatchEvent::Synced {}
    // Another kind's change makes no difference.
    let put = Write::Put("notes/other/x".into(), "y".into());
    fixture.store.commit(Commit { writes: vec![put], ..Commit::default() }).await.unwrap();
    let lists = fixture.store.lists.load(Ordering::Relaxed);
    assert_eq!(listed(&fixture.mirror).await, ["a", "c", "d", "e"]);
    assert_eq!(fixture.store.lists.load(Ordering::Relaxed), lists);
}

#[tokio::test]
async fn a_record_is_read_from_memory_unless_the_mirror_is_late() {
    let fixture = fixture();
    let a = fixture.write("a", "1").await;
    let mut watcher = fixture.mirror.watch();
    while next(&mut watcher).await != WatchEvent::Synced {}
    let gets = fixture.store.gets.load(Ordering::Relaxed);
    assert_eq!(fixture.mirror.current("a").await.unwrap(), Some(a));
    assert_eq!(fixture.mirror.current("b").await.unwrap(), None);
    assert_eq!(fixture.store.gets.load(Ordering::Relaxed), gets);
    let b = fixture.write("b", "1").await;
    assert_eq!(fixture.mirror.get("b"), None, "the mirror has not read it yet");
    assert_eq!(fixture.mirror.current("b").await.unwrap(), Some(b));
}

#[tokio::test]
async fn a_page_has_what_was_written_before_it_although_the_mirror_is_late() {
    let fixture = fixture();
    let mut expected = BTreeSet::new();
    for n in 0..400 {
        let id = format!("{:02}", n * 7 % 50);
        if n % 3 == 2 && expected.remove(&id) {
            fixture.delete(&id).await;
        } else {
            fixture.write(&id, &n.to_string()).await;
            expected.insert(id);
        }
        // The mirror's task gets its turn at some of the writes only.
        if n % 5 == 0 {
            tokio::task::yield_now().await;
        }
        assert!(listed(&fixture.mirror).await.iter().eq(&expected), "after write {n}");
    }
    let lists = fixture.store.lists.load(Ordering::Relaxed);
    assert!(lists > 1, "the mirror was never late");
}

#[tokio::test]
async fn a_watcher_of_one_record_gets_only_its_events() {
    let f = fixture();
    f.mirror.ready().await;
    let mut watcher = f.mirror.watch_one("b");
    assert_eq!(next(&mut watcher).await, WatchEvent::Synced);
    f.write("a", "1").await;
    let b = f.write("b", "1").await;
    assert_eq!(next(&mut watcher).await, WatchEvent::Put(b));
    f.delete("b").await;
    assert_eq!(next(&mut watcher).await, WatchEvent::Deleted("b".into()));
}

#[tokio::test]
async fn one_change_among_ten_thousand_watchers_is_one_read_and_wakes_one() {
    let f = fixture();
    f.mirror.ready().await;
    let mut watchers: Vec<_> = (0..10_000).map(|n| f.mirror.watch_one(&n.to_string())).collect();
    for watcher in &mut watchers {
        assert_eq!(next(watcher).await, WatchEvent::Synced);
    }
    let before = (f.store.gets.load(Ordering::Relaxed), f.store.lists.load(Ordering::Relaxed));
    let change = Note { id: "77".into(), revision: 0, text: "x".into() };
    f.notes.commit(f.notes.to_create(&change)).await.unwrap();
    assert!(matches!(next(&mut watchers[77]).await, WatchEvent::Put(note) if note.id == "77"));
    let awake = watchers.iter().filter(|watcher| watcher.is_awake()).count();
    assert_eq!(awake, 0, "others that were woken");
    let after = (f.store.gets.load(Ordering::Relaxed), f.store.lists.load(Ordering::Relaxed));
    assert_eq!(after, (before.0 + 1, before.1));
}

#[tokio::test]
async fn a_watcher_that_missed_dropped_deletions_begins_again() {
    let f = fixture();
    f.mirror.ready().await;
    let mut slow = f.mirror.watch();
    assert_eq!(next(&mut slow).await, WatchEvent::Synced);
    let found = Versioned { value: "".into(), revision: Revision(7) };
    for n in 0..=table::MAX_TOMBSTONES {
        let mut table = f.mirror.follower.write();
        table.set(&n.to_string(), Content::Held(found.clone()), false);
        table.set(&n.to_string(), Content::Deleted, false);
    }
    assert_eq!(slow.next().await, Err(TooSlow));
    let mut fresh = f.mirror.watch();
    assert_eq!(next(&mut fresh).await, WatchEvent::Synced);
}

#[tokio::test]
async fn a_dropped_watcher_leaves_no_sender() {
    let f = fixture();
    drop(f.mirror.watch_one("a"));
    let kept = f.mirror.watch_one("b");
    assert_eq!(f.mirror.follower.read().waiting(), 1);
    drop(kept);
    assert_eq!(f.mirror.follower.read().waiting(), 0);
}

/// Notes of which a mirror holds those whose text is not "ended".
#[derive(Debug)]
enum LiveNotes {}

impl Kind for LiveNotes {
    type Record = Note;
    type Id = String;
    const KIND: &'static str = "note";
    const INDEXES: &'static [&'static str] = &["live"];
    const MIRRORED: Mirrored = Mirrored::Indexed("live");

    fn indexes(note: &Note) -> Vec<Index> {
        (note.text != "ended").then(|| Index::unique("live", &note.id)).into_iter().collect()
    }
}

/// A mirror that holds live notes only, over `store`.
struct Live {
    notes: Records<LiveNotes>,
    mirror: Mirror<LiveNotes>,
    stop: CancellationToken,
}

impl Live {
    fn over(store: Arc<Counting>) -> Self {
        let notes = Records::new(ScopedStore::new(store, "notes"));
        let (mirror, stop) = (Mirror::new(notes.clone()), CancellationToken::new());
        let (running, until) = (mirror.clone(), stop.clone());
        tokio::spawn(async move { running.run(until).await });
        Self { notes, mirror, stop }
    }

    async fn write(&self, id: &str, text: &str) -> Note {
        let new = Note { id: id.into(), revision: 0, text: text.into() };
        let change = match self.notes.get(id).await.unwrap() {
            Some(old) => self.notes.to_replace(&old, &new),
            None => self.notes.to_create(&new),
        };
        self.notes.commit(change).await.unwrap();
        self.notes.get(id).await.unwrap().unwrap()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn next_live(watcher: &mut Watcher<LiveNotes>) -> WatchEvent<Note> {
    tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_record_that_is_not_held_passes_through_and_is_in_no_snapshot() {
    let live = Live::over(Arc::default());
    live.mirror.ready().await;
    let (mut all, mut one) = (live.mirror.watch(), live.mirror.watch_one("a"));
    for watcher in [&mut all, &mut one] {
        assert_eq!(next_live(watcher).await, WatchEvent::Synced);
    }
    let a = live.write("a", "1").await;
    assert_eq!(next_live(&mut all).await, WatchEvent::Put(a));
    let b = live.write("b", "1").await;
    assert_eq!(next_live(&mut all).await, WatchEvent::Put(b.clone()));
    let ended = live.write("a", "ended").await;
    assert_eq!(next_live(&mut all).await, WatchEvent::Put(ended.clone()));
    while next_live(&mut one).await != WatchEvent::Put(ended.clone()) {}
    let mut late = live.mirror.watch();
    assert_eq!(next_live(&mut late).await, WatchEvent::Put(b));
    assert_eq!(next_live(&mut late).await, WatchEvent::Synced);
    live.notes.commit(live.notes.to_delete(&ended)).await.unwrap();
    for watcher in [&mut all, &mut one] {
        assert_eq!(next_live(watcher).await, WatchEvent::Deleted("a".into()));
    }
}

#[tokio::test]
async fn only_held_records_are_read_at_the_start() {
    let store = Arc::new(Counting::default());
    let first = Live::over(store.clone());
    for n in 0..50 {
        first.write(&n.to_string(), if n < 3 { "live" } else { "ended" }).await;
    }
    drop(first);
    tokio::task::yield_now().await;
    let second = Live::over(store.clone());
    second.mirror.ready().await;
    assert_eq!(second.mirror.follower.read().ids().len(), 3);
}

#[tokio::test]
async fn records_that_pass_through_need_bounded_memory_and_slow_watchers_begin_again() {
    let live = Live::over(Arc::default());
    live.mirror.ready().await;
    let (mut all, mut one) = (live.mirror.watch(), live.mirror.watch_one("0"));
    let mut other = live.mirror.watch_one("other");
    for watcher in [&mut all, &mut one, &mut other] {
        assert_eq!(next_live(watcher).await, WatchEvent::Synced);
    }
    let value = vec![0; 64 * 1024];
    for n in 0..200_u64 {
        let found = Versioned { value: value.clone().into(), revision: Revision(n + 1) };
        live.mirror.follower.write().set(&n.to_string(), Content::Passing(found), true);
    }
    let rows = live.mirror.follower.read().changes();
    assert!((50..=64).contains(&rows), "{rows} rows of 64 KiB");
    assert_eq!((all.next().await, one.next().await), (Err(TooSlow), Err(TooSlow)));
    let note = live.write("other", "1").await;
    assert_eq!(next_live(&mut other).await, WatchEvent::Put(note), "it has missed nothing");
}

#[tokio::test]
async fn a_record_that_ended_while_the_mirror_was_too_far_behind_is_sent() {
    let store = Arc::new(Counting::default());
    let live = Live::over(store.clone());
    live.mirror.ready().await;
    let mut all = live.mirror.watch();
    assert_eq!(next_live(&mut all).await, WatchEvent::Synced);
    let a = live.write("a", "1").await;
    assert_eq!(next_live(&mut all).await, WatchEvent::Put(a));
    store.lost.store(true, Ordering::Relaxed);
    let ended = live.write("a", "ended").await;
    assert_eq!(next_live(&mut all).await, WatchEvent::Put(ended));
}
