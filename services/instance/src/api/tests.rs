//! Views by role, and the codes of errors.

use runtime::identity::{Caller, Role};
use store::memory::MemoryStore;
use tinwright::common::v1::View;
use tinwright::instance::v1::instance::Os;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::tests::site::{MACHINE, Site};

fn api() -> Api {
    let (store, stop) = (Arc::new(MemoryStore::default()), CancellationToken::new());
    Api::new(store, Site::new().services(), Clock::system(), stop)
}

fn secretive() -> pb::Instance {
    pb::Instance {
        hardware_id: MACHINE.into(),
        hostname: "web".into(),
        userdata: "hunter2".into(),
        crypted_root_password: "$6$hunter2$hunter2".into(),
        extra: br#"{"customdata": "hunter2"}"#.into(),
        template_values: [("token".into(), "hunter2".into())].into(),
        vendor_data: "hunter2".into(),
        network_config: "hunter2".into(),
        os: Some(Os::CustomIpxe(pb::instance::CustomIpxe {
            contents: "#!ipxe\nset password hunter2".into(),
            ..Default::default()
        })),
        ..pb::Instance::default()
    }
}

async fn create(api: &Api, instance: pb::Instance) -> Result<pb::Instance, Status> {
    let request = pb::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    let answer = api.create_instance(Request::new(request)).await?;
    Ok(answer.into_inner().instance.unwrap())
}

/// Makes the queued instance `id` active, as after its installation.
pub(super) async fn activate(api: &Api, id: &str) {
    use crate::state::Event::{Began, Installed};
    let queued = api.instances.records.require(id).await.unwrap();
    let began = api.instances.advance(&queued, Began, "", |_| {}).await.unwrap();
    api.instances.advance(&began, Installed, "", |_| {}).await.unwrap();
}

/// Gets the machine's instance as `role`.
async fn get(api: &Api, role: Role, view: View) -> Result<pb::Instance, Status> {
    let by = Some(pb::get_instance_request::By::HardwareId(MACHINE.into()));
    let request = pb::GetInstanceRequest { by, view: view.into(), ..Default::default() };
    let mut request = Request::new(request);
    request.extensions_mut().insert(Caller::from(role));
    Ok(api.get_instance(request).await?.into_inner().instance.unwrap())
}

/// Returns the number of fields that hold a secret.
fn secrets(instance: &pb::Instance) -> usize {
    let script = match &instance.os {
        Some(Os::CustomIpxe(script)) => script.contents.len(),
        Some(Os::OperatingSystem(_) | Os::Platform(_) | Os::ImageStack(_)) | None => 0,
    };
    [
        instance.userdata.len(),
        instance.crypted_root_password.len(),
        instance.extra.len(),
        instance.template_values.len(),
        instance.vendor_data.len(),
        instance.network_config.len(),
        instance.lookup_id.len(),
        script,
    ]
    .into_iter()
    .filter(|length| *length > 0)
    .count()
}

#[tokio::test]
async fn full_views_show_secrets_to_authorized_roles_only() {
    let api = api();
    create(&api, secretive()).await.unwrap();
    let basic = get(&api, Role::Admin, View::Basic).await.unwrap();
    assert_eq!((secrets(&basic), basic.hostname.as_str()), (0, "web"));
    for role in [Role::Admin, Role::Service, Role::Edge] {
        let full = get(&api, role, View::Full).await.unwrap();
        let all = secretive();
        assert_eq!(secrets(&full), 8);
        assert!(full.os == all.os);
        assert_eq!((full.userdata, full.extra), (all.userdata, all.extra));
        assert_eq!(full.template_values, all.template_values);
    }
    let refused = get(&api, Role::Operator, View::Full).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn responses_to_changes_hold_no_secrets() {
    let api = api();
    let made = create(&api, secretive()).await.unwrap();
    let update = pb::Instance { hostname: "db".into(), ..made.clone() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["hostname".into()] });
    let request = pb::UpdateInstanceRequest { instance: Some(update), update_mask };
    let updated = api.update_instance(Request::new(request)).await.unwrap().into_inner().instance;
    let request = pb::DeleteInstanceRequest { id: made.id.clone(), ..Default::default() };
    let deleted = api.delete_instance(Request::new(request)).await.unwrap().into_inner().instance;
    for shown in [made, updated.unwrap(), deleted.unwrap()] {
        assert_eq!(secrets(&shown), 0, "{}", shown.state);
    }
}

