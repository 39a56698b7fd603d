//! Images that lose content, and get it back.

use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::{BuiltContent, Image, ImageState};

use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, StatusCode};
use runtime::Role;
use store::records::Records;
use tinwright::image::v1::ImageSignature;
use tinwright::workflow::v1 as wf;

use super::holders::workflow;
use super::site::{BUILDER, Site, built, content, digest, download, reason, stored};
use crate::kinds::ImageKind;

/// Content is read again after this time.
const MONTH: Duration = Duration::from_hours(30 * 24);

/// Imports a disk, and removes the objects as the restoration of an older store would.
async fn damaged(site: &Site) -> Image {
    let image = site.import(download("acme", "a"), "disk").await;
    for folder in std::fs::read_dir(site.directory.path().join("blobs")).unwrap() {
        for object in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            std::fs::remove_file(object.unwrap().path()).unwrap();
        }
    }
    site.api.reconciler.check_damage().await.unwrap();
    site.image(&image.id).await
}

#[tokio::test]
async fn an_image_without_its_content_is_damaged_and_names_it() {
    let site = Site::new();
    let image = damaged(&site).await;
    assert_eq!(image.state(), ImageState::Damaged);
    assert_eq!(image.state_reason, format!("content {} is missing", image.stored_sha256));
    site.api.reconciler.check_damage().await.unwrap();
    assert_eq!(site.image(&image.id).await.revision, image.revision, "it stays as it is");
}

#[tokio::test]
async fn an_image_is_ready_again_when_all_its_content_is_stored_again() {
    let site = Site::new();
    let image = damaged(&site).await;
    site.put_blob(&digest(&stored("disk")), &stored("disk")).await;
    site.api.reconciler.check_damage().await.unwrap();
    let half = site.image(&image.id).await;
    assert_eq!(half.state(), ImageState::Damaged);
    assert_eq!(half.state_reason, format!("content {} is missing", image.map_sha256));
    let second = site.import(download("other", "a"), "disk").await;
    assert_eq!(second.state(), ImageState::Ready);
    site.api.reconciler.check_damage().await.unwrap();
    let image = site.image(&image.id).await;
    assert_eq!((image.state(), image.state_reason.as_str()), (ImageState::Ready, ""));
}

