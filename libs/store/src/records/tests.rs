//! Records, their indexes, and repeated requests.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use prost::Message;
use tinwright::secret::Sealable;

use super::requests::{IdempotentRequest, RETENTION, RequestState, delete_expired};
use super::*;
use crate::memory::MemoryStore;
use crate::schema::{self, Migration};
use crate::{Commit, Write};

/// A record with a unique and a shared index.
#[derive(Clone, PartialEq, prost::Message)]
struct Dog {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    revision: i64,
    #[prost(string, tag = "3")]
    chip: String,
    #[prost(string, tag = "4")]
    colour: String,
    #[prost(string, tag = "5")]
    notes: String,
}

impl Sealable for Dog {}

#[derive(Debug)]
enum Dogs {}

tinwright::stored_record!(Dog, "dog", id);

impl Kind for Dogs {
    type Record = Dog;
    type Id = String;
    const KIND: &'static str = "dog";
    const INDEXES: &'static [&'static str] = &["chip", "colour"];

    fn indexes(dog: &Dog) -> Vec<Index> {
        vec![Index::unique("chip", &dog.chip), Index::shared("colour", &dog.colour)]
    }
}

fn dog(id: &str, chip: &str) -> Dog {
    Dog { id: id.into(), chip: chip.into(), colour: "brown".into(), ..Dog::default() }
}

fn dogs() -> Records<Dogs> {
    Records::new(ScopedStore::new(Arc::new(MemoryStore::default()), "dogs"))
}

async fn create(dogs: &Records<Dogs>, dog: &Dog) -> Dog {
    dogs.commit(dogs.to_create(dog)).await.unwrap();
    dogs.get(&dog.id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_record_is_found_by_its_id_and_by_its_index() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    assert_eq!(rex, Dog { revision: rex.revision, ..dog("rex", "1") });
    assert_ne!(rex.revision, 0);
    assert_eq!(dogs.find("chip", "1").await.unwrap(), Some(rex));
    assert_eq!(dogs.find("chip", "2").await.unwrap(), None);
}

#[tokio::test]
async fn records_from_before_an_index_are_found_by_it_after_a_migration() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let rex = dog("rex", "1").encode_to_vec();
    let writes = [("schema", b"2".to_vec()), ("dogs/dog/rex", rex), ("dogs/chip/9", b"rex".into())];
    let writes = writes.map(|(key, value)| Write::Put(key.into(), value.into())).into();
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    schema::migrate(&store, &[Migration::reindex::<Dogs>("index dogs", "dogs")]).await.unwrap();
    let dogs = Records::<Dogs>::new(ScopedStore::new(store, "dogs"));
    assert_eq!(dogs.find("chip", "1").await.unwrap().map(|dog| dog.id), Some("rex".into()));
    assert!(dogs.check(false).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_unique_value_has_one_owner_and_can_be_reused_after_release() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    let taken = dogs.commit(dogs.to_create(&dog("ada", "1"))).await;
    assert!(matches!(taken, Err(error) if error.to_string() == "chip 1 is taken by dog rex"));
    assert_eq!(dogs.get("ada").await.unwrap(), None);
    dogs.commit(dogs.to_replace(&rex, &Dog { chip: "2".into(), ..rex.clone() })).await.unwrap();
    let ada = create(&dogs, &dog("ada", "1")).await;
    assert_eq!(dogs.find("chip", "1").await.unwrap(), Some(ada));
}

#[tokio::test]
async fn a_change_of_an_outdated_record_is_refused() {
    let dogs = dogs();
    let seen = create(&dogs, &dog("rex", "1")).await;
    let black = Dog { colour: "black".into(), ..seen.clone() };
    dogs.commit(dogs.to_replace(&seen, &black)).await.unwrap();
    for late in [dogs.to_replace(&seen, &seen), dogs.to_delete(&seen)] {
        assert!(matches!(dogs.commit(late).await, Err(Error::Changed { id, .. }) if id == "rex"));
    }
    assert_eq!(dogs.get("rex").await.unwrap().unwrap().colour, "black");
}

#[tokio::test]
async fn a_deleted_record_leaves_nothing_behind() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    dogs.commit(dogs.to_delete(&rex)).await.unwrap();
    assert!(dogs.store().list("", "", 10).await.unwrap().pairs.is_empty());
}

#[tokio::test]
async fn a_changed_record_leaves_no_old_index_entry() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    dogs.replace(&rex, Dog { colour: "black".into(), ..rex.clone() }).await.unwrap();
    let entries = dogs.store().list("colour/", "", 10).await.unwrap().pairs;
    assert_eq!(
        entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
        ["colour/black/rex"]
    );
}

