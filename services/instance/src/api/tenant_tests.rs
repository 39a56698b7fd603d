//! Callers with a tenant: only its instances exist for them. Instances of tenants that are gone are not created.

use futures_util::StreamExt as _;
use pb::watch_instances_response::Event;
use runtime::identity::{Caller, Role};
use store::memory::MemoryStore;
use tinwright::common::v1::View;
use tinwright::workflow::v1::PlannedImage;
use tinwright::workflow::v1::planned_image::Check;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::tests::activate;
use super::*;
use crate::tests::site::{FoundTenant, Site};

/// Two instances, one of each tenant.
struct Bench {
    site: Site,
    api: Api,
    own: pb::Instance,
    other: pb::Instance,
}

impl Bench {
    async fn new() -> Self {
        let site = Site::new();
        site.state().has_every_machine = true;
        let (store, stop) = (Arc::new(MemoryStore::default()), CancellationToken::new());
        let api = Api::new(store, site.services(), Clock::system(), stop);
        let own = create(&api, "acme", "192.0.2.1").await;
        let other = create(&api, "other", "192.0.2.2").await;
        Self { site, api, own, other }
    }
}

async fn create(api: &Api, tenant: &str, address: &str) -> pb::Instance {
    let ips = vec![pb::instance::Ip { address: address.into(), ..Default::default() }];
    let (hardware_id, tenant) = (HardwareId::new().to_string(), tenant.to_owned());
    let instance =
        pb::Instance { hardware_id, ips, tenant, reserve_only: true, ..Default::default() };
    let request = pb::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    api.create_instance(of_site(request)).await.unwrap().into_inner().instance.unwrap()
}

/// A request of an admin of the site.
fn of_site<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.extensions_mut().insert(Caller::from(Role::Admin));
    request
}

/// A request of an admin of the tenant acme.
fn of_acme<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    let acme = "acme".parse().unwrap();
    request.extensions_mut().insert(Caller::from(Role::Admin).with_tenant(acme).unwrap());
    request
}

/// Asserts that `status` is that of a missing object, and names nothing but `asked`.
fn assert_missing(status: &Status, asked: &str) {
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), format!("instance {asked} not found"));
    assert_eq!(status.get_details_resource_info().unwrap().resource_name, asked);
}

fn by_id(id: &str) -> pb::GetInstanceRequest {
    let by = Some(pb::get_instance_request::By::Id(id.to_owned()));
    pb::GetInstanceRequest { by, view: View::Full.into(), show_deleted: true }
}

#[tokio::test]
async fn gets_find_no_instance_of_another_tenant_in_any_way() {
    use pb::get_instance_request::By;
    let Bench { api, own, other, .. } = Bench::new().await;
    for (instance, is_own) in [(&own, true), (&other, false)] {
        let address = instance.ips[0].address.clone();
        for (by, name) in [
            (By::Id(instance.id.clone()), &instance.id),
            (By::HardwareId(instance.hardware_id.clone()), &instance.hardware_id),
            (By::Address(address.clone()), &address),
        ] {
            let request = pb::GetInstanceRequest { by: Some(by), ..Default::default() };
            match api.get_instance(of_acme(request)).await {
                Ok(found) => assert!(is_own && found.into_inner().instance.unwrap() == own),
                Err(status) => {
                    assert!(!is_own);
                    assert_missing(&status, name);
                }
            }
        }
    }
    let request = pb::DeleteInstanceRequest { id: other.id.clone(), ..Default::default() };
    api.delete_instance(of_site(request)).await.unwrap();
    assert_missing(&api.get_instance(of_acme(by_id(&other.id))).await.unwrap_err(), &other.id);
}

