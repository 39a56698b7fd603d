//! Orders by placement, through the service: each machine once, whatever happens to the server; evenly spread; and as planned.

mod storm;

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::Clock;
use runtime::identity::{Caller, Role};
use store::memory::MemoryStore;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1::instance::{Os, PowerManagement};
use tinwright::instance::v1::instance_service_server::InstanceService as _;
use tinwright::workflow::v1 as wf;
use tinwright::{HardwareId, TemplateId};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::*;
use crate::Api;
use crate::state::Event;
use crate::tests::site::{LOCATION, MODELS, Site};

/// A provisionable machine with these labels.
pub(super) fn machine<'a>(labels: impl IntoIterator<Item = (&'a str, String)>) -> hw::Hardware {
    hw::Hardware {
        id: HardwareId::new().to_string(),
        state: hw::State::Provisionable.into(),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        location_id: LOCATION.1.into(),
        ..hw::Hardware::default()
    }
}

pub(super) fn api(site: &Site, store: Arc<dyn store::Store>) -> Api {
    Api::new(store, site.services(), Clock::system(), CancellationToken::new())
}

/// A system with which nothing but the machine is asked for.
fn script() -> Os {
    let contents = "#!ipxe".to_owned();
    Os::CustomIpxe(pb::instance::CustomIpxe { contents, ..Default::default() })
}

pub(super) fn order(placement: pb::Placement, request_id: String) -> pb::CreateInstanceRequest {
    let placement = Some(Box::new(placement));
    let instance = pb::Instance { placement, os: Some(script()), ..Default::default() };
    pb::CreateInstanceRequest { instance: Some(instance), request_id, validate_only: false }
}

pub(super) async fn create(
    api: &Api,
    order: pb::CreateInstanceRequest,
) -> Result<pb::CreateInstanceResponse, Status> {
    let mut request = Request::new(order);
    request.extensions_mut().insert(Caller::from(Role::Admin));
    Ok(api.create_instance(request).await?.into_inner())
}

async fn created(api: &Api, placement: &pb::Placement) -> pb::Instance {
    let response = create(api, order(placement.clone(), String::new())).await;
    response.unwrap().instance.unwrap()
}

fn by_model(name: &str) -> pb::Placement {
    pb::Placement { model_id: name.into(), ..Default::default() }
}

/// The numbers in the `ErrorInfo` of `status` that are not zero.
pub(super) fn counts(status: &Status) -> BTreeMap<String, u64> {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "NO_MACHINE_FITS");
    let numbers = info.metadata.into_iter().map(|(key, value)| (key, value.parse().unwrap()));
    numbers.filter(|(_, number)| *number > 0).collect()
}

fn expected<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(key, number)| (key.to_owned(), number)).collect()
}

#[tokio::test]
async fn only_a_free_machine_that_fits_is_chosen_and_a_refusal_counts_the_others() {
    use hw::State::{Deleting, Enrolled, Failed, Maintenance};
    let small = || machine([("model", "small".to_owned()), ("disk", "nvme".to_owned())]);
    let mut rack = vec![small(), machine([("model", "large".to_owned())])];
    let wanted = rack[0].id.clone();
    for state in [Enrolled, Failed, Failed, Maintenance, Deleting] {
        rack.push(hw::Hardware { state: state.into(), ..small() });
    }
    rack.push(hw::Hardware { protect: true, ..small() });
    rack.push(hw::Hardware { location_id: String::new(), ..small() });
    rack.push(hw::Hardware { labels: [("model".into(), "small".into())].into(), ..small() });
    let busy = small();
    rack.push(busy.clone());
    let site = Site::with_rack(rack);
    let open = wf::WorkflowState::Pending.into();
    let id = "w-1".to_owned();
    site.add(wf::Workflow { id, hardware_id: busy.id, state: open, ..Default::default() });
    let api = api(&site, Arc::new(MemoryStore::default()));
    let placement = pb::Placement {
        location_id: LOCATION.0.into(),
        labels: [("disk".into(), "nvme".into())].into(),
        ..by_model("small")
    };
    let instance = created(&api, &placement).await;
    assert_eq!(instance.hardware_id, wanted);
    let stored = instance.placement.unwrap();
    assert_eq!((stored.model_id.as_str(), stored.location_id.as_str()), (MODELS[0].1, LOCATION.1));
    let refused = create(&api, order(placement.clone(), String::new())).await.unwrap_err();
    let all = [("busy", 1), ("deleting", 1), ("enrolled", 1), ("failed", 2), ("maintenance", 1)];
    let all = expected(all).into_iter().chain(expected([
        ("matching", 8),
        ("occupied", 1),
        ("protected", 1),
    ]));
    assert_eq!(counts(&refused), all.collect());
    assert!(refused.get_details_retry_info().is_some());
    assert_eq!(
        refused.message(),
        "8 machines fit, and none is free: 1 occupied, 1 with a workflow, 1 not accepted, 2 failed, 1 in maintenance, 1 protected, 1 deleting"
    );
    // Nothing that comes free by itself: no hint to wait.
    let other = pb::Placement { labels: [("disk".into(), "tape".into())].into(), ..placement };
    let refused = create(&api, order(other, String::new())).await.unwrap_err();
    assert_eq!(
        (counts(&refused), refused.message()),
        (expected([]), "no machine fits: none has the model and location and labels of the order")
    );
    assert!(refused.get_details_retry_info().is_none());
}

