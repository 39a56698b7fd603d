//! Images that lose content, and get it back.

use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::{BuiltContent, Image, ImageState};

use super::site::{BUILDER, Site, built, content, digest, download, reason, stored};

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