#[tokio::test]
async fn writing_back_a_basic_view_loses_no_secret() {
    let api = api();
    create(&api, secretive()).await.unwrap();
    let before = get(&api, Role::Admin, View::Full).await.unwrap();
    let basic = get(&api, Role::Admin, View::Basic).await.unwrap();
    let update = async |instance, paths: &[&str]| {
        let paths = paths.iter().copied().map(String::from).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = pb::UpdateInstanceRequest { instance: Some(instance), update_mask };
        api.update_instance(Request::new(request)).await.unwrap();
        get(&api, Role::Admin, View::Full).await.unwrap()
    };
    let renamed = pb::Instance { hostname: "db".into(), ..basic.clone() };
    let after = update(renamed, &[]).await;
    let (revision, update_time) = (after.revision, after.update_time);
    assert_eq!(after, pb::Instance { hostname: "db".into(), revision, update_time, ..before });
    // A field that the mask names is removed.
    let emptied = pb::Instance { revision: 0, ..basic };
    assert_eq!(update(emptied, &["userdata", "extra"]).await.userdata, "");
}

#[tokio::test]
async fn user_data_in_one_form_replaces_that_in_the_other() {
    let api = api();
    let made = create(&api, secretive()).await.unwrap();
    let gzip = vec![0x1f, 0x8b, 8, 0xff];
    let update = async |text: &str, bytes: &[u8], paths: &[&str]| {
        let (userdata, userdata_bytes) = (text.into(), bytes.to_vec());
        let instance = pb::Instance { userdata, userdata_bytes, revision: 0, ..made.clone() };
        let paths = paths.iter().copied().map(String::from).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = pb::UpdateInstanceRequest { instance: Some(instance), update_mask };
        api.update_instance(Request::new(request)).await?;
        let stored = get(&api, Role::Admin, View::Full).await?;
        Ok::<_, Status>((stored.userdata, stored.userdata_bytes))
    };
    let binary = (String::new(), gzip.clone());
    assert_eq!(update("", &gzip, &["userdata_bytes"]).await.unwrap(), binary);
    assert_eq!(update("", &[], &[]).await.unwrap(), binary, "a basic view that is written back");
    let text = ("#!/bin/sh".to_owned(), Vec::new());
    assert_eq!(update("#!/bin/sh", &gzip, &["userdata"]).await.unwrap(), text);
    assert_eq!(update("", &gzip, &[]).await.unwrap(), binary);
    let refused = update("#!/bin/sh", &gzip, &[]).await.unwrap_err();
    assert!(refused.message().starts_with("userdata_bytes: is set together"), "{refused:?}");
    assert_eq!(update("", &[], &["userdata_bytes"]).await.unwrap(), Default::default());
}

#[tokio::test]
async fn lists_and_watches_hold_no_secrets_by_default() {
    let api = api();
    create(&api, secretive()).await.unwrap();
    let mirror = api.mirror.clone();
    let stop = CancellationToken::new();
    let _running = tokio::spawn({
        let stop = stop.clone();
        async move { mirror.run(stop).await }
    });
    let _stopped = stop.drop_guard();
    let all = Request::new(pb::ListInstancesRequest::default());
    let listed = api.list_instances(all).await.unwrap().into_inner().instances;
    let watch = Request::new(pb::WatchInstancesRequest::default());
    let mut watched = api.watch_instances(watch).await.unwrap().into_inner();
    let streamed = futures_util::StreamExt::next(&mut watched).await.unwrap().unwrap().event;
    let Some(pb::watch_instances_response::Event::Instance(streamed)) = streamed else { panic!() };
    assert_eq!((secrets(&listed[0]), secrets(&streamed)), (0, 0));
    assert_eq!(listed, [streamed]);
}