#[tokio::test]
async fn a_create_does_not_overwrite_a_record() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    let again = dogs.commit(dogs.to_create(&dog("rex", "2"))).await;
    assert!(matches!(again, Err(Error::Exists { id, .. }) if id == "rex"));
    assert_eq!(dogs.get("rex").await.unwrap(), Some(rex));
}

#[tokio::test]
async fn pages_follow_each_other_in_id_order() {
    let dogs = dogs();
    for n in 0..5 {
        create(&dogs, &dog(&format!("d{n}"), &n.to_string())).await;
    }
    let (first, more) = dogs.page("", "", 3).await.unwrap();
    assert_eq!((first.len(), more), (3, true));
    let (rest, more) = dogs.page("", &first[2].id, 3).await.unwrap();
    assert_eq!((rest[0].id.as_str(), rest.len(), more), ("d3", 2, false));
}

#[tokio::test]
async fn a_page_of_a_prefix_has_only_ids_with_it() {
    let dogs = dogs();
    for (n, id) in ["a.1", "a.2", "a.3", "ab.1", "b.1"].into_iter().enumerate() {
        create(&dogs, &dog(id, &n.to_string())).await;
    }
    let (first, more) = dogs.page("a.", "", 2).await.unwrap();
    assert_eq!((first[1].id.as_str(), more), ("a.2", true));
    let (rest, more) = dogs.page("a.", "a.2", 2).await.unwrap();
    assert_eq!((rest[0].id.as_str(), rest.len(), more), ("a.3", 1, false));
}

#[tokio::test]
async fn a_check_finds_and_repairs_wrong_index_entries() {
    let dogs = dogs();
    create(&dogs, &dog("rex", "1")).await;
    create(&dogs, &dog("ada", "2")).await;
    assert!(dogs.check(false).await.unwrap().is_clean());
    let damage = vec![
        Write::Delete("chip/1".into()),
        Write::Put("chip/2".into(), "rex".into()),
        Write::Put("chip/9".into(), "rex".into()),
        Write::Put("colour/red/ada".into(), "ada".into()),
    ];
    dogs.store().commit(Commit { writes: damage, ..Commit::default() }).await.unwrap();
    let report = dogs.check(true).await.unwrap();
    assert_eq!((report.records, report.entries), (2, 5));
    assert_eq!(report.missing, ["chip/1", "chip/2"]);
    assert_eq!(report.stray, ["chip/9", "colour/red/ada"]);
    assert!(dogs.check(false).await.unwrap().is_clean());
    assert_eq!(dogs.find("chip", "1").await.unwrap().unwrap().id, "rex");
}

#[tokio::test]
async fn a_check_cannot_repair_corrupt_records_and_contested_values() {
    let dogs = dogs();
    create(&dogs, &dog("rex", "1")).await;
    let twin = dog("twin", "1").encode_to_vec();
    let damage = vec![
        Write::Put("dog/junk".into(), vec![0xff].into()),
        Write::Put("dog/twin".into(), twin.into()),
    ];
    dogs.store().commit(Commit { writes: damage, ..Commit::default() }).await.unwrap();
    let report = dogs.check(true).await.unwrap();
    assert_eq!(report.corrupt, ["dog/junk"]);
    assert_eq!(report.contested, ["chip/1"]);
}

#[tokio::test]
async fn a_repeated_request_returns_its_result_and_another_body_is_refused() {
    let dogs = dogs();
    let request = IdempotentRequest::new("r1", &dog("", "1")).unwrap();
    assert_eq!(request.state(dogs.store()).await.unwrap(), RequestState::New);
    let change =
        dogs.to_create(&dog("rex", "1")).and(request.done("rex", UNIX_EPOCH, dogs.store()));
    dogs.commit(change).await.unwrap();
    assert_eq!(request.state(dogs.store()).await.unwrap(), RequestState::Done("rex".into()));
    let other = IdempotentRequest::new("r1", &dog("", "2")).unwrap();
    assert_eq!(other.state(dogs.store()).await.unwrap(), RequestState::Reused);
    assert_eq!(IdempotentRequest::new("", &dog("", "1")), None);
}

#[tokio::test]
async fn a_second_record_for_the_same_request_is_refused() {
    let dogs = dogs();
    let request = IdempotentRequest::new("r1", &dog("", "1")).unwrap();
    let made =
        |id, chip| dogs.to_create(&dog(id, chip)).and(request.done(id, UNIX_EPOCH, dogs.store()));
    dogs.commit(made("rex", "1")).await.unwrap();
    // Nothing else is in its way: the state of the request was read before the first was made.
    assert!(matches!(dogs.commit(made("ada", "2")).await, Err(Error::Changed { .. })));
    assert_eq!(dogs.get("ada").await.unwrap(), None);
}

