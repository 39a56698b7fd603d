//! Builds that end with content.

use stored_image::CheckedMap;

use crate::*;

/// Checks that the content of `scene` is `raw`, in blobs that fit to each other.
fn check_disk(scene: &Scene, content: &BuiltContent, raw: &[u8]) {
    assert_eq!(content.sha256, digest(raw));
    assert_eq!(content.size_bytes, raw.len() as u64);
    let blobs = scene.site.change(|it| it.blobs.clone());
    let stored = &blobs[&content.stored_sha256];
    assert_eq!(content.stored_bytes, stored.len() as u64);
    assert!(zstd::decode_all(&stored[..]).unwrap() == raw, "another content");
    let map = CheckedMap::parse(&blobs[&content.map_sha256], 1 << 30).unwrap();
    assert_eq!(map.sha256().to_string(), content.sha256);
    assert_eq!(map.stored_sha256().to_string(), content.stored_sha256);
    assert_eq!((map.used_bytes(), map.size_bytes()), (content.used_bytes, content.size_bytes));
}

#[tokio::test]
async fn a_qcow2_is_stored_as_its_disk() {
    let (raw, image) = (images::disk(), images::convert(&images::disk(), "qcow2"));
    let scene = Scene::with_upload("", &image).await;
    let content = scene.content().await;
    check_disk(&scene, &content, &raw);
    // Blocks of 4 MiB: the second one is empty, and the last one is short.
    assert_eq!(content.used_bytes, 5 << 20);
    assert_eq!(content.source_sha256, digest(&image));
    assert_eq!(content.source_format, "qcow2");
    let steps = scene.site.change(|it| it.steps.clone());
    assert_eq!(steps.first().unwrap(), "downloading");
}

#[tokio::test]
async fn a_vmdk_is_converted_by_the_program_in_the_sandbox() {
    let scene = Scene::with_upload("", &images::convert(&images::disk(), "vmdk")).await;
    let content = scene.content().await;
    check_disk(&scene, &content, &images::disk());
    assert_eq!(content.source_format, "vmdk");
}

#[tokio::test]
async fn a_raw_disk_is_stored_as_it_is() {
    let raw = images::disk();
    let scene = Scene::with_upload("a.raw", &raw).await;
    let content = scene.content().await;
    check_disk(&scene, &content, &raw);
    assert_eq!(content.source_format, "raw");
    assert_eq!(content.source_sha256, content.sha256);
    assert!(content.properties.unwrap().boots_bios);
}

#[tokio::test]
async fn a_disk_with_a_loader_for_uefi_has_its_architecture() {
    let scene = Scene::with_upload("a.raw", &images::efi_disk()).await;
    let properties = scene.content().await.properties.unwrap();
    assert_eq!(properties.uefi_architectures, ["aarch64"]);
}

#[tokio::test]
async fn a_compressed_disk_is_unpacked() {
    let raw = images::disk();
    let scene = Scene::with_upload("a.raw.xz", &images::xz(&raw)).await;
    let content = scene.content().await;
    check_disk(&scene, &content, &raw);
    assert_eq!(content.source_format, "raw+xz");
}

#[tokio::test]
async fn an_archive_is_stored_as_one_stream_without_a_map() {
    let tar = images::tar();
    let scene = Scene::new().await;
    scene.upload(Upload::Whole(tar.clone().into()));
    scene.queue(upload_source("a.tar"), ImageKind::Archive);
    let content = scene.content().await;
    let blobs = scene.site.change(|it| it.blobs.clone());
    let stored = &blobs[&content.stored_sha256];
    assert_eq!(zstd::decode_all(&stored[..]).unwrap(), tar);
    assert_eq!((content.sha256, content.map_sha256), (digest(&tar), String::new()));
    assert_eq!(content.stored_bytes, stored.len() as u64);
    assert_eq!((content.size_bytes, blobs.len()), (tar.len() as u64, 1));
    assert_eq!(content.source_format, "tar");
}

#[tokio::test]
async fn a_download_with_the_right_checksum_is_stored() {
    let raw = images::disk();
    let scene = Scene::new().await;
    scene.upload(Upload::Whole(raw.clone().into()));
    let source = url_source(format!("http://{}/uploads/{IMAGE}", scene.address));
    let checksum = format!("sha256:{}", digest(&raw));
    scene.queue(pb::ImageSource { checksum, ..source }, ImageKind::Disk);
    let content = scene.content().await;
    check_disk(&scene, &content, &raw);
}

#[tokio::test]
async fn two_builds_are_done_one_after_the_other() {
    let scene = Scene::with_upload("a.raw", &images::disk()).await;
    scene.queue(upload_source("a.qcow2"), ImageKind::Archive);
    let _builder = scene.start();
    let outcomes =
        scene.site.wait_for(|it| (it.outcomes.len() == 2).then(|| it.outcomes.clone())).await;
    assert!(matches!(outcomes[0], Outcome::Content(_)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Failure(_)), "{outcomes:?}");
}