#[tokio::test]
async fn instances_are_listed_by_their_state() {
    let api = api();
    let made = create(&api, secretive()).await.unwrap();
    for (state, ids) in
        [(pb::State::Queued, vec![made.id.clone()]), (pb::State::Active, Vec::new())]
    {
        let mut request = pb::ListInstancesRequest::default();
        request.set_state(state);
        let listed = api.list_instances(Request::new(request)).await.unwrap().into_inner();
        let found: Vec<_> = listed.instances.into_iter().map(|it| it.id).collect();
        assert_eq!(found, ids, "{state:?}");
    }
}

#[tokio::test]
async fn errors_have_the_documented_codes() {
    let api = api();
    let made = create(&api, secretive()).await.unwrap();
    let taken = create(&api, secretive()).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert_eq!(taken.get_details_resource_info().unwrap().resource_name, made.id);
    let active = pb::Instance { state: pb::State::Active.into(), ..secretive() };
    assert_eq!(create(&api, active).await.unwrap_err().code(), Code::FailedPrecondition);
    let update = pb::Instance { id: made.id.clone(), protect: true, ..Default::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["protect".into()] });
    let request = pb::UpdateInstanceRequest { instance: Some(update), update_mask };
    api.update_instance(Request::new(request)).await.unwrap();
    let delete = pb::DeleteInstanceRequest { id: made.id.clone(), ..Default::default() };
    let refused = api.delete_instance(Request::new(delete)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "PROTECTED");
    let home = |hardware_id: &str, instance_id: &str| {
        let (hardware_id, instance_id) = (hardware_id.to_owned(), instance_id.to_owned());
        api.report_phone_home(Request::new(pb::ReportPhoneHomeRequest {
            hardware_id,
            instance_id,
            ..Default::default()
        }))
    };
    assert!(home(MACHINE, &made.id).await.is_ok());
    let code = |outcome: Result<_, Status>| outcome.unwrap_err().code();
    assert_eq!(code(home(MACHINE, MACHINE).await), Code::FailedPrecondition);
    assert_eq!(code(home(&made.id, "").await), Code::NotFound);
    assert_eq!(code(home("x", "").await), Code::InvalidArgument);
    let now = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 };
    let stack = |hardware_id: &str, instance_id: &str, boot_time| {
        let (hardware_id, instance_id) = (hardware_id.to_owned(), instance_id.to_owned());
        let generation = 1;
        api.report_stack_running(Request::new(pb::ReportStackRunningRequest {
            hardware_id,
            instance_id,
            generation,
            boot_time,
        }))
    };
    assert!(stack(MACHINE, &made.id, Some(now)).await.is_ok(), "it is no node: nothing changes");
    let code = |outcome: Result<_, Status>| outcome.unwrap_err().code();
    assert_eq!(code(stack(MACHINE, MACHINE, Some(now)).await), Code::FailedPrecondition);
    assert_eq!(code(stack(&made.id, &made.id, Some(now)).await), Code::NotFound);
    assert_eq!(code(stack(MACHINE, &made.id, None).await), Code::InvalidArgument);
}

/// A site and its API.
fn bench() -> (Site, Api) {
    let (site, store) = (Site::new(), Arc::new(MemoryStore::default()));
    site.state().machine.as_mut().unwrap().name = "node-1".into();
    let api = Api::new(store, site.services(), Clock::system(), CancellationToken::new());
    (site, api)
}

fn templated() -> pb::Instance {
    pb::Instance {
        hardware_id: MACHINE.into(),
        template_id: HardwareId::new().to_string(),
        template_values: [("imag".into(), "x".into())].into(),
        ..pb::Instance::default()
    }
}

