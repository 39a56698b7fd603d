//! Images after a restore: the store is older than the directory of images.

use std::time::Duration;

use tinwright::event::v1::ListEventsRequest;
use tinwright::event::v1::event_service_client::EventServiceClient;
use tinwright::image::v1 as pb;

use super::backup::{back_up, restore, store_of};
use super::images::{Site, create, disk, settled, upload};
use super::process::{Place, Process, get, soon};

/// The beginning of the line of readiness.
const NOT_COLLECTED: &str = "content of images is not collected since the store was restored";
/// The warning in the log, at each collection that removes nothing.
const HELD: &str = "content of images is not collected: the store was restored";

/// Uploads a disk that begins with `first`, and waits until its image is ready.
async fn import(site: &Site, name: &str, first: u8) -> pb::Image {
    let mut images = site.images(None).await;
    let image = create(&mut images, name, upload("disk.raw"), "").await;
    let mut disk = disk();
    disk[0] = first;
    assert_eq!(site.upload(&image.id, &site.file("disk.raw", &disk)), "201");
    let ready = settled(&mut images, &image.id).await;
    assert_eq!(ready.state(), pb::ImageState::Ready, "{}", ready.state_reason);
    ready
}

/// Waits until `is_so`.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// True if readiness says that content is not collected.
async fn is_named(server: &Process) -> bool {
    let text = get(server.place.vitals, "/readyz").await;
    text.is_some_and(|text| text.starts_with("ready\n") && text.contains(NOT_COLLECTED))
}

/// Checks that there is one event of the resumed collection, with its caller.
async fn check_event(server: &Process) {
    let mut events = EventServiceClient::new(server.channel().await);
    let request = ListEventsRequest { page_size: 1000, ..ListEventsRequest::default() };
    let mut found = events.list_events(request).await.unwrap().into_inner().events;
    found.retain(|event| event.noun == "store");
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!(event.call, "StoreService/ResumeImageCollection");
    assert_eq!((event.owner.as_str(), event.role.as_str()), ("image", "admin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn content_since_the_backup_stays_until_the_collection_is_resumed() {
    let site = Site::of(Place::new().start(&[]).await);
    let known = import(&site, "known", 1).await;
    let file = site.server.place.path("backup");
    back_up(&site.server, &file).await;
    import(&site, "later", 2).await;
    assert!(!is_named(&site.server).await, "the store was never restored");
    let stored = site.stored("blobs");
    assert_eq!(stored.len(), 4, "two files and their maps");

    let place = site.server.terminate();
    std::fs::remove_dir_all(place.path("data/store")).unwrap();
    let text = restore(&place, &file).await.unwrap();
    assert!(text.contains("tinwright store resume"), "{text}");
    let site = Site::of(place.start(&[]).await);
    until(async || site.server.log().contains(HELD)).await;
    until(async || is_named(&site.server).await).await;
    assert_eq!(site.stored("blobs"), stored);

    let text = store_of(&site.server, &["resume"]).await;
    assert!(text.starts_with("content of images is collected again"), "{text}");
    until(async || site.stored("blobs").len() == 2).await;
    until(async || !is_named(&site.server).await).await;
    assert!(!site.blob(&known.stored_sha256).is_empty());
    let text = store_of(&site.server, &["resume"]).await;
    assert!(text.starts_with("nothing to resume"), "{text}");
    check_event(&site.server).await;

    let site = Site::of(site.server.terminate().start(&[]).await);
    assert!(!is_named(&site.server).await, "the mark is gone for good");
    assert!(!site.blob(&known.map_sha256).is_empty());
}