#[tokio::test]
async fn a_result_is_deleted_after_a_week() {
    let dogs = dogs();
    let start = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (id, at) in [("old", start), ("new", start + Duration::from_secs(60))] {
        let request = IdempotentRequest::new(id, &dog("", "1")).unwrap();
        dogs.commit(request.done("rex", at, dogs.store())).await.unwrap();
    }
    assert_eq!(delete_expired(dogs.store(), start + RETENTION).await.unwrap(), 0);
    assert_eq!(
        delete_expired(dogs.store(), start + RETENTION + Duration::from_secs(1)).await.unwrap(),
        1
    );
    let new = IdempotentRequest::new("new", &dog("", "1")).unwrap();
    assert_eq!(new.state(dogs.store()).await.unwrap(), RequestState::Done("rex".into()));
}

#[tokio::test]
async fn more_expired_requests_than_a_page_are_all_deleted() {
    let dogs = dogs();
    for n in 0..1100 {
        let request = IdempotentRequest::new(&format!("{n}"), &dog("", "1")).unwrap();
        dogs.commit(request.done("rex", UNIX_EPOCH, dogs.store())).await.unwrap();
    }
    let now = UNIX_EPOCH + RETENTION + Duration::from_secs(1);
    assert_eq!(delete_expired(dogs.store(), now).await.unwrap(), 1100);
    assert!(dogs.store().list("", "", 1).await.unwrap().pairs.is_empty());
}

#[tokio::test]
async fn two_concurrent_equal_requests_create_one_record() {
    let dogs = dogs();
    let request = IdempotentRequest::new("r1", &dog("", "1"));
    let ask = |id| {
        let (dogs, request, dog) = (dogs.clone(), request.clone(), dog(id, "1"));
        async move { dogs.create(&dog, Change::default(), request.as_ref()).await.unwrap() }
    };
    let (first, second) = tokio::join!(ask("rex"), ask("ada"));
    assert_eq!(first, second);
    assert_eq!(dogs.page("", "", 9).await.unwrap().0, [first]);
}

#[tokio::test]
async fn a_listing_with_a_strict_filter_misses_no_record() {
    let dogs = dogs();
    for n in 0..9 {
        let colour = if n % 3 == 0 { "black" } else { "brown" };
        let dog = Dog { colour: colour.into(), ..dog(&format!("d{n}"), &n.to_string()) };
        create(&dogs, &dog).await;
    }
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let part = dogs.list(&after, 2, |dog| dog.colour == "black").await.unwrap();
        ids.extend(part.records.into_iter().map(|dog| dog.id));
        match part.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(ids, ["d0", "d3", "d6"]);
}

#[tokio::test]
async fn a_page_of_long_records_fits_a_message_and_no_record_is_missed() {
    let dogs = dogs();
    let ids: Vec<_> = (10..23).map(|n| format!("d{n}")).collect();
    for id in &ids {
        let colour = if id == "d11" { "black" } else { "brown" }.into();
        let notes = "x".repeat(400 * 1024);
        create(&dogs, &Dog { colour, notes, ..dog(id, id) }).await;
    }
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let part = dogs.list(&after, 100, |dog| dog.colour == "brown").await.unwrap();
        assert!(part.records.iter().map(Message::encoded_len).sum::<usize>() < 3 * 1024 * 1024);
        pages.push(part.records.into_iter().map(|dog| dog.id).collect::<Vec<_>>());
        match part.next {
            Some(next) => after = next,
            None => break,
        }
    }
    // The second page is full with the last record: an empty one need not follow.
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    assert_eq!(pages.concat(), [&ids[..1], &ids[2..]].concat());
}

#[tokio::test]
async fn a_change_applies_to_the_revision_that_the_caller_read() {
    let dogs = dogs();
    let rex = create(&dogs, &dog("rex", "1")).await;
    assert_eq!(dogs.at("rex", rex.revision).await.unwrap(), rex);
    assert_eq!(dogs.at("rex", 0).await.unwrap(), rex);
    assert!(matches!(dogs.at("rex", rex.revision + 1).await, Err(Error::Changed { .. })));
    assert!(matches!(dogs.at("ada", 0).await, Err(Error::Missing { name, .. }) if name == "ada"));
    let same = dogs.replace(&rex, rex.clone()).await.unwrap();
    assert_eq!(same, rex, "not even its revision");
    let black = dogs.replace(&rex, Dog { colour: "black".into(), ..rex.clone() }).await.unwrap();
    assert_eq!(dogs.get("rex").await.unwrap(), Some(black));
}
