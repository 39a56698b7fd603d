//! Provisioning: from queued to active, or failed with a reason.

use tinwright::hardware::v1::Policy;
use tinwright::hardware::v1::policy::PhoneHome;
use tinwright::instance::v1::instance::PowerManagement;
use tinwright::workflow::v1::boot_options::Mode;
use tonic::Status;

use super::*;

fn required() -> Policy {
    Policy { phone_home: PhoneHome::Required.into(), ..Policy::default() }
}

#[tokio::test]
async fn a_template_installs_the_machine() {
    let values = [("disk".to_owned(), "/dev/sda".to_owned())].into();
    let bench = Bench::new(Instance { template_values: values, ..templated() }).await;
    assert_eq!(bench.settled().await, "provisioning");
    let request = bench.site.state().created[0].clone();
    assert_eq!(request.request_id, format!("{}/provision/1", bench.id));
    assert_eq!((request.template_id.as_str(), request.hardware_id.as_str()), (TEMPLATE, MACHINE));
    assert_eq!(
        (request.instance_id.clone(), request.values["disk"].as_str()),
        (bench.id.to_string(), "/dev/sda")
    );
    let options = request.boot_options.unwrap();
    assert_eq!((options.mode(), options.power_off_after), (Mode::Netboot, false));
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
    let instance = bench.found().await.unwrap();
    assert_eq!((instance.workflow_ids.len(), instance.workflow_id.as_str()), (1, ""));
    assert!(instance.install_time.is_some());
}