#[tokio::test]
async fn an_import_does_not_get_content_that_is_lost() {
    let site = Site::new();
    damaged(&site).await;
    let second = site.create(download("other", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    let refused = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(reason(&refused), "BLOB_MISSING");
    site.store("newer form").await;
    let newer = BuiltContent { sha256: digest("disk"), ..built("newer form") };
    site.finish(&leased, Outcome::Content(newer)).await.unwrap();
    let second = site.image(&second.id).await;
    assert_eq!(second.state(), ImageState::Ready);
    assert_eq!(second.stored_sha256, digest(&stored("newer form")));
}

/// True if the images are looked at because of new content; false the next time.
fn is_repair_announced(site: &Site) -> bool {
    site.api.blobs.repaired().now_or_never().is_some()
}

/// Changes the first bit of the stored file of the disk `text`.
fn flip(site: &Site, text: &str) {
    let digest = digest(&stored(text));
    let object = site.objects().into_iter().find(|name| name.starts_with(&digest)).unwrap();
    let path = site.directory.path().join("blobs").join(&digest[..2]).join(object);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_is_found_within_a_month_and_named() {
    let site = Site::new();
    let image = site.import(download("acme", "a"), "disk").await;
    let other = site.import(download("acme", "b"), "other").await;
    flip(&site, "disk");
    site.clock.advance(MONTH - Duration::from_secs(1));
    site.api.reconciler.scrub().await.unwrap();
    assert_eq!(site.image(&image.id).await.state(), ImageState::Ready, "not read yet");
    site.clock.advance(Duration::from_secs(1));
    site.api.reconciler.scrub().await.unwrap();
    let damaged = site.image(&image.id).await;
    assert_eq!(damaged.state(), ImageState::Damaged);
    let mut flipped = stored("disk").into_bytes();
    flipped[0] ^= 1;
    let found = digest(std::str::from_utf8(&flipped).unwrap());
    let expected = format!("content {} is damaged: its SHA-256 is {found}", image.stored_sha256);
    assert_eq!(damaged.state_reason, expected);
    assert_eq!(site.image(&other.id).await, other);
}

#[tokio::test]
async fn damaged_content_is_not_given_to_an_import_and_is_replaced_by_it() {
    let site = Site::new();
    let image = site.import(download("acme", "a"), "disk").await;
    flip(&site, "disk");
    site.clock.advance(MONTH);
    site.api.reconciler.scrub().await.unwrap();
    let build = site.create(download("other", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    let refused = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(reason(&refused), "BLOB_MISSING");
    assert!(!is_repair_announced(&site));
    site.store("disk").await;
    assert!(is_repair_announced(&site));
    site.finish(&leased, content("disk")).await.unwrap();
    assert_eq!(site.image(&build.id).await.state(), ImageState::Ready);
    site.api.reconciler.check_damage().await.unwrap();
    let healed = site.image(&image.id).await;
    assert_eq!((healed.state(), healed.state_reason.as_str()), (ImageState::Ready, ""));
    let path = format!("/blobs/{}", image.stored_sha256);
    let read = site.send(Some(Role::Builder.into()), Method::GET, &path, &[], "").await;
    assert_eq!(read.body, stored("disk"));
    let of_disk = |name: &String| name.starts_with(&image.stored_sha256);
    assert_eq!(site.objects().iter().filter(|it| of_disk(it)).count(), 2);
    site.api.reconciler.collect().await.unwrap();
    assert_eq!(site.objects().iter().filter(|it| of_disk(it)).count(), 1, "the damaged one");
    let read = site.send(Some(Role::Builder.into()), Method::GET, &path, &[], "").await;
    assert_eq!(read.body, stored("disk"));
}

#[tokio::test]
async fn a_newer_form_of_the_same_disk_takes_the_place_of_damaged_content() {
    let site = Site::new();
    let image = site.import(download("acme", "a"), "disk").await;
    let signed = Image { signatures: vec![ImageSignature::default()], ..image.clone() };
    let records = Records::<ImageKind>::new(site.api.blobs.records().store().clone());
    records.replace(&image, signed).await.unwrap();
    flip(&site, "disk");
    site.clock.advance(MONTH);
    site.api.reconciler.scrub().await.unwrap();
    site.create(download("other", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.store("newer form").await;
    let newer = BuiltContent { sha256: digest("disk"), ..built("newer form") };
    assert!(!is_repair_announced(&site));
    site.finish(&leased, Outcome::Content(newer)).await.unwrap();
    assert!(is_repair_announced(&site));
    site.api.reconciler.check_damage().await.unwrap();
    let healed = site.image(&image.id).await;
    assert_eq!((healed.state(), healed.sha256.clone()), (ImageState::Ready, image.sha256.clone()));
    assert_eq!(healed.stored_sha256, digest(&stored("newer form")));
    assert_eq!(healed.stored_bytes, stored("newer form").len() as u64);
    assert_eq!(healed.signatures, [], "they were made for the other map");
    site.api.reconciler.check_damage().await.unwrap();
    assert_eq!(site.image(&image.id).await, healed);
}

#[tokio::test]
async fn what_a_machine_found_to_be_wrong_is_read_at_once() {
    let site = Site::new();
    let image = site.import(download("acme", "a"), "disk").await;
    flip(&site, "disk");
    let mut live = workflow(&image.id, wf::WorkflowState::Running);
    live.image.as_mut().unwrap().stored_sha256 = image.stored_sha256.clone();
    site.holders.workflows.lock().unwrap().push(live);
    site.clock.advance(Duration::from_mins(10));
    let path = format!("/images/{}.raw.zst?workflow=w-1", image.stored_sha256);
    for (headers, state) in
        [(&[][..], ImageState::Ready), (&[("cache-control", "no-cache")][..], ImageState::Damaged)]
    {
        let server = Some(Role::Edge.into());
        let read = site.send(server, Method::GET, &path, headers, "").await;
        assert_eq!(read.status, StatusCode::OK);
        site.api.reconciler.check_suspects().await.unwrap();
        assert_eq!(site.image(&image.id).await.state(), state);
    }
}

#[tokio::test]
async fn content_that_was_read_a_moment_ago_is_not_read_again_for_a_machine() {
    let site = Site::new();
    let image = site.import(download("acme", "a"), "disk").await;
    flip(&site, "disk");
    site.clock.advance(Duration::from_secs(599));
    site.api.blobs.suspects().add(&image.stored_sha256);
    site.api.reconciler.check_suspects().await.unwrap();
    assert_eq!(site.image(&image.id).await.state(), ImageState::Ready);
    site.clock.advance(Duration::from_secs(1));
    site.api.blobs.suspects().add(&image.stored_sha256);
    site.api.reconciler.check_suspects().await.unwrap();
    assert_eq!(site.image(&image.id).await.state(), ImageState::Damaged);
}
