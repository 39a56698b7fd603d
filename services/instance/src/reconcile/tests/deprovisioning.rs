//! Deprovisioning: from active to deleted.

use tinwright::hardware::v1::Policy;
use tinwright::instance::v1::instance::PowerManagement;
use tonic::Status;

use super::*;

const OTHER: &str = "0a8e5f66-90b3-4f0e-9a55-6d1f0c2b3a44";

#[tokio::test]
async fn a_machine_is_wiped_and_switched_off_before_it_is_free() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    let request = bench.site.state().created[1].clone();
    assert_eq!(request.request_id, format!("{}/deprovision/2", bench.id));
    assert_eq!(request.template_id, "");
    assert!(request.template_data.contains("WIPE_DISKS: all") && request.values.is_empty());
    assert!(request.boot_options.unwrap().power_off_after && bench.occupied().await);
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "gone");
    assert!(!bench.occupied().await);
}

#[tokio::test]
async fn a_deleted_instance_leaves_its_id_and_a_record_of_it() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    bench.settle().await;
    bench.site.end(Workflow::Success, "");
    bench.settle().await;
    let left = bench.store.list("", "", 100).await.unwrap().pairs;
    let left = left.into_iter().map(|(key, _)| key);
    let left: Vec<_> = left.filter(|key| !key.starts_with("instance/event/")).collect();
    let id = bench.id;
    assert_eq!(left, [format!("instance/deleted/{id}"), format!("instance/retired/id/{id}")]);
}

#[tokio::test]
async fn the_clean_up_template_of_the_instance_overrides_that_of_the_machine() {
    let machines = Policy { deprovision_template_id: TEMPLATE.into(), ..Policy::default() };
    for (own, used) in [("", TEMPLATE), (OTHER, OTHER)] {
        let wished = Instance { deprovision_template_id: own.into(), ..templated() };
        let bench = Bench::active(wished).await;
        bench.site.policy(machines.clone());
        bench.delete(false).await;
        bench.settle().await;
        let request = bench.site.state().created[1].clone();
        assert_eq!((request.template_id.as_str(), request.template_data.as_str()), (used, ""));
    }
}

#[tokio::test]
async fn no_value_of_a_tenant_reaches_the_clean_up_and_none_replaces_the_machines() {
    let machines = Policy { deprovision_template_id: TEMPLATE.into(), ..Policy::default() };
    let values = [("disk", "/dev/sdb"), ("device_1", "02:00:00:00:00:09"), ("img", "a")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (tenant, passed) in [("acme", vec![]), ("", vec!["img"])] {
        let ordered = Instance {
            tenant: tenant.into(),
            template_values: values.clone().into(),
            ..templated()
        };
        let bench = Bench::active(ordered).await;
        bench.site.policy(machines.clone());
        bench.delete(false).await;
        bench.settle().await;
        let request = bench.site.state().created[1].clone();
        assert_eq!(request.values.keys().collect::<Vec<_>>(), passed, "{tenant}");
    }
}

#[tokio::test]
async fn a_machine_that_was_never_switched_on_is_released_at_once() {
    let by_hand = Instance { power_management: PowerManagement::None.into(), ..templated() };
    for (is_never_switched_on, state) in [(true, "gone"), (false, "deprovisioning")] {
        let bench = Bench::new(by_hand.clone()).await;
        bench.site.state().has_bmc = false;
        bench.site.state().is_never_switched_on = is_never_switched_on;
        assert_eq!(bench.settled().await, "provisioning");
        bench.delete(false).await;
        assert_eq!(bench.settled().await, state);
        assert_eq!(bench.site.state().created.len(), 1, "no clean-up");
    }
}

#[tokio::test]
async fn a_machine_that_had_another_system_is_cleaned_although_its_workflow_never_began() {
    let bench = Bench::active(templated()).await;
    bench.site.state().is_never_switched_on = true;
    bench.instances.reinstall(bench.id, 0, Instance::default(), &[]).await.unwrap();
    bench.settle().await;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    assert_eq!(bench.site.state().created.len(), 3);
}

#[tokio::test]
async fn a_failed_clean_up_keeps_the_claim_and_can_be_retried() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    bench.settle().await;
    bench.site.end(Workflow::Failed, "disk is in use");
    assert_eq!(bench.settled().await, "deprovision_failed");
    assert!(bench.reason().await.ends_with("failed: disk is in use") && bench.occupied().await);
    bench.instances.retry(bench.id).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.site.request_ids()[2], format!("{}/deprovision/3", bench.id));
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "gone");
}

