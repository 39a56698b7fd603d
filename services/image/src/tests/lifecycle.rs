//! Builds over gRPC: from the lease to the end, with and without failures.

use std::time::Duration;

use tinwright::image::v1 as pb;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::{BuildState, ImageState};
use tonic::{Code, Status};

use super::site::{
    BUILDER, Site, built, content, digest, download, failure, reason, stored, upload,
};

/// Duration of a lease.
const LEASE: Duration = Duration::from_secs(60);
/// Quota of a tenant in bytes.
const MAX_BYTES: u64 = 1 << 40;

async fn report(site: &Site, build: &pb::Build, step: &str) -> Result<(), Status> {
    let lease = build.lease.clone().unwrap();
    let request = pb::ReportBuildRequest {
        build_id: build.id.clone(),
        holder: lease.holder,
        attempt: lease.attempt,
        step: step.into(),
        progress: Some(pb::ImageProgress { current_bytes: 1, total_bytes: 2 }),
    };
    site.builder().report_build(request).await.map(drop)
}

async fn build(site: &Site, id: &str) -> pb::Build {
    let by = Some(pb::get_build_request::By::Id(id.into()));
    let found = site.builds("").get_build(pb::GetBuildRequest { by }).await.unwrap();
    found.into_inner().build.unwrap()
}

#[tokio::test]
async fn a_build_is_leased_reported_and_finished() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    assert_eq!((leased.image_id.as_str(), leased.attempts), (image.id.as_str(), 1));
    assert_eq!(site.lease(BUILDER).await.id, leased.id, "the holder has it already");
    report(&site, &leased, "downloading").await.unwrap();
    let image = site.image(&image.id).await;
    assert_eq!((image.step.as_str(), image.progress.unwrap().total_bytes), ("downloading", 2));
    site.store("disk").await;
    site.finish(&leased, content("disk")).await.unwrap();
    let image = site.image(&image.id).await;
    assert_eq!((image.state(), image.step.as_str()), (ImageState::Ready, ""));
    assert_eq!(image.stored_sha256, digest(&stored("disk")));
    assert_eq!(build(&site, &leased.id).await.state(), BuildState::Completed);
    site.finish(&leased, content("disk")).await.unwrap();
    let other = site.finish(&leased, content("other")).await.unwrap_err();
    assert_eq!(reason(&other), "BUILD_ENDED");
    let failed = site.finish(&leased, failure("x", true)).await.unwrap_err();
    assert_eq!(reason(&failed), "BUILD_ENDED");
}

#[tokio::test]
async fn content_that_is_not_stored_is_named() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    let refused = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "BLOB_MISSING")
    );
    assert!(refused.message().contains(&digest(&stored("disk"))), "{refused}");
    assert_eq!(site.image(&image.id).await.state(), ImageState::Processing);
    site.store("disk").await;
    site.finish(&leased, content("disk")).await.unwrap();
}

#[tokio::test]
async fn a_builder_that_is_gone_loses_its_lease_and_the_build_fails_after_three() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    for attempt in 1..=3 {
        let leased = site.lease(&format!("builder-{attempt}")).await;
        assert_eq!(leased.attempts, attempt);
        site.pass(LEASE - Duration::from_secs(1)).await;
        report(&site, &leased, "downloading").await.unwrap();
        site.pass(LEASE).await;
        let lost = report(&site, &leased, "downloading").await.unwrap_err();
        let expected = if attempt < 3 { "LEASE_LOST" } else { "BUILD_ENDED" };
        assert_eq!(reason(&lost), expected);
    }
    let ended = build(&site, &image.build_id).await;
    assert_eq!(ended.state(), BuildState::Error);
    let image = site.image(&image.id).await;
    assert_eq!(image.state(), ImageState::Failed);
    assert_eq!(image.state_reason, "the builder of attempt 3 is gone");
}