/// Returns code, reason and text with which an order and its plan are refused. Nothing is stored.
async fn refusal(api: &Api, instance: pb::Instance) -> (Code, String, String) {
    let plan = pb::CreateInstanceRequest {
        instance: Some(instance.clone()),
        validate_only: true,
        ..Default::default()
    };
    let planned = api.create_instance(Request::new(plan)).await.unwrap_err();
    let refused = create(api, instance).await.unwrap_err();
    assert_eq!(planned.message(), refused.message(), "a plan fails as the creation does");
    let all = Request::new(pb::ListInstancesRequest::default());
    assert!(api.list_instances(all).await.unwrap().into_inner().instances.is_empty());
    let reason = refused.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    (refused.code(), reason, refused.message().to_owned())
}

#[tokio::test]
async fn an_order_on_a_machine_that_cannot_be_used_is_refused_with_what_to_do() {
    use tinwright::hardware::v1::State;
    let (site, api) = bench();
    let precondition =
        |reason: &str, text: &str| (Code::FailedPrecondition, reason.to_owned(), text.to_owned());
    site.set_machine_state(State::Enrolled, "");
    let text = "node-1 is enrolled, and not accepted yet: tinwright hardware accept node-1";
    assert_eq!(refusal(&api, templated()).await, precondition("STATE", text));
    let reserved =
        pb::Instance { hardware_id: MACHINE.into(), reserve_only: true, ..Default::default() };
    assert_eq!(refusal(&api, reserved).await.2, text);
    site.set_machine_state(State::Maintenance, "fan");
    let text = "node-1 is in maintenance: fan";
    assert_eq!(refusal(&api, templated()).await, precondition("STATE", text));
    site.set_machine_state(State::Provisionable, "");
    site.protect_machine(true);
    let text = "node-1 is protected: tinwright hardware unprotect node-1";
    assert_eq!(refusal(&api, templated()).await, precondition("PROTECTED", text));
    site.protect_machine(false);
    let elsewhere = pb::Instance { hardware_id: HardwareId::new().to_string(), ..templated() };
    assert_eq!(refusal(&api, elsewhere).await.0, Code::NotFound);
    create(&api, templated()).await.unwrap();
    let taken = create(&api, templated()).await.unwrap_err();
    assert!(taken.message().starts_with("node-1 is occupied by instance "), "{taken}");
}

#[tokio::test]
async fn a_template_needs_a_bmc_unless_people_switch_the_machine() {
    let (site, api) = bench();
    site.state().has_bmc = false;
    let (code, reason, text) = refusal(&api, templated()).await;
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "NO_BMC"));
    let wanted = "node-1 has no BMC: add one (tinwright power bmc create --hardware node-1), or set power_management to none (--no-power-management)";
    assert!(text.starts_with(wanted), "{text}");
    let by_hand = pb::instance::PowerManagement::None.into();
    create(&api, pb::Instance { power_management: by_hand, ..templated() }).await.unwrap();
}

#[tokio::test]
async fn a_script_may_wait_for_people_who_switch_a_machine_without_a_bmc_on() {
    let (site, api) = bench();
    site.state().has_bmc = false;
    create(&api, secretive()).await.unwrap();
}

#[tokio::test]
async fn an_order_whose_template_cannot_be_rendered_or_does_not_use_its_values_is_refused() {
    let (site, api) = bench();
    let text = "node-1: the machine has no inventory";
    site.state().refusal = Some(Status::failed_precondition(text));
    let wanted = (Code::FailedPrecondition, "TEMPLATE".to_owned(), text.to_owned());
    assert_eq!(refusal(&api, templated()).await, wanted);
    site.state().refusal = None;
    site.state().unused_values = vec!["imag (did you mean img?)".into()];
    let (code, _, text) = refusal(&api, templated()).await;
    assert_eq!(code, Code::InvalidArgument);
    let wanted = "template_values: has values that no template uses: imag (did you mean img?)";
    assert_eq!(text, wanted);
}

#[tokio::test]
async fn an_order_that_cannot_be_checked_now_is_accepted() {
    let (site, api) = bench();
    site.state().unavailable = true;
    // Without a tenant, only the checks call other services.
    let made = create(&api, templated()).await.unwrap();
    assert_eq!(made.state(), pb::State::Queued);
}