#[tokio::test]
async fn a_deleted_clean_up_workflow_counts_as_failed() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    bench.settle().await;
    bench.site.state().workflows.pop();
    assert_eq!(bench.settled().await, "deprovision_failed");
    assert!(bench.occupied().await);
}

#[tokio::test]
async fn a_lost_clean_up_template_can_be_replaced() {
    let bench =
        Bench::active(Instance { deprovision_template_id: TEMPLATE.into(), ..templated() }).await;
    bench.site.state().refusal = Some(Status::not_found("template not found"));
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovision_failed");
    let advice = "template not found; set another deprovision_template_id and retry";
    assert!(bench.reason().await.ends_with(advice));
    let id = bench.id.to_string();
    let update = Instance { id, deprovision_template_id: OTHER.into(), ..Instance::default() };
    let paths = ["deprovision_template_id".to_owned()];
    bench.instances.update(update.clone(), &paths).await.unwrap();
    bench.site.state().refusal = None;
    bench.instances.retry(bench.id).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.site.state().created[1].template_id, OTHER);
    let cleaned = bench.instances.update(update, &paths).await.unwrap_err().to_string();
    let workflow = bench.site.state().workflows[1].id.clone();
    assert_eq!(cleaned, format!("instance {} is being cleaned by workflow {workflow}", bench.id));
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "gone");
}

#[tokio::test]
async fn a_forced_delete_moves_the_machine_unwiped_to_maintenance() {
    let bench = Bench::active(templated()).await;
    bench.delete(true).await;
    assert_eq!(bench.settled().await, "gone");
    assert_eq!(bench.site.state().created.len(), 1, "no clean-up");
    let machine = bench.site.state().machine.clone().unwrap();
    assert_eq!(machine.state(), HardwareState::Maintenance);
    assert_eq!(machine.state_reason, "released by force, not wiped");
}

#[tokio::test]
async fn a_forced_delete_cancels_a_running_clean_up() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    bench.settle().await;
    bench.delete(true).await;
    assert_eq!(bench.settled().await, "gone");
    assert_eq!(bench.site.state().workflows[1].state(), Workflow::Cancelled);
}

#[tokio::test]
async fn the_installing_workflow_is_cancelled_before_the_clean_up_is_queued() {
    let bench = Bench::new(templated()).await;
    bench.settle().await;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    let states: Vec<_> = bench.site.state().workflows.iter().map(|each| each.state()).collect();
    assert_eq!(states, [Workflow::Cancelled, Workflow::Pending]);
}

#[tokio::test]
async fn an_unchanged_machine_is_released_without_wiping() {
    let bench = Bench::new(templated()).await;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "gone");
    assert!(bench.site.request_ids().is_empty());
}

#[tokio::test]
async fn a_machine_without_a_record_is_released() {
    let bench = Bench::active(templated()).await;
    bench.site.state().machine = None;
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "gone");
}

#[tokio::test]
async fn a_machine_in_maintenance_is_cleaned_when_maintenance_ends() {
    let bench = Bench::active(templated()).await;
    bench.site.set_machine_state(HardwareState::Maintenance, "");
    bench.delete(false).await;
    assert!(matches!(bench.settle().await, Outcome::After(_)));
    assert_eq!(bench.reason().await, "waits: the machine is in maintenance");
    assert_eq!(bench.site.request_ids().len(), 1);
    bench.site.set_machine_state(HardwareState::Provisionable, "");
    bench.settle().await;
    assert_eq!((bench.reason().await, bench.site.request_ids().len()), (String::new(), 2));
}

