//! A restored store: nothing of the content of images is collected until an operator says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, StatusCode};
use store::backup::RestoreMark;
use tinwright::image::v1::ImageState;

use super::site::{Site, digest, download, operator, upload};
use crate::collection::Collected;
use crate::objects::Objects;

/// A little more than the delay until unused content is removed.
const LATER: Duration = Duration::from_hours(25);

/// Returns the path of an object, below the directory of `site`.
fn object_path(site: &Site, name: &str) -> PathBuf {
    site.directory.path().join("blobs").join(&name[..2]).join(name)
}

/// Stores a file as a store of a later time would have.
fn write(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "later").unwrap();
}

/// Begins an upload to an image of `acme`, and returns its id.
async fn begin_upload(site: &Site) -> String {
    let image = site.create(upload("acme", "late")).await.unwrap();
    let path = format!("/uploads/{}", image.id);
    let headers = [("tus-resumable", "1.0.0"), ("upload-length", "6")];
    let begun = site.send(Some(operator("acme")), Method::POST, &path, &headers, "").await;
    assert_eq!(begun.status, StatusCode::CREATED);
    write(&site.directory.path().join("uploads").join(&image.id));
    image.id
}

#[tokio::test]
async fn nothing_is_collected_until_an_operator_says_so() {
    let site = Site::new();
    let image = site.import(download("acme", "deleted"), "deleted").await;
    site.delete("acme", &image.id).await.unwrap();
    let late = begin_upload(&site).await;
    site.api.blobs.stage(&digest("staged")).await.unwrap();
    let unnamed = object_path(&site, &Objects::new_name(&digest("unnamed")));
    let orphan = site.directory.path().join("uploads").join("of-a-later-image");
    write(&unnamed);
    write(&orphan);
    let mark = RestoreMark::new(site.store.clone());
    mark.set().await.unwrap();
    let before = site.objects();

    site.pass(LATER).await;
    site.pass(Duration::ZERO).await;
    assert_eq!(site.image(&late).await.state(), ImageState::Failed);
    let upload = site.directory.path().join("uploads").join(&late);
    assert_eq!(site.api.reconciler.collect().await.unwrap(), None);
    assert!([&unnamed, &orphan, &upload].iter().all(|path| path.exists()));
    assert_eq!(site.objects(), before);

    assert!(mark.remove("image").await.unwrap().is_some());
    let collected = site.api.reconciler.collect().await.unwrap();
    assert_eq!(collected, Some(Collected { blobs: 2, staged: 1, objects: 1 }));
    assert_eq!(site.objects(), [""; 0]);
    site.pass(Duration::ZERO).await;
    assert!(![&unnamed, &orphan, &upload].iter().any(|path| path.exists()));
}

#[tokio::test]
async fn images_are_built_and_found_damaged_before_content_is_collected_again() {
    let site = Site::new();
    let lost = site.import(download("acme", "lost"), "lost").await;
    RestoreMark::new(site.store.clone()).set().await.unwrap();
    for name in site.objects() {
        std::fs::remove_file(object_path(&site, &name)).unwrap();
    }
    site.api.reconciler.check_damage().await.unwrap();
    assert_eq!(site.image(&lost.id).await.state(), ImageState::Damaged);
    let built = site.import(download("acme", "built"), "built").await;
    assert_eq!(built.state(), ImageState::Ready);
}