#[tokio::test]
async fn a_template_is_installed_only_on_a_machine_that_can_be_switched() {
    let rack: Vec<_> = (0..3).map(|_| machine([("model", "small".to_owned())])).collect();
    let with_bmc = rack[1].id.clone();
    let without = [rack[0].id.clone(), rack[2].id.clone()];
    let site = Site::with_rack(rack);
    site.state().without_bmc.extend(without);
    let api = api(&site, Arc::new(MemoryStore::default()));
    let templated = || {
        let mut order = order(by_model("small"), String::new());
        let instance = order.instance.as_mut().unwrap();
        (instance.os, instance.template_id) = (None, TemplateId::new().to_string());
        order
    };
    let plan = pb::CreateInstanceRequest { validate_only: true, ..templated() };
    assert_eq!(create(&api, plan).await.unwrap().plan.unwrap().hardware_id, with_bmc);
    let first = create(&api, templated()).await.unwrap().instance.unwrap();
    assert_eq!(first.hardware_id, with_bmc);
    let refused = create(&api, templated()).await.unwrap_err();
    let all = expected([("matching", 3), ("occupied", 1), ("without_bmc", 2)]);
    assert_eq!(counts(&refused), all);
    let text = "3 machines fit, and none is free: 1 occupied, 2 without a BMC";
    assert_eq!(refused.message(), text);
    // Somebody switches it on by hand.
    let mut by_hand = templated();
    by_hand.instance.as_mut().unwrap().set_power_management(PowerManagement::None);
    create(&api, by_hand).await.unwrap();
}

#[tokio::test]
async fn only_machines_of_the_zone_fit_and_the_zone_has_to_be_one_of_the_location() {
    let of_zone = |zone: &str| hw::Hardware { zone: zone.into(), ..machine([]) };
    let site = Site::with_rack(vec![of_zone("a"), of_zone("b"), of_zone("")]);
    let zones = ["a", "b"].map(|name| hw::Zone { name: name.into(), ..Default::default() });
    site.state().location.zones = zones.into();
    let api = api(&site, Arc::new(MemoryStore::default()));
    let placement = |zone: &str| pb::Placement {
        location_id: LOCATION.0.into(),
        zone: zone.into(),
        ..Default::default()
    };
    let wanted = site.state().rack[1].id.clone();
    assert_eq!(created(&api, &placement("b")).await.hardware_id, wanted);
    let refused = create(&api, order(placement("b"), String::new())).await.unwrap_err();
    assert_eq!(counts(&refused), expected([("matching", 1), ("occupied", 1)]));
    let refused = create(&api, order(placement("c"), String::new())).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "zone c not found"));
}