#[tokio::test]
async fn a_machine_that_may_not_be_used_is_released_with_a_reason() {
    for (state, words) in [
        (HardwareState::Failed, "is failed: fan"),
        (HardwareState::Maintenance, "is in maintenance: fan"),
        (HardwareState::Deleting, "is being deleted: fan"),
    ] {
        let bench = Bench::new(templated()).await;
        bench.site.set_machine_state(state, "fan");
        assert_eq!(bench.settled().await, "failed");
        assert_eq!(bench.reason().await, format!("{MACHINE} {words}"));
        assert!(!bench.occupied().await && bench.site.state().created.is_empty());
        bench.instances.create(templated(), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_protected_machine_is_not_installed() {
    let bench = Bench::new(templated()).await;
    bench.site.protect_machine(true);
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(
        bench.reason().await,
        format!("{MACHINE} is protected: tinwright hardware unprotect {MACHINE}")
    );
    assert!(!bench.occupied().await && bench.site.state().created.is_empty());
}

#[tokio::test]
async fn a_missing_machine_is_released() {
    let bench = Bench::new(templated()).await;
    bench.site.state().machine = None;
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(bench.reason().await, format!("hardware {MACHINE} not found"));
    assert!(!bench.occupied().await);
    bench.delete(false).await;
    assert_eq!(bench.state().await, "gone", "there is nothing to give back");
}

#[tokio::test]
async fn a_changed_machine_stays_claimed() {
    let bench = Bench::new(templated()).await;
    bench.settle().await;
    bench.site.end(Workflow::Failed, "no disk");
    bench.settle().await;
    bench.site.set_machine_state(HardwareState::Maintenance, "");
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "failed");
    assert!(bench.occupied().await);
}

#[tokio::test]
async fn a_failed_workflow_fails_the_instance_with_its_reason() {
    for (end, how) in [
        (Workflow::Failed, "failed"),
        (Workflow::Timeout, "took too long"),
        (Workflow::Cancelled, "was cancelled"),
    ] {
        let bench = Bench::new(templated()).await;
        bench.settle().await;
        bench.site.end(end, "task os: action stream: 404");
        assert_eq!(bench.settled().await, "failed");
        let workflow = bench.site.state().workflows[0].id.clone();
        let reason = format!("workflow {workflow} {how}: task os: action stream: 404");
        assert_eq!(bench.reason().await, reason);
        assert!(bench.occupied().await);
    }
}

#[tokio::test]
async fn a_retry_is_a_new_generation_with_a_new_workflow() {
    let bench = Bench::new(templated()).await;
    bench.settle().await;
    bench.site.end(Workflow::Failed, "");
    bench.settle().await;
    bench.instances.retry(bench.id).await.unwrap();
    bench.instances.retry(bench.id).await.unwrap();
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
    let asked = [1, 2].map(|generation| format!("{}/provision/{generation}", bench.id));
    assert_eq!(bench.site.request_ids(), asked);
    assert!(bench.instances.retry(bench.id).await.is_err(), "nothing failed");
}

#[tokio::test]
async fn a_refused_workflow_fails_the_instance_with_the_refusal() {
    let bench = Bench::new(templated()).await;
    let refusal = Status::invalid_argument("template \"debian\" line 12: no field \"disk\"");
    bench.site.state().refusal = Some(refusal);
    assert_eq!(bench.settled().await, "failed");
    let reason = "the workflow service refused: template \"debian\" line 12: no field \"disk\"";
    assert_eq!(bench.reason().await, reason);
}

#[tokio::test]
async fn a_workflow_that_is_deleted_fails_its_instance() {
    let bench = Bench::new(templated()).await;
    bench.settle().await;
    let workflow = bench.site.state().workflows.remove(0);
    assert_eq!(bench.settled().await, "failed");
    assert_eq!(bench.reason().await, format!("workflow {} was deleted", workflow.id));
}

#[tokio::test]
async fn a_required_phone_home_call_is_awaited() {
    let bench = Bench::new(templated()).await;
    bench.site.policy(required());
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    let waits = bench.settle().await;
    assert!(
        matches!(waits, Outcome::After(left) if left > Duration::from_secs(29 * 60)),
        "{waits:?}"
    );
    assert_eq!(
        (bench.state().await, bench.reason().await),
        ("provisioning".into(), "waits for phone home".into())
    );
    bench.call_home().await;
    assert_eq!((bench.settled().await, bench.reason().await), ("active".into(), String::new()));
}

#[tokio::test]
async fn a_phone_home_call_before_the_end_of_the_workflow_counts() {
    let bench = Bench::new(templated()).await;
    bench.site.policy(required());
    bench.settle().await;
    bench.call_home().await;
    assert_eq!(bench.settled().await, "provisioning");
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn a_system_that_never_calls_is_awaited_for_half_an_hour() {
    let bench = Bench::new(templated()).await;
    bench.site.policy(required());
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    bench.settle().await;
    let old = bench.found().await.unwrap();
    let mut early = old.clone();
    early.install_time.as_mut().unwrap().seconds -= 30 * 60;
    bench.instances.put(&old, early).await.unwrap();
    assert_eq!(
        (bench.settled().await, bench.reason().await),
        ("active".into(), "no phone home".into())
    );
    bench.call_home().await;
    assert_eq!(bench.reason().await, "");
}

#[tokio::test]
async fn a_custom_script_is_booted_once_and_ends_with_a_call_if_policy_requires_one() {
    let bench = Bench::new(scripted()).await;
    bench.site.policy(required());
    assert_eq!(bench.settle().await, Outcome::Done);
    assert_eq!(
        (bench.state().await, bench.reason().await),
        ("provisioning".into(), "boots its custom script".into())
    );
    bench.settle().await;
    assert_eq!(bench.site.request_ids().len(), 1);
    assert_eq!(bench.site.request_ids()[0], format!("{}/boot/1", bench.id));
    assert!(bench.site.state().created.is_empty());
    bench.report_script(true).await;
    assert_eq!(bench.settled().await, "provisioning");
    bench.call_home().await;
    assert_eq!(bench.settled().await, "active");
}

#[tokio::test]
async fn an_instance_is_active_when_its_custom_script_starts_and_not_if_it_cannot_be_loaded() {
    let bench = Bench::new(scripted()).await;
    assert_eq!(bench.settled().await, "provisioning");
    bench.report_script(true).await;
    assert_eq!((bench.settled().await, bench.reason().await), ("active".into(), String::new()));
    bench.report_script(false).await;
    assert_eq!(bench.settled().await, "provisioning");
    assert!(bench.reason().await.contains("could not be loaded"), "{}", bench.reason().await);
    bench.report_script(true).await;
    assert_eq!(bench.settled().await, "active");
    bench.call_home().await;
    bench.report_script(false).await;
    assert_eq!(bench.settled().await, "active", "its system is up");
    assert_eq!(bench.site.request_ids().len(), 1, "it was booted once");
}

#[tokio::test]
async fn a_machine_in_maintenance_is_not_booted_into_its_custom_script() {
    let bench = Bench::new(scripted()).await;
    let begun = bench.reconciler.step(&bench.id.to_string()).await.unwrap();
    assert_eq!((begun, bench.state().await), (Outcome::Again, "provisioning".into()));
    bench.site.set_machine_state(HardwareState::Maintenance, "fan");
    assert!(matches!(bench.settle().await, Outcome::After(_)));
    assert_eq!(bench.reason().await, format!("waits: {MACHINE} is in maintenance: fan"));
    assert!(bench.site.state().jobs.is_empty());
    bench.site.set_machine_state(HardwareState::Provisionable, "");
    assert_eq!(bench.settle().await, Outcome::Done);
    assert_eq!(bench.reason().await, "boots its custom script");
    assert_eq!(bench.site.request_ids(), [format!("{}/boot/1", bench.id)]);
}

#[tokio::test]
async fn a_custom_script_has_no_time_limit() {
    let bench = Bench::new(scripted()).await;
    bench.site.policy(required());
    bench.settle().await;
    let old = bench.found().await.unwrap();
    let mut early = old.clone();
    early.install_time.as_mut().unwrap().seconds -= 24 * 60 * 60;
    bench.instances.put(&old, early).await.unwrap();
    assert_eq!(bench.settled().await, "provisioning");
}

#[tokio::test]
async fn a_machine_without_a_bmc_is_switched_on_by_hand() {
    let bench = Bench::new(scripted()).await;
    bench.site.state().has_bmc = false;
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.reason().await, "no BMC: switch the machine on by hand");
}

#[tokio::test]
async fn what_people_switch_on_is_not_booted() {
    let by_hand = |instance: Instance| Instance {
        power_management: PowerManagement::None.into(),
        ..instance
    };
    let bench = Bench::new(by_hand(scripted())).await;
    assert_eq!(bench.settled().await, "provisioning");
    assert_eq!(bench.reason().await, "waits: switch the machine on by hand");
    assert!(bench.site.request_ids().is_empty());
    let bench = Bench::active(by_hand(templated())).await;
    assert_eq!(bench.site.state().created[0].boot_options, None);
    bench.delete(false).await;
    bench.settle().await;
    // The tenant's system must not be the one that gets the identity of the clean-up.
    let clean_up = bench.site.state().created[1].boot_options.unwrap();
    assert!(clean_up.mode() == Mode::Netboot && clean_up.power_off_after);
}

#[tokio::test]
async fn a_reserved_machine_is_only_kept() {
    let reserved = Instance { reserve_only: true, ..Instance::default() };
    let bench = Bench::new(Instance { hardware_id: MACHINE.into(), ..reserved.clone() }).await;
    assert_eq!(bench.settled().await, "active");
    assert!(bench.occupied().await);
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "gone");
    assert!(bench.site.request_ids().is_empty(), "nothing was done to it");
    let wrong = bench.instances.create(Instance { reserve_only: true, ..templated() }, None).await;
    assert!(wrong.unwrap_err().to_string().contains("reserve_only"));
    // A machine that may not be used cannot be kept either.
    let bench = Bench::new(Instance { hardware_id: MACHINE.into(), ..reserved }).await;
    bench.site.set_machine_state(HardwareState::Failed, "fan");
    assert_eq!(bench.settled().await, "failed");
    assert!(!bench.occupied().await);
}

#[tokio::test]
async fn where_nothing_is_to_be_installed_the_instance_is_active_at_once() {
    let bench = Bench::new(Instance { template_id: String::new(), ..templated() }).await;
    assert_eq!(bench.settled().await, "active");
    assert!(bench.site.request_ids().is_empty());
}

#[tokio::test]
async fn only_the_latest_hundred_workflows_are_remembered() {
    let mut instance = templated();
    for n in 0..105 {
        provision::record_workflow(&mut instance, &n.to_string());
    }
    assert_eq!(instance.workflow_ids.len(), 100);
    assert_eq!(
        (instance.workflow_ids[0].as_str(), instance.workflow_ids[99].as_str()),
        ("5", "104")
    );
}

#[tokio::test]
async fn nothing_is_done_for_an_instance_of_a_missing_tenant_and_it_is_deleted() {
    let bench = Bench::new(Instance { tenant: "acme".into(), ..templated() }).await;
    // As if the server was killed between storing the instance and finding its tenant again.
    bench.site.state().tenants = [FoundTenant::BeingDeleted, FoundTenant::Missing].into();
    let waits = bench.reconciler.step(&bench.id.to_string()).await.unwrap_err();
    assert!(matches!(waits, Error::Peer(peers::Error::Unavailable { .. })), "{waits}");
    assert_eq!(bench.state().await, "queued");
    assert_eq!(bench.settled().await, "gone");
    assert_eq!(bench.site.request_ids(), [""; 0]);
    assert!(!bench.occupied().await);
}

#[tokio::test]
async fn a_machine_that_was_changed_for_an_instance_is_kept_without_its_tenant() {
    let bench = Bench::new(Instance { tenant: "acme".into(), ..templated() }).await;
    bench.settle().await;
    bench.site.end(Workflow::Failed, "");
    bench.settle().await;
    bench.instances.retry(bench.id).await.unwrap();
    bench.site.state().tenants = [FoundTenant::Missing].into();
    assert_eq!(bench.settled().await, "provisioning");
}
