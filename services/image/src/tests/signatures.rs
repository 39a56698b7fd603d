//! Signatures of images, made by the program `minisign`.

use std::path::Path;
use std::process::Command;

use image_signature::SignedImage;
use tempfile::TempDir;
use tinwright::image::v1 as pb;
use tonic::{Code, Status};

use super::site::{Site, download, reason};

/// A secret key, and a directory for files of signatures.
struct Key(TempDir);

impl Key {
    fn new() -> Self {
        let key = Self(tempfile::tempdir().unwrap());
        key.run(&["-G", "-W", "-p", "key.pub", "-s", "key"]);
        key
    }

    fn run(&self, arguments: &[&str]) {
        let mut minisign = Command::new("minisign");
        let output = minisign.args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Signs the values of `image`.
    fn sign(&self, image: &pb::Image) -> String {
        let signed = SignedImage {
            name: image.name.clone(),
            size_bytes: image.size_bytes,
            sha256: image.sha256.clone(),
            stored_sha256: image.stored_sha256.clone(),
            map_sha256: Some(image.map_sha256.clone()),
        };
        let path = |name: &str| Path::new(self.0.path()).join(name);
        std::fs::write(path("text"), signed.text()).unwrap();
        self.run(&["-S", "-s", "key", "-m", "text", "-x", "sig", "-t", &signed.comment()]);
        std::fs::read_to_string(path("sig")).unwrap()
    }

    /// Returns the id in the comment of the public key.
    fn id(&self) -> String {
        let public = std::fs::read_to_string(self.0.path().join("key.pub")).unwrap();
        format!("{:0>16}", public.lines().next().unwrap().rsplit(' ').next().unwrap())
    }
}

async fn add(site: &Site, tenant: &str, id: &str, text: &str) -> Result<pb::Image, Status> {
    let request = pb::AddSignatureRequest { image_id: id.into(), text: text.into() };
    Ok(site.images(tenant).add_signature(request).await?.into_inner().image.unwrap())
}

#[tokio::test]
async fn a_signature_is_stored_with_the_id_of_its_key() {
    let (site, key) = (Site::new(), Key::new());
    let image = site.import(download("acme", "debian"), "disk").await;
    let text = key.sign(&image);
    let signed = add(&site, "acme", &image.id, &text).await.unwrap();
    assert_eq!(signed.signatures.len(), 1);
    assert_eq!((&signed.signatures[0].key_id, &signed.signatures[0].text), (&key.id(), &text));
    assert!(signed.signatures[0].time.is_some());
    assert_eq!(site.image(&image.id).await, signed);
    // Nothing is written again.
    assert_eq!(add(&site, "acme", &image.id, &text).await.unwrap(), signed);
    let second = add(&site, "", &image.id, &Key::new().sign(&image)).await.unwrap();
    assert_eq!(second.signatures.len(), 2);
}

#[tokio::test]
async fn the_field_that_differs_is_named() {
    let (site, key) = (Site::new(), Key::new());
    let image = site.import(download("acme", "debian"), "disk").await;
    let other = pb::Image { name: "alpine".into(), ..image.clone() };
    let larger = pb::Image { size_bytes: 101, ..image.clone() };
    let map = pb::Image { map_sha256: "0".repeat(64), ..image.clone() };
    for (signed, field) in [(other, "name: "), (larger, "size_bytes: "), (map, "map_sha256: ")] {
        let refused = add(&site, "acme", &image.id, &key.sign(&signed)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(field), "{refused}");
    }
    for text in ["", "x", "untrusted comment: x\nx\nx\nx\n", &"x".repeat(4000)] {
        let refused = add(&site, "acme", &image.id, text).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{text}");
    }
    assert_eq!(site.image(&image.id).await, image);
}

#[tokio::test]
async fn images_of_others_are_not_signed() {
    let (site, key) = (Site::new(), Key::new());
    let image = site.import(download("acme", "debian"), "disk").await;
    let text = key.sign(&image);
    let hidden = add(&site, "other", &image.id, &text).await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound, "{hidden}");
    let of_site = site.import(download("", "debian"), "disk").await;
    let refused = add(&site, "other", &of_site.id, &text).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test]
async fn an_image_without_content_is_not_signed() {
    let (site, key) = (Site::new(), Key::new());
    let image = site.import(download("acme", "debian"), "disk").await;
    let empty = site.create(download("acme", "empty")).await.unwrap();
    let refused = add(&site, "acme", &empty.id, &key.sign(&image)).await.unwrap_err();
    assert_eq!(reason(&refused), "IMAGE_NOT_READY");
}

#[tokio::test]
async fn an_image_has_at_most_eight_signatures_and_one_of_each_key() {
    let site = Site::new();
    let image = site.import(download("acme", "debian"), "disk").await;
    let key = Key::new();
    for _ in 0..7 {
        add(&site, "acme", &image.id, &Key::new().sign(&image)).await.unwrap();
    }
    add(&site, "acme", &image.id, &key.sign(&image)).await.unwrap();
    let refused = add(&site, "acme", &image.id, &Key::new().sign(&image)).await.unwrap_err();
    assert_eq!(reason(&refused), "TOO_MANY_SIGNATURES");
    let other_comment = key.sign(&image).replacen("minisign secret key", "the release key", 1);
    let signed = add(&site, "acme", &image.id, &other_comment).await.unwrap();
    assert_eq!(signed.signatures.len(), 8);
    assert_eq!(signed.signatures[7].text, other_comment);
}

#[tokio::test]
async fn a_new_name_removes_signatures_and_another_change_does_not() {
    let (site, key) = (Site::new(), Key::new());
    let image = site.import(download("acme", "debian"), "disk").await;
    add(&site, "acme", &image.id, &key.sign(&image)).await.unwrap();
    for (field, left) in [("description", 1), ("name", 0)] {
        let update = pb::Image {
            id: image.id.clone(),
            name: "renamed".into(),
            description: "new".into(),
            ..pb::Image::default()
        };
        let update_mask = Some(prost_types::FieldMask { paths: vec![field.into()] });
        let request = pb::UpdateImageRequest { image: Some(update), update_mask };
        let updated = site.images("acme").update_image(request).await.unwrap().into_inner().image;
        assert_eq!(updated.unwrap().signatures.len(), left, "{field}");
    }
}