#[tokio::test]
async fn an_order_names_a_machine_or_a_placement_that_exists() {
    let site = Site::with_rack(vec![machine([])]);
    let api = api(&site, Arc::new(MemoryStore::default()));
    let id = site.state().rack[0].id.clone();
    let instance = |hardware_id: &str, placement: Option<pb::Placement>| pb::Instance {
        hardware_id: hardware_id.into(),
        placement: placement.map(Box::new),
        os: Some(script()),
        ..Default::default()
    };
    let location = pb::Placement { location_id: "nowhere".into(), ..Default::default() };
    let spread = pb::Placement { spread_label: "x".repeat(300), ..Default::default() };
    for (instance, code, text) in [
        (
            instance("", None),
            Code::InvalidArgument,
            "hardware_id: is missing: set either it or placement",
        ),
        (
            instance(&id, Some(by_model("small"))),
            Code::InvalidArgument,
            "placement: is set together with hardware_id",
        ),
        (instance("", Some(by_model("none"))), Code::NotFound, "model none not found"),
        (instance("", Some(location)), Code::NotFound, "location nowhere not found"),
        (instance("", Some(spread)), Code::InvalidArgument, "placement.spread_label: "),
    ] {
        for validate_only in [false, true] {
            let instance = Some(instance.clone());
            let request =
                pb::CreateInstanceRequest { instance, validate_only, ..Default::default() };
            let refused = create(&api, request).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
            assert!(refused.message().starts_with(text), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_plan_names_the_machine_that_the_creation_takes_in_twenty_random_racks() {
    for seed in 0..20_u32 {
        let random: [u8; 64] = instances::random_bytes().unwrap();
        let rack: Vec<_> = random
            .iter()
            .map(|byte| {
                let state =
                    if byte % 7 == 0 { hw::State::Failed } else { hw::State::Provisionable };
                let labels = [("model", MODELS[usize::from(byte % 3)].0.to_owned())];
                let rack = [("rack", format!("r{}", byte % 5))];
                hw::Hardware { state: state.into(), ..machine(labels.into_iter().chain(rack)) }
            })
            .collect();
        let api = api(&Site::with_rack(rack), Arc::new(MemoryStore::default()));
        let spread_label = if seed % 2 == 0 { "rack".to_owned() } else { String::new() };
        let placement = pb::Placement { spread_label, ..by_model(MODELS[seed as usize % 3].0) };
        let mut planned_machines = 0;
        loop {
            let order = order(placement.clone(), String::new());
            let plan = pb::CreateInstanceRequest { validate_only: true, ..order.clone() };
            let plan = create(&api, plan).await;
            match (plan, create(&api, order).await) {
                (Ok(plan), Ok(response)) => {
                    assert!(plan.instance.is_none());
                    let (plan, instance) = (plan.plan.unwrap(), response.instance.unwrap());
                    assert_eq!(plan.hardware_id, instance.hardware_id, "rack {random:?}");
                    assert!(plan.disk.ends_with(&instance.hardware_id));
                    planned_machines += 1;
                }
                (Err(plan), Err(refused)) => {
                    assert_eq!(counts(&plan), counts(&refused));
                    break;
                }
                (plan, created) => panic!("{plan:?} and then {created:?}"),
            }
        }
        assert!(planned_machines > 0, "rack {random:?}");
    }
}

#[tokio::test]
async fn instances_are_spread_evenly_also_after_others_released_their_machines() {
    let site = Site::with_rack(
        (0..12).map(|n| machine([("rack", format!("r/{}", n % 3))])).chain([machine([])]).collect(),
    );
    let store = Arc::new(MemoryStore::default());
    let (api, instances) = (api(&site, store.clone()), Instances::new(store, Clock::system()));
    let placement = pb::Placement { spread_label: "rack".into(), ..Default::default() };
    let rack_of = |instance: &pb::Instance| {
        let state = site.state();
        let machine = state.rack.iter().find(|it| it.id == instance.hardware_id).unwrap();
        machine.labels["rack"].clone()
    };
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(created(&api, &placement).await);
    }
    let (gone, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| rack_of(it) == "r/1");
    assert_eq!((gone.len(), stay.len()), (2, 4));
    for instance in gone {
        let deleting = instances.delete(instance.id.parse().unwrap(), 0, false).await.unwrap();
        instances.advance(&deleting, Event::Cleaned, "", |_| {}).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(rack_of(&created(&api, &placement).await), "r/1");
    }
    // Another tenant is another group, which begins with none.
    let other = pb::Instance {
        placement: Some(Box::new(placement.clone())),
        tenant: "acme".into(),
        os: Some(script()),
        ..Default::default()
    };
    let order_of_other = pb::CreateInstanceRequest { instance: Some(other), ..Default::default() };
    let of_other = create(&api, order_of_other).await.unwrap().instance.unwrap();
    assert_ne!(of_other.spread_claim.split('/').next(), stay[0].spread_claim.split('/').next());
    assert!(instances.records.check(false).await.unwrap().is_clean());
    // The machine without the label is never chosen.
    for _ in 0..5 {
        created(&api, &placement).await;
    }
    let refused = create(&api, order(placement, String::new())).await.unwrap_err();
    let numbers = [("matching", 12), ("occupied", 12), ("without_label", 1)];
    assert_eq!(counts(&refused), expected(numbers));
}

#[tokio::test]
async fn an_instance_whose_machine_was_refused_counts_no_more_until_it_is_retried() {
    let site = Site::with_rack(vec![machine([("rack", "a".to_owned())])]);
    let store = Arc::new(MemoryStore::default());
    let (api, instances) = (api(&site, store.clone()), Instances::new(store, Clock::system()));
    let placement = pb::Placement { spread_label: "rack".into(), ..Default::default() };
    let instance = created(&api, &placement).await;
    let stored = instance.placement.clone().unwrap();
    let value = instance.spread_claim.split_once('/').unwrap().1.to_owned();
    let number =
        || async { instances.spread_group("", &stored).await.unwrap().instances_with(&value) };
    assert_eq!(number().await, 1);
    let read = instances.records.require(&instance.id).await.unwrap();
    instances.advance(&read, Event::Unusable, "failed", |_| {}).await.unwrap();
    assert_eq!(number().await, 0);
    instances.retry(instance.id.parse().unwrap()).await.unwrap();
    assert_eq!(number().await, 1);
}