#[tokio::test]
async fn a_repeated_request_has_its_first_result_although_the_machine_is_taken_now() {
    let (site, api) = bench();
    let request = pb::CreateInstanceRequest {
        instance: Some(templated()),
        request_id: "r".into(),
        ..Default::default()
    };
    let send = || api.create_instance(Request::new(request.clone()));
    let first = send().await.unwrap().into_inner().instance.unwrap();
    site.set_machine_state(tinwright::hardware::v1::State::Maintenance, "");
    assert_eq!(send().await.unwrap().into_inner().instance.unwrap().id, first.id);
}

/// Creates `instance`, makes it active, and returns its id.
async fn active(api: &Api, instance: pb::Instance) -> String {
    let id = Box::pin(create(api, instance)).await.unwrap().id;
    Box::pin(activate(api, &id)).await;
    id
}

/// Reinstalls the instance `id` as it is.
async fn reinstall(
    api: &Api,
    id: &str,
    validate_only: bool,
) -> Result<pb::ReinstallInstanceResponse, Status> {
    let id = id.to_owned();
    let request = pb::ReinstallInstanceRequest { id, validate_only, ..Default::default() };
    Ok(Box::pin(api.reinstall_instance(Request::new(request))).await?.into_inner())
}

#[tokio::test]
async fn a_reinstallation_is_planned_with_unused_values_and_on_an_enrolled_machine() {
    let (site, api) = bench();
    let clean_up = HardwareId::new().to_string();
    let instance = pb::Instance { deprovision_template_id: clean_up, ..templated() };
    let id = active(&api, instance).await;
    site.set_machine_state(tinwright::hardware::v1::State::Enrolled, "");
    site.state().unused_values = vec!["imag (did you mean img?)".into()];
    let plan = reinstall(&api, &id, true).await.unwrap().plan.unwrap();
    assert_eq!((plan.hardware_id.as_str(), plan.hardware_name.as_str()), (MACHINE, "node-1"));
    let planned = site.state().planned.last().cloned().unwrap();
    assert_eq!(plan.template_id, planned.template_id);
    assert_eq!(planned.deprovision_template_id, "", "the reinstallation does not need it");
    let reinstalled = reinstall(&api, &id, false).await.unwrap().instance.unwrap();
    assert_eq!(reinstalled.state(), pb::State::Reinstalling);
}

#[tokio::test]
async fn the_plan_of_a_reinstallation_fails_if_that_would_fail() {
    use tinwright::hardware::v1::State;
    let (site, api) = bench();
    let id = active(&api, templated()).await;
    let refused = async || {
        let refused = reinstall(&api, &id, true).await.unwrap_err();
        (refused.get_details_error_info().unwrap().reason, refused.message().to_owned())
    };
    site.set_machine_state(State::Maintenance, "fan");
    let (reason, text) = refused().await;
    assert_eq!((reason.as_str(), text.as_str()), ("STATE", "node-1 is in maintenance: fan"));
    site.set_machine_state(State::Provisionable, "");
    site.protect_machine(true);
    assert_eq!(refused().await.0, "PROTECTED");
    site.protect_machine(false);
    site.state().has_bmc = false;
    assert_eq!(refused().await.0, "NO_BMC");
    site.state().has_bmc = true;
    site.state().refusal = Some(Status::failed_precondition("no inventory"));
    let (reason, text) = refused().await;
    assert_eq!((reason.as_str(), text.as_str()), ("TEMPLATE", "no inventory"));
}

#[tokio::test]
async fn a_reinstallation_without_a_template_is_planned_although_its_boot_would_wait() {
    let (site, api) = bench();
    let id = active(&api, secretive()).await;
    site.set_machine_state(tinwright::hardware::v1::State::Maintenance, "fan");
    let plan = reinstall(&api, &id, true).await.unwrap().plan.unwrap();
    let (hardware_id, hardware_name) = (MACHINE.to_owned(), "node-1".to_owned());
    assert_eq!(plan, pb::InstancePlan { hardware_id, hardware_name, ..Default::default() });
}
