//! Images over gRPC: who may create, see and change them.

use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::image::v1::get_image_request::By;
use tonic::{Code, Status};

use super::site::{Site, download, reason, upload};

/// Changes the description of the image `id` for an operator of `tenant`.
async fn describe(site: &Site, tenant: &str, id: &str) -> Result<pb::Image, Status> {
    let image = pb::Image { id: id.into(), description: "new".into(), ..pb::Image::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["description".into()] });
    let request = pb::UpdateImageRequest { image: Some(image), update_mask };
    Ok(site.images(tenant).update_image(request).await?.into_inner().image.unwrap())
}

#[tokio::test]
async fn an_image_is_uploaded_or_has_a_build() {
    let site = Site::new();
    let uploaded = site.create(upload("acme", "a")).await.unwrap();
    assert_eq!((uploaded.state(), uploaded.build_id.as_str()), (ImageState::Uploading, ""));
    let downloaded = site.create(download("acme", "b")).await.unwrap();
    assert_eq!(downloaded.state(), ImageState::Processing);
    let request = pb::GetBuildRequest {
        by: Some(pb::get_build_request::By::Id(downloaded.build_id.clone())),
    };
    let build = site.builds("acme").get_build(request.clone()).await.unwrap().into_inner().build;
    assert_eq!(build.unwrap().image_id, downloaded.id);
    let hidden = site.builds("other").get_build(request).await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound);
}

#[tokio::test]
async fn a_name_is_taken_in_its_tenant_only() {
    let site = Site::new();
    let first = site.create(upload("acme", "debian")).await.unwrap();
    let taken = site.create(upload("acme", "debian")).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");
    assert!(taken.message().contains(&first.id), "{taken}");
    site.create(upload("other", "debian")).await.unwrap();
    site.create(upload("", "debian")).await.unwrap();
}

#[tokio::test]
async fn a_tenant_creates_images_of_its_own_only() {
    let site = Site::new();
    let request =
        pb::CreateImageRequest { image: Some(upload("other", "a")), ..Default::default() };
    let refused = site.images("acme").create_image(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let missing = pb::CreateImageRequest { image: Some(upload("gone", "a")), ..Default::default() };
    let refused = site.images("").create_image(missing).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test]
async fn a_repeated_request_creates_one_image() {
    let site = Site::new();
    let request = pb::CreateImageRequest {
        image: Some(download("acme", "a")),
        request_id: "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10".into(),
    };
    let mut images = site.images("acme");
    let first = images.create_image(request.clone()).await.unwrap().into_inner().image.unwrap();
    let again = images.create_image(request.clone()).await.unwrap().into_inner().image.unwrap();
    assert_eq!(first.id, again.id);
    let other = pb::CreateImageRequest { image: Some(download("acme", "b")), ..request };
    assert!(images.create_image(other).await.is_err());
}

#[tokio::test]
async fn a_tenant_has_at_most_500_images() {
    let site = Site::new();
    for number in 0..500 {
        site.create(upload("acme", &format!("i{number}"))).await.unwrap();
    }
    let refused = site.create(upload("acme", "one-more")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(reason(&refused), "QUOTA");
    site.create(upload("other", "one-more")).await.unwrap();
}

#[tokio::test]
async fn limits_of_a_tenant_are_those_of_its_record() {
    let site = Site::new();
    let image = site.create(upload("small", "first")).await.unwrap();
    site.create(upload("small", "second")).await.unwrap();
    let refused = site.create(upload("small", "third")).await.unwrap_err();
    assert_eq!(refused.message(), "tenant small may have 2 images, and has 2");
    site.api.imports.declare(&image.id, 100, false).await.unwrap();
    let more = site.api.imports.declare(&image.id, 101, true).await.unwrap_err();
    assert_eq!(more.to_string(), "tenant small may have 100 bytes in images, and has 100");
}

#[tokio::test]
async fn images_of_others_are_not_found() {
    let site = Site::new();
    let image = site.create(upload("acme", "debian")).await.unwrap();
    for by in [By::Id(image.id.clone()), By::Name("acme/debian".into())] {
        let hidden = site.find("other", by.clone()).await.unwrap_err();
        assert_eq!(hidden.code(), Code::NotFound, "{by:?}");
        assert_eq!(site.find("", by).await.unwrap().id, image.id);
    }
    assert_eq!(site.find("acme", By::Name("debian".into())).await.unwrap().id, image.id);
    assert_eq!(describe(&site, "other", &image.id).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(site.delete("other", &image.id).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(describe(&site, "acme", &image.id).await.unwrap().description, "new");
}

#[tokio::test]
async fn the_source_of_an_image_is_shown_to_its_tenant_and_to_the_site_only() {
    let site = Site::new();
    let public = pb::Image { public: true, ..download("acme", "debian") };
    let image = site.create(public).await.unwrap();
    for (tenant, sees) in [("", true), ("acme", true), ("other", false)] {
        let found = site.find(tenant, By::Id(image.id.clone())).await.unwrap();
        assert_eq!(found.source.is_some(), sees, "get: {tenant}");
        let request = pb::ListImagesRequest::default();
        let listed = site.images(tenant).list_images(request).await.unwrap().into_inner().images;
        assert_eq!(listed.len(), 1, "{tenant}");
        assert_eq!(listed[0].source.is_some(), sees, "list: {tenant}");
    }
}

#[tokio::test]
async fn images_of_the_site_and_public_ones_are_seen_and_not_changed() {
    let site = Site::new();
    let of_site = site.create(upload("", "debian")).await.unwrap();
    let public = pb::Image { public: true, ..upload("acme", "centos") };
    let public = site.create(public).await.unwrap();
    for (image, name) in [(of_site, "debian"), (public, "acme/centos")] {
        for by in [By::Id(image.id.clone()), By::Name(name.into())] {
            assert_eq!(site.find("other", by).await.unwrap().id, image.id);
        }
        let refused = describe(&site, "other", &image.id).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let refused = site.delete("other", &image.id).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
}

#[tokio::test]
async fn a_family_stands_for_its_newest_ready_image() {
    let site = Site::new();
    let of_family = |name: &str| pb::Image { family: "debian".into(), ..download("acme", name) };
    let find = || site.find("acme", By::Name("debian".into()));
    assert_eq!(find().await.unwrap_err().code(), Code::NotFound);
    let mut newest = String::new();
    for name in ["d1", "d2"] {
        newest = site.import(of_family(name), name).await.id;
        assert_eq!(find().await.unwrap().id, newest);
        site.clock.advance(std::time::Duration::from_secs(1));
    }
    site.create(of_family("d3")).await.unwrap();
    assert_eq!(find().await.unwrap().id, newest);
}

#[tokio::test]
async fn a_protected_image_is_not_deleted() {
    let site = Site::new();
    let image = pb::Image { protect: true, ..upload("acme", "debian") };
    let image = site.create(image).await.unwrap();
    let refused = site.delete("acme", &image.id).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason(&refused), "PROTECTED");
}

#[tokio::test]
async fn a_site_without_an_object_store_has_no_images() {
    let site = Site::without_store();
    let refused = site.create(upload("acme", "debian")).await.unwrap_err();
    assert_eq!(reason(&refused), "NO_OBJECT_STORE");
}