#[tokio::test]
async fn a_protected_machine_is_cleaned_when_its_protection_ends() {
    let bench = Bench::active(templated()).await;
    bench.site.protect_machine(true);
    bench.delete(false).await;
    assert!(matches!(bench.settle().await, Outcome::After(_)));
    assert_eq!(bench.reason().await, "waits: the machine is protected");
    assert_eq!(bench.site.request_ids().len(), 1);
    bench.site.protect_machine(false);
    bench.settle().await;
    assert_eq!((bench.reason().await, bench.site.request_ids().len()), (String::new(), 2));
}

#[tokio::test]
async fn the_clean_up_of_a_machine_without_a_bmc_waits_for_the_confirmed_restart() {
    let bench = Bench::active(templated()).await;
    {
        let mut site = bench.site.state();
        site.has_bmc = false;
        site.machine.as_mut().unwrap().name = "node-1".into();
        // Of an earlier boot epoch: the tenant's system may have seen it.
        site.restart_time = Some(bench.instances.now());
    }
    bench.delete(false).await;
    assert_eq!(bench.settled().await, "deprovisioning");
    let asks = "node-1 has no BMC: restart it from the network, then: tinwright workflow confirm-restart node-1";
    assert_eq!(bench.reason().await, asks);
    assert_eq!(bench.site.state().created.len(), 1, "no clean-up yet");
    bench.site.state().restart_time = Some(bench.instances.now());
    assert_eq!(bench.settled().await, "deprovisioning");
    let request = bench.site.state().created[1].clone();
    assert_eq!(request.boot_options, None, "nothing is switched");
    assert!(request.template_data.contains("WIPE_DISKS: all"));
    bench.site.end(Workflow::Success, "");
    assert_eq!(bench.settled().await, "gone");
    assert!(!bench.occupied().await);
}

#[tokio::test]
async fn a_failed_clean_up_without_a_bmc_needs_another_confirmation() {
    let bench = Bench::active(templated()).await;
    bench.site.state().has_bmc = false;
    bench.delete(false).await;
    bench.settle().await;
    bench.site.state().restart_time = Some(bench.instances.now());
    bench.settle().await;
    bench.site.end(Workflow::Failed, "disk is in use");
    assert_eq!(bench.settled().await, "deprovision_failed");
    bench.instances.retry(bench.id).await.unwrap();
    assert_eq!(bench.settled().await, "deprovisioning");
    assert!(bench.reason().await.contains("confirm-restart"), "{}", bench.reason().await);
    assert_eq!(bench.site.state().created.len(), 2);
}

#[tokio::test]
async fn a_bmc_that_is_added_meanwhile_switches_the_machine() {
    let bench = Bench::active(templated()).await;
    bench.site.state().has_bmc = false;
    bench.delete(false).await;
    bench.settle().await;
    bench.site.state().has_bmc = true;
    bench.settle().await;
    assert!(bench.site.state().created[1].boot_options.unwrap().power_off_after);
}

#[tokio::test]
async fn an_instance_shows_what_its_clean_up_waits_for() {
    let bench = Bench::active(templated()).await;
    bench.delete(false).await;
    bench.settle().await;
    let set_reason = |reason: &str| {
        bench.site.state().workflows[1].state_reason = reason.into();
    };
    set_reason("behind workflow 7 and 2 more");
    assert_eq!(bench.settle().await, Outcome::After(PENDING_POLL_INTERVAL));
    assert_eq!(bench.reason().await, "behind workflow 7 and 2 more");
    set_reason("");
    bench.settle().await;
    assert_eq!(bench.reason().await, "");
    set_reason("waits for the machine's worker");
    let overdue =
        Instance { overdue: true, state_reason: "overdue".into(), ..bench.found().await.unwrap() };
    bench.instances.put(&bench.found().await.unwrap(), overdue).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.reason().await, "overdue", "the alarm stays");
}