#[tokio::test]
async fn lists_hold_no_instance_of_another_tenant_whatever_the_filter() {
    let Bench { api, own, .. } = Bench::new().await;
    for (tenant, expected) in [("", 1), ("acme", 1), ("other", 0)] {
        for show_deleted in [false, true] {
            let tenant = tenant.to_owned();
            let request = pb::ListInstancesRequest { tenant, show_deleted, ..Default::default() };
            let found = api.list_instances(of_acme(request)).await.unwrap().into_inner().instances;
            assert_eq!(found.len(), expected);
            assert!(found.iter().all(|it| it.id == own.id));
        }
    }
    let all = pb::ListInstancesRequest::default();
    assert_eq!(api.list_instances(of_site(all)).await.unwrap().into_inner().instances.len(), 2);
    let others = pb::ListInstancesRequest { tenant: "other".into(), ..Default::default() };
    assert_eq!(api.list_instances(of_site(others)).await.unwrap().into_inner().instances.len(), 1);
}

#[tokio::test]
async fn nobody_changes_an_instance_of_another_tenant() {
    let Bench { api, other, .. } = Bench::new().await;
    let id = other.id.clone();
    let request = pb::DeleteInstanceRequest { id: id.clone(), revision: 1, force: true };
    assert_missing(&api.delete_instance(of_acme(request)).await.unwrap_err(), &id);
    let request = pb::RetryInstanceRequest { id: id.clone() };
    assert_missing(&api.retry_instance(of_acme(request)).await.unwrap_err(), &id);
    let update = pb::Instance { id: id.clone(), hostname: "mine".into(), ..Default::default() };
    let request = pb::UpdateInstanceRequest { instance: Some(update), update_mask: None };
    assert_missing(&api.update_instance(of_acme(request)).await.unwrap_err(), &id);
    let after = api.get_instance(of_site(by_id(&id))).await.unwrap().into_inner().instance.unwrap();
    assert_eq!(after.without_secrets(), other);
}

