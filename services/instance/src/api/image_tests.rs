//! Orders, reinstallations and updates that name an image.

use store::memory::MemoryStore;
use tinwright::image::v1::ImageState;
use tinwright::status;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::tests::activate;
use super::*;
use crate::tests::site::{MACHINE, Site};

fn api(site: &Site) -> Api {
    let (store, stop) = (Arc::new(MemoryStore::default()), CancellationToken::new());
    Api::new(store, site.services(), Clock::system(), stop)
}

fn order(image: &str) -> pb::Instance {
    pb::Instance { hardware_id: MACHINE.into(), image_id: image.into(), ..pb::Instance::default() }
}

async fn create(api: &Api, instance: pb::Instance) -> Result<pb::Instance, Status> {
    let request = pb::CreateInstanceRequest {
        instance: Some(instance),
        request_id: "r-1".into(),
        ..Default::default()
    };
    Ok(api.create_instance(Request::new(request)).await?.into_inner().instance.unwrap())
}

async fn reinstall(api: &Api, id: &str, image: Option<&str>) -> Result<pb::Instance, Status> {
    let request = pb::ReinstallInstanceRequest {
        id: id.into(),
        instance: image.map(|image| pb::Instance { image_id: image.into(), ..Default::default() }),
        update_mask: image.map(|_| prost_types::FieldMask { paths: vec!["image_id".into()] }),
        ..Default::default()
    };
    Ok(api.reinstall_instance(Request::new(request)).await?.into_inner().instance.unwrap())
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map_or_else(String::new, |info| info.reason)
}

#[tokio::test]
async fn an_order_by_name_or_family_is_pinned_to_the_image_of_that_moment() {
    let site = Site::new();
    let (first, api) = (site.add_image("debian-12-1", "debian-12"), api(&site));
    let created = create(&api, order("debian-12")).await.unwrap();
    assert_eq!((&created.image_id, &created.image_sha256), (&first.id, &first.sha256));
    assert_eq!(site.state().planned[0].image_id, first.id);
    site.add_image("debian-12-2", "debian-12");
    let repeated = create(&api, order("debian-12")).await.unwrap();
    assert_eq!(repeated.id, created.id, "the same request has the same result");
    activate(&api, &created.id).await;
    let again = reinstall(&api, &created.id, None).await.unwrap();
    assert_eq!(again.image_id, first.id, "a reinstallation installs the same content");
}

#[tokio::test]
async fn a_reinstallation_may_name_another_image_and_has_to_if_its_own_is_gone() {
    let site = Site::new();
    let (_, api) = (site.add_image("debian-12", ""), api(&site));
    let created = create(&api, order("debian-12")).await.unwrap();
    activate(&api, &created.id).await;
    site.state().stored_images.clear();
    let newer = site.add_image("debian-13", "");
    let refused = reinstall(&api, &created.id, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let again = reinstall(&api, &created.id, Some("debian-13")).await.unwrap();
    assert_eq!((&again.image_id, &again.image_sha256), (&newer.id, &newer.sha256));
    assert_eq!(again.state(), pb::State::Reinstalling);
}

#[tokio::test]
async fn a_reinstallation_with_a_template_drops_an_image_that_is_gone() {
    let site = Site::new();
    let (_, api) = (site.add_image("debian-12", ""), api(&site));
    let created = create(&api, order("debian-12")).await.unwrap();
    activate(&api, &created.id).await;
    site.state().stored_images.clear();
    let template = tinwright::TemplateId::new().to_string();
    let reinstall = async |paths: &[&str]| {
        let instance = pb::Instance { template_id: template.clone(), ..Default::default() };
        let paths = paths.iter().map(ToString::to_string).collect();
        let request = pb::ReinstallInstanceRequest {
            id: created.id.clone(),
            instance: Some(instance),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..Default::default()
        };
        let ordered = api.reinstall_instance(Request::new(request)).await;
        ordered.map(|ordered| ordered.into_inner().instance.unwrap())
    };
    let refused = reinstall(&["template_id"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let again = reinstall(&["template_id", "image_id"]).await.unwrap();
    assert_eq!(again.template_id, template);
    assert_eq!((again.image_id.as_str(), again.image_sha256.as_str()), ("", ""));
}

#[tokio::test]
async fn an_update_looks_its_image_up_and_a_stored_id_stays_as_it_is() {
    let site = Site::new();
    let (first, api) = (site.add_image("debian-12", ""), api(&site));
    let created = create(&api, order("debian-12")).await.unwrap();
    let second = site.add_image("debian-13", "");
    let update = async |update: pb::Instance, paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        let request = pb::UpdateInstanceRequest {
            instance: Some(pb::Instance { id: created.id.clone(), revision: 0, ..update }),
            update_mask: (!paths.is_empty()).then_some(prost_types::FieldMask { paths }),
        };
        let updated = api.update_instance(Request::new(request)).await;
        updated.map(|updated| updated.into_inner().instance.unwrap())
    };
    let named = update(order("debian-13"), &["image_id"]).await.unwrap();
    assert_eq!((&named.image_id, &named.image_sha256), (&second.id, &second.sha256));
    site.state().stored_images.clear();
    let same = update(named.clone(), &[]).await.unwrap();
    assert_eq!(same.image_id, second.id, "a record can be written back after its image is gone");
    let refused = update(order(&first.id), &["image_id"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
}

#[tokio::test]
async fn an_image_that_cannot_be_used_is_refused_with_its_reason() {
    let site = Site::new();
    let (_, api) = (site.add_image("debian-12", ""), api(&site));
    for (state, expected) in [
        (ImageState::Processing, "IMAGE_NOT_READY"),
        (ImageState::Failed, "IMAGE_NOT_READY"),
        (ImageState::Damaged, "IMAGE_DAMAGED"),
    ] {
        site.state().stored_images[0].set_state(state);
        let refused = create(&api, order("debian-12")).await.unwrap_err();
        assert_eq!(reason(&refused), expected);
    }
    site.state().stored_images[0].set_state(ImageState::Ready);
    site.state().stored_images[0].tenant = "other".into();
    let refused = create(&api, order("debian-12")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "that of another tenant: {refused}");
    site.state().stored_images[0].tenant.clear();
    let text = "image debian-12 is a disk of 4.0 GiB";
    site.state().refusal = Some(status::failed_precondition("IMAGE_TOO_LARGE", "image", text));
    let refused = create(&api, order("debian-12")).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), refused.message()), ("IMAGE_TOO_LARGE", text));
}

#[tokio::test]
async fn an_order_whose_image_is_deleted_at_the_same_time_is_taken_back() {
    let site = Site::new();
    let (_, api) = (site.add_image("debian-12", ""), api(&site));
    // After the first look, and before the second.
    site.state().image_looks = Some(1);
    let refused = create(&api, order("debian-12")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let request = pb::ListInstancesRequest { show_deleted: false, ..Default::default() };
    let left = api.list_instances(Request::new(request)).await.unwrap().into_inner().instances;
    assert_eq!(left, []);
    site.add_image("debian-12", "");
    site.state().image_looks = None;
    create(&api, order("debian-12")).await.unwrap();
}

#[tokio::test]
async fn an_image_excludes_what_installs_nothing() {
    let site = Site::new();
    let (_, api) = (site.add_image("debian-12", ""), api(&site));
    let reserved = pb::Instance { reserve_only: true, ..order("debian-12") };
    let refused = create(&api, reserved).await.unwrap_err();
    assert!(refused.message().contains("reserve_only: excludes"), "{refused}");
}
