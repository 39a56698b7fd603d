//! Builds over gRPC: from the lease to the end, with and without failures.

use std::time::Duration;

use tinwright::image::v1 as pb;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::image_source::Source;
use tinwright::image::v1::{BuildState, ImageState};
use tonic::{Code, Status};

use store::ScopedStore;
use store::records::Records;

use super::site::{
    BUILDER, Site, built, content, digest, download, failure, reason, stored, upload,
};

/// Duration of a lease.
const LEASE: Duration = Duration::from_secs(60);
/// Quota of a tenant in bytes.
const MAX_BYTES: u64 = 1 << 40;

async fn report(site: &Site, build: &pb::Build, step: &str) -> Result<(), Status> {
    report_pinned(site, build, step, "").await
}

async fn report_pinned(
    site: &Site,
    build: &pb::Build,
    step: &str,
    pinned_reference: &str,
) -> Result<(), Status> {
    let lease = build.lease.clone().unwrap();
    let request = pb::ReportBuildRequest {
        build_id: build.id.clone(),
        holder: lease.holder,
        attempt: lease.attempt,
        step: step.into(),
        progress: Some(pb::ImageProgress { current_bytes: 1, total_bytes: 2 }),
        pinned_reference: pinned_reference.into(),
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

/// Returns an image of `tenant` in a registry, with a login.
fn in_registry(tenant: &str, name: &str) -> pb::Image {
    let oci = pb::OciSource {
        reference: "registry.example/a:1".into(),
        username: "anna".into(),
        password: "s3cret".into(),
        pinned_reference: "registry.example/b@sha256:0".into(),
        ..pb::OciSource::default()
    };
    let source = pb::ImageSource { source: Some(Source::Oci(oci)), ..Default::default() };
    pb::Image { source: Some(source), ..upload(tenant, name) }
}

fn oci(source: Option<pb::ImageSource>) -> pb::OciSource {
    match source.and_then(|it| it.source) {
        Some(Source::Oci(oci)) => oci,
        other => panic!("{other:?}"),
    }
}

/// Returns the user and the password in the record of the build `id`.
async fn stored_login(site: &Site, id: &str) -> [String; 2] {
    let store = ScopedStore::new(site.store.clone(), "image");
    let build = Records::<crate::kinds::BuildKind>::new(store).require(id).await.unwrap();
    let oci = oci(build.source);
    [oci.username, oci.password]
}

#[tokio::test]
async fn only_the_builder_gets_the_login_of_a_registry_until_the_build_ends() {
    let site = Site::new();
    let login = ["anna".to_owned(), "s3cret".to_owned()];
    let image = site.create(in_registry("acme", "a")).await.unwrap();
    let shown = pb::OciSource { reference: "registry.example/a:1".into(), ..Default::default() };
    assert_eq!(oci(image.source), shown);
    assert_eq!(oci(site.image(&image.id).await.source), shown);
    assert_eq!(oci(build(&site, &image.build_id).await.source), shown);
    let listed = site.builds("acme").list_builds(pb::ListBuildsRequest::default()).await;
    let listed = listed.unwrap().into_inner().builds.pop().unwrap();
    assert_eq!(oci(listed.source), shown);

    let leased = site.lease(BUILDER).await;
    let given = oci(leased.source.clone());
    assert_eq!([given.username, given.password], login);
    site.finish(&leased, failure("connection lost", true)).await.unwrap();
    assert_eq!(stored_login(&site, &leased.id).await, login);
    let leased = site.lease(BUILDER).await;
    site.finish(&leased, failure("not a disk", false)).await.unwrap();
    assert_eq!(stored_login(&site, &leased.id).await, ["", ""]);

    let image = site.create(in_registry("acme", "b")).await.unwrap();
    assert_eq!(stored_login(&site, &image.build_id).await, login);
    let request = pb::CancelBuildRequest { id: image.build_id.clone() };
    let canceled = site.builds("acme").cancel_build(request).await.unwrap().into_inner();
    assert_eq!(oci(canceled.build.unwrap().source), shown);
    assert_eq!(stored_login(&site, &image.build_id).await, ["", ""]);

    site.create(in_registry("acme", "c")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    site.store("c").await;
    site.finish(&leased, content("c")).await.unwrap();
    assert_eq!(stored_login(&site, &leased.id).await, ["", ""]);
}

#[tokio::test]
async fn the_first_pinned_reference_stays_for_all_attempts() {
    let site = Site::new();
    let image = site.create(in_registry("acme", "a")).await.unwrap();
    let leased = site.lease(BUILDER).await;
    let pinned = format!("registry.example/a:1@sha256:{}", "0".repeat(64));
    report_pinned(&site, &leased, "downloading", &pinned).await.unwrap();
    assert_eq!(oci(site.image(&image.id).await.source).pinned_reference, pinned);
    report(&site, &leased, "downloading").await.unwrap();
    report_pinned(&site, &leased, "downloading", "registry.example/b").await.unwrap();
    site.pass(LEASE).await;
    let again = site.lease("builder-2").await;
    assert_eq!(oci(again.source.clone()).pinned_reference, pinned);
    let long = report_pinned(&site, &again, "", &"a".repeat(1025)).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
    site.store("a").await;
    site.finish(&again, content("a")).await.unwrap();
    assert_eq!(oci(site.image(&image.id).await.source).pinned_reference, pinned);
    assert_eq!(oci(build(&site, &again.id).await.source).pinned_reference, pinned);
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