#[tokio::test]
async fn a_tenant_cannot_prevent_that_its_machine_is_cleaned() {
    let Bench { api, own, .. } = Bench::new().await;
    let update = async |change: &dyn Fn(&mut pb::Instance), paths: &[&str]| {
        let mut instance = own.clone();
        instance.revision = 0;
        change(&mut instance);
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = pb::UpdateInstanceRequest { instance: Some(instance), update_mask };
        api.update_instance(of_acme(request)).await
    };
    let template = tinwright::TemplateId::new().to_string();
    let other_clean_up = |it: &mut pb::Instance| it.deprovision_template_id.clone_from(&template);
    for paths in [&["deprovision_template_id"][..], &[]] {
        let refused = update(&other_clean_up, paths).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("deprovision_template_id"), "{refused}");
    }
    update(&|it| it.hostname = "mine".into(), &[]).await.unwrap();
    let request = pb::DeleteInstanceRequest { id: own.id.clone(), revision: 0, force: true };
    let refused = api.delete_instance(of_acme(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let after = api.get_instance(of_site(by_id(&own.id))).await.unwrap().into_inner().instance;
    let after = after.unwrap();
    assert_eq!((after.hostname.as_str(), after.deprovision_template_id.as_str()), ("mine", ""));
    assert_eq!(after.state(), own.state());
}

#[tokio::test]
async fn a_taken_address_does_not_name_the_instance_of_another_tenant() {
    let Bench { api, own, other, .. } = Bench::new().await;
    let update = pb::Instance { ips: other.ips.clone(), ..own };
    let paths = vec!["ips".to_owned()];
    let update_mask = Some(prost_types::FieldMask { paths });
    let request = pb::UpdateInstanceRequest { instance: Some(update), update_mask };
    let refused = api.update_instance(of_acme(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(refused.message(), "192.0.2.2 is taken");
    assert_eq!(refused.get_details_resource_info().unwrap().resource_name, "192.0.2.2");
}

#[tokio::test]
async fn watches_show_no_instance_of_another_tenant_and_not_its_deletion() {
    let Bench { api, own, other, .. } = Bench::new().await;
    let (mirror, stop) = (api.mirror.clone(), CancellationToken::new());
    let running = stop.clone();
    let _running = tokio::spawn(async move { mirror.run(running).await });
    let _stopped = stop.drop_guard();
    let mut events = Vec::new();
    for id in [String::new(), other.id.clone()] {
        let request = pb::WatchInstancesRequest { id, ..Default::default() };
        let watch = api.watch_instances(of_acme(request)).await.unwrap().into_inner();
        events.push(watch.map(|event| event.unwrap().event.unwrap()));
    }
    let [all, one] = &mut events[..] else { panic!() };
    let Some(Event::Instance(first)) = all.next().await else { panic!() };
    assert_eq!(first.id, own.id);
    assert!(matches!(all.next().await, Some(Event::Synced(_))));
    assert!(
        matches!(one.next().await, Some(Event::Synced(_))),
        "as of an instance that is not there"
    );
    for instance in [&other, &own] {
        let id = instance.id.parse().unwrap();
        let deleting = api.instances.delete(id, 0, true).await.unwrap();
        let cleaned = crate::state::Event::Cleaned;
        api.instances.advance(&deleting, cleaned, "", |_| {}).await.unwrap();
    }
    loop {
        match all.next().await {
            Some(Event::Instance(shown)) => assert_eq!(shown.id, own.id),
            Some(Event::DeletedId(id)) => {
                assert_eq!(id, own.id);
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_instance_of_a_missing_tenant_is_refused_and_leaves_nothing() {
    use FoundTenant::{BeingDeleted, Existing, Missing, NoAnswer};
    let Bench { site, api, .. } = Bench::new().await;
    let instance = pb::Instance {
        hardware_id: HardwareId::new().to_string(),
        tenant: "acme".into(),
        external_id: "e-1".into(),
        reserve_only: true,
        ..Default::default()
    };
    let (instance, request_id) = (Some(instance), "r-1".to_owned());
    let request = pb::CreateInstanceRequest { instance, request_id, ..Default::default() };
    // The second answer comes after the instance was stored.
    for (answers, code, text) in [
        (&[Missing][..], Code::InvalidArgument, "tenant: there is no tenant acme"),
        (&[BeingDeleted], Code::InvalidArgument, "tenant: tenant acme is being deleted"),
        (&[NoAnswer], Code::Unavailable, "the identity service did not answer"),
        (&[Existing, Missing], Code::InvalidArgument, "tenant: there is no tenant acme"),
        (&[Existing, BeingDeleted], Code::InvalidArgument, "tenant: tenant acme is being deleted"),
    ] {
        site.state().tenants = answers.iter().copied().collect();
        let refused = api.create_instance(of_site(request.clone())).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().starts_with(text), "{refused}");
        assert!(site.state().tenants.is_empty());
        let all = pb::ListInstancesRequest { show_deleted: true, ..Default::default() };
        let all = api.list_instances(of_site(all)).await.unwrap().into_inner().instances;
        assert_eq!(all.len(), 2, "{answers:?}");
    }
    // Neither the request nor the external id is used up. The reconciler looks for a tenant that was not found again, since a
    // repeated order was answered meanwhile. It does not ask for the tenant again.
    site.state().tenants = [Existing, NoAnswer].into();
    let created = api.create_instance(of_site(request.clone())).await.unwrap().into_inner();
    site.state().tenants = [Missing].into();
    let repeated = api.create_instance(of_site(request)).await.unwrap().into_inner();
    assert_eq!(created.instance.unwrap().id, repeated.instance.unwrap().id);
}

#[tokio::test]
async fn a_tenant_orders_by_placement_only_and_a_plan_names_no_machine_to_it() {
    let site = Site::new();
    let (store, stop) = (Arc::new(MemoryStore::default()), CancellationToken::new());
    let api = Api::new(store, site.services(), Clock::system(), stop);
    let placed = |placement: pb::Placement| pb::Instance {
        placement: Some(Box::new(placement)),
        template_id: HardwareId::new().to_string(),
        ..Default::default()
    };
    let any = placed(pb::Placement::default());
    let send = |instance: pb::Instance, validate_only: bool| {
        let instance = Some(instance);
        let request = pb::CreateInstanceRequest { instance, validate_only, ..Default::default() };
        api.create_instance(of_acme(request))
    };
    let labels = [("rack".to_owned(), "r1".to_owned())].into();
    let machine = site.state().machine.clone().unwrap().id;
    for (wrong, code) in [
        (
            pb::Instance { hardware_id: machine.clone(), ..Default::default() },
            Code::PermissionDenied,
        ),
        (placed(pb::Placement { labels, ..Default::default() }), Code::PermissionDenied),
        (pb::Instance { tenant: "other".into(), ..any.clone() }, Code::InvalidArgument),
        (
            pb::Instance { deprovision_template_id: HardwareId::new().to_string(), ..any.clone() },
            Code::PermissionDenied,
        ),
        (pb::Instance { power_management: 1, ..any.clone() }, Code::PermissionDenied),
    ] {
        for validate_only in [false, true] {
            assert_eq!(send(wrong.clone(), validate_only).await.unwrap_err().code(), code);
        }
    }
    let plan = send(any.clone(), true).await.unwrap().into_inner().plan.unwrap();
    let template_id = any.template_id.clone();
    assert_eq!(plan, pb::InstancePlan { template_id, ..pb::InstancePlan::default() });
    let refusal = Status::failed_precondition(format!("hardware {machine}: several disks"));
    site.state().refusal = Some(refusal);
    for validate_only in [true, false] {
        let refused = send(any.clone(), validate_only).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(!refused.message().contains(&machine), "{refused}");
    }
    site.state().refusal = None;
    let created = send(any.clone(), false).await.unwrap().into_inner().instance.unwrap();
    assert_eq!((created.tenant.as_str(), &created.hardware_id), ("acme", &machine));
    let refused = send(any, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(!format!("{refused:?}").contains(&machine), "{refused}");
}

/// The URL of a planned image at a host that refuses connections, without what may be secret.
const IMAGE_URL: &str = "http://127.0.0.1:1/a.raw";

/// An API whose plans have this image.
fn with_image() -> Api {
    let site = Site::new();
    site.state().has_every_machine = true;
    let url = "http://u:hunter2@127.0.0.1:1/a.raw?token=hunter2".to_owned();
    site.state().images = vec![PlannedImage { url, ..PlannedImage::default() }];
    let (store, stop) = (Arc::new(MemoryStore::default()), CancellationToken::new());
    Api::new(store, site.services(), Clock::system(), stop)
}

/// Returns the check and the URL of the only image of `plan`.
fn image_of(plan: Option<pb::InstancePlan>) -> (Check, String) {
    let images = plan.unwrap().images;
    assert_eq!(images.len(), 1);
    (images[0].check(), images[0].url.clone())
}

#[tokio::test]
async fn the_plan_of_an_order_of_a_tenant_asks_no_other_host_whoever_orders() {
    let api = with_image();
    let order = |tenant: &str| {
        let instance = pb::Instance {
            placement: Some(Box::default()),
            template_id: HardwareId::new().to_string(),
            tenant: tenant.to_owned(),
            ..Default::default()
        };
        let instance = Some(instance);
        pb::CreateInstanceRequest { instance, validate_only: true, ..Default::default() }
    };
    for (request, check, url) in [
        (of_site(order("")), Check::Failed, IMAGE_URL),
        (of_site(order("acme")), Check::Unspecified, IMAGE_URL),
        (of_acme(order("acme")), Check::Unspecified, ""),
    ] {
        let plan = api.create_instance(request).await.unwrap().into_inner().plan;
        assert_eq!(image_of(plan), (check, url.to_owned()));
    }
}

/// Creates an instance of `tenant` with a template, makes it active, and returns its id.
async fn active(api: &Api, tenant: &str) -> String {
    let instance = pb::Instance {
        hardware_id: HardwareId::new().to_string(),
        template_id: HardwareId::new().to_string(),
        tenant: tenant.to_owned(),
        ..Default::default()
    };
    let request = pb::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    let made = api.create_instance(of_site(request)).await.unwrap().into_inner().instance.unwrap();
    Box::pin(activate(api, &made.id)).await;
    made.id
}

#[tokio::test]
async fn the_plan_of_a_reinstallation_for_a_tenant_asks_no_other_host_whoever_reinstalls() {
    let api = with_image();
    let (of_nobody, own) = (active(&api, "").await, active(&api, "acme").await);
    let reinstall = |id: &str| {
        let id = id.to_owned();
        pb::ReinstallInstanceRequest { id, validate_only: true, ..Default::default() }
    };
    for (request, check, url) in [
        (of_site(reinstall(&of_nobody)), Check::Failed, IMAGE_URL),
        (of_site(reinstall(&own)), Check::Unspecified, IMAGE_URL),
        (of_acme(reinstall(&own)), Check::Unspecified, ""),
    ] {
        let plan = Box::pin(api.reinstall_instance(request)).await.unwrap().into_inner().plan;
        assert_eq!(image_of(plan), (check, url.to_owned()));
    }
}

fn by_external_id(tenant: &str, external_id: &str, show_deleted: bool) -> pb::GetInstanceRequest {
    let (tenant, external_id) = (tenant.to_owned(), external_id.to_owned());
    let by = pb::get_instance_request::By::ExternalId(pb::ExternalId { tenant, external_id });
    pb::GetInstanceRequest { by: Some(by), show_deleted, ..Default::default() }
}

#[tokio::test]
async fn an_external_id_finds_the_instance_of_its_tenant_and_for_a_month_the_deleted_one() {
    let Bench { api, .. } = Bench::new().await;
    let mut ids = Vec::new();
    for tenant in ["acme", "other", ""] {
        let instance = pb::Instance {
            hardware_id: HardwareId::new().to_string(),
            external_id: "ial/1".into(),
            tenant: tenant.into(),
            reserve_only: true,
            ..Default::default()
        };
        let request = pb::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
        let made = api.create_instance(of_site(request)).await.unwrap().into_inner();
        ids.push(made.instance.unwrap().id);
    }
    let site = async |tenant: &str, deleted| {
        let found = api.get_instance(of_site(by_external_id(tenant, "ial/1", deleted))).await;
        found.map(|found| found.into_inner().instance.unwrap().id)
    };
    let acme = async |tenant: &str, deleted| {
        let found = api.get_instance(of_acme(by_external_id(tenant, "ial/1", deleted))).await;
        found.map(|found| found.into_inner().instance.unwrap().id)
    };
    for (tenant, id) in ["acme", "other", ""].into_iter().zip(&ids) {
        assert_eq!(&site(tenant, false).await.unwrap(), id);
    }
    assert_eq!(acme("", false).await.unwrap(), ids[0]);
    assert_eq!(acme("acme", false).await.unwrap(), ids[0]);
    assert_missing(&acme("other", true).await.unwrap_err(), "other/ial/1");
    for id in &ids[..2] {
        let old = api.instances.records.require(id).await.unwrap();
        let (event, reason) = (crate::state::Event::Delete, "");
        let old = api.instances.advance(&old, event, reason, |_| {}).await.unwrap();
        api.instances.advance(&old, crate::state::Event::Cleaned, "", |_| {}).await.unwrap();
    }
    assert_missing(&site("acme", false).await.unwrap_err(), "acme/ial/1");
    assert_missing(&acme("", false).await.unwrap_err(), "acme/ial/1");
    assert_eq!(site("acme", true).await.unwrap(), ids[0]);
    assert_eq!(acme("", true).await.unwrap(), ids[0]);
    assert_missing(&acme("other", true).await.unwrap_err(), "other/ial/1");
    assert_eq!(site("other", true).await.unwrap(), ids[1]);
    assert_missing(&site("nobody", true).await.unwrap_err(), "nobody/ial/1");
    let empty = api.get_instance(of_site(by_external_id("acme", "", true))).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
}