#[tokio::test]
async fn a_failure_that_may_be_retried_is_retried() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease("a").await;
    site.finish(&leased, failure("connection lost", true)).await.unwrap();
    let again = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(reason(&again), "LEASE_LOST");
    let leased = site.lease("b").await;
    site.finish(&leased, failure("not a disk", false)).await.unwrap();
    let image = site.image(&image.id).await;
    assert_eq!((image.state(), image.state_reason.as_str()), (ImageState::Failed, "not a disk"));
}

#[tokio::test]
async fn a_canceled_build_stops_and_its_image_fails() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    let request = pb::CancelBuildRequest { id: leased.id.clone() };
    let hidden = site.builds("other").cancel_build(request.clone()).await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound);
    for _ in 0..2 {
        let canceled = site.builds("acme").cancel_build(request.clone()).await.unwrap();
        assert_eq!(canceled.into_inner().build.unwrap().state(), BuildState::Canceled);
    }
    assert_eq!(reason(&report(&site, &leased, "x").await.unwrap_err()), "BUILD_ENDED");
    site.store("disk").await;
    let refused = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(reason(&refused), "BUILD_ENDED");
    assert_eq!(site.image(&image.id).await.state(), ImageState::Failed);
}

#[tokio::test]
async fn a_builder_stops_when_the_image_is_deleted() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.delete("acme", &image.id).await.unwrap();
    assert_eq!(reason(&report(&site, &leased, "x").await.unwrap_err()), "BUILD_ENDED");
    site.store("disk").await;
    let refused = site.finish(&leased, content("disk")).await.unwrap_err();
    assert_eq!(reason(&refused), "BUILD_ENDED");
    assert_eq!(site.delete("acme", &image.id).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn equal_content_of_two_tenants_is_stored_once() {
    let site = Site::new();
    let first = site.import(download("acme", "a"), "disk").await;
    let objects = site.objects();
    let second = site.import(download("other", "a"), "disk").await;
    assert_eq!(site.objects(), objects);
    assert_eq!(first.stored_sha256, second.stored_sha256);
}

#[tokio::test]
async fn another_stored_form_of_the_same_disk_is_not_used() {
    let site = Site::new();
    let first = site.import(download("acme", "a"), "disk").await;
    let second = site.create(download("other", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.store("newer form").await;
    let newer = built("newer form");
    let newer = pb::BuiltContent { sha256: digest("disk"), ..newer };
    let outcome = Outcome::Content(newer);
    site.finish(&leased, outcome.clone()).await.unwrap();
    site.finish(&leased, outcome).await.unwrap();
    assert_eq!(site.image(&second.id).await.stored_sha256, first.stored_sha256);
}

#[tokio::test]
async fn a_disk_has_a_map_although_an_archive_with_the_same_bytes_has_none() {
    let site = Site::new();
    let archive = pb::ImageKind::Archive.into();
    site.create(pb::Image { kind: archive, ..download("acme", "archive") }).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.store("bytes").await;
    let built = built("bytes");
    let built = pb::BuiltContent { map_sha256: String::new(), ..built };
    let outcome = Outcome::Content(built);
    site.finish(&leased, outcome).await.unwrap();
    let disk = site.import(download("acme", "disk"), "bytes").await;
    assert_ne!(disk.map_sha256, "");
}

#[tokio::test]
async fn content_beyond_the_quota_fails_the_build() {
    let site = Site::new();
    let image = site.create(download("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.store("disk").await;
    let large = built("disk");
    let large = pb::BuiltContent { stored_bytes: MAX_BYTES + 1, ..large };
    let outcome = Outcome::Content(large);
    site.finish(&leased, outcome).await.unwrap();
    let image = site.image(&image.id).await;
    assert_eq!((image.state(), image.stored_bytes), (ImageState::Failed, 0));
    assert!(image.state_reason.contains("bytes in images"), "{image:?}");
    assert_eq!(build(&site, &leased.id).await.state(), BuildState::Error);
    site.create(upload("acme", "b")).await.unwrap();
}
