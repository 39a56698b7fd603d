//! Power jobs of tenants: for the machine that their own instance occupies, unless it is being given back.

use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::calls::Client;
use super::customers::Customers;
use super::site::on_machine;
use crate::support::until;

/// Orders that `machine` is switched on, and returns the job.
async fn order(client: &Client, machine: &str) -> Result<Value, Status> {
    let job = json!({"hardware_id": machine, "operations": [{"power": "POWER_ON"}]});
    Ok(client.call("PowerService/CreatePowerJob", job).await?["power_job"].clone())
}

/// Gives the machine a BMC that does not answer.
async fn create_bmc(site: &Client, machine: &str) {
    let bmc = json!({"hardware_id": machine, "redfish": {"url": "https://127.0.0.1:1"}});
    let create = json!({"bmc": bmc, "skip_login": true});
    site.call("PowerService/CreateBmc", create).await.unwrap();
}

/// Asserts that the order of a tenant for its own machine is refused for `reason`.
async fn assert_refused(client: &Client, machine: &str, reason: &str) {
    let refused = order(client, machine).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(refused.get_details_error_info().unwrap().reason, reason, "{refused}");
}

#[tokio::test]
async fn a_tenant_switches_the_machine_of_its_instance_only() {
    let site = Customers::start().await;
    let (acme, other, admin) = (&site.acme, &site.other, &site.site_admin);
    for machine in [&acme.machine, &other.machine] {
        create_bmc(admin, machine).await;
    }
    let made = order(&acme.admin, &acme.machine).await.unwrap();
    assert_eq!((&made["tenant"], &made["instance_id"]), (&json!("acme"), &json!(acme.instance)));
    for machine in [other.machine.clone(), tinwright::HardwareId::new().to_string()] {
        let missing = order(&acme.admin, &machine).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
        assert_eq!(missing.message(), format!("hardware {machine} not found"));
    }
    // The site's job on the machine is not the tenant's, and neither is that of another one.
    let of_site = order(admin, &acme.machine).await.unwrap();
    let of_other = order(&other.admin, &other.machine).await.unwrap();
    for job in [&of_site, &of_other] {
        let get = json!({"id": job["id"]});
        let missing = acme.admin.call("PowerService/GetPowerJob", get).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{missing}");
    }
    let listed = acme.admin.call("PowerService/ListPowerJobs", json!({})).await.unwrap();
    let listed = listed["power_jobs"].as_array().unwrap();
    assert_eq!(listed.iter().map(|it| &it["id"]).collect::<Vec<_>>(), [&made["id"]]);
    let boot = json!([{"boot": {"device": "DEVICE_PXE"}}]);
    let job = json!({"hardware_id": acme.machine, "operations": boot});
    let refused = acme.admin.call("PowerService/CreatePowerJob", job).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    site.server.end().await;
}

#[tokio::test]
async fn a_tenant_does_not_switch_a_machine_that_is_worked_on_or_given_back() {
    let site = Customers::start().await;
    let (acme, admin) = (&site.acme, &site.site_admin);
    create_bmc(admin, &acme.machine).await;
    let state = |state: &str| json!({"id": acme.machine, "state": state, "reason": "x"});
    admin.call("HardwareService/SetHardwareState", state("STATE_MAINTENANCE")).await.unwrap();
    assert_refused(&acme.admin, &acme.machine, "STATE").await;
    let mut work = on_machine(&acme.machine);
    work["occupied_by"] = acme.instance.as_str().into();
    let work = admin.call("WorkflowService/CreateWorkflow", work).await.unwrap();
    let id = json!({"id": work["workflow"]["id"]});
    admin.call("HardwareService/SetHardwareState", state("STATE_PROVISIONABLE")).await.unwrap();
    assert_refused(&acme.admin, &acme.machine, "WORKFLOW").await;
    admin.call("WorkflowService/CancelWorkflow", id).await.unwrap();
    until(
        async || order(&acme.admin, &acme.machine).await.is_ok(),
        "the tenant may switch the machine again",
    )
    .await;
    let delete = json!({"id": acme.instance});
    acme.admin.call("InstanceService/DeleteInstance", delete).await.unwrap();
    assert_refused(&acme.admin, &acme.machine, "STATE").await;
    site.server.end().await;
}

#[tokio::test]
async fn a_job_that_a_tenant_ordered_before_its_instance_was_deleted_does_not_begin_after_that() {
    let site = Customers::start().await;
    let (acme, admin) = (&site.acme, &site.site_admin);
    create_bmc(admin, &acme.machine).await;
    // The BMC does not answer, so that this job stays first in the queue.
    let first = order(admin, &acme.machine).await.unwrap();
    let waiting = order(&acme.admin, &acme.machine).await.unwrap();
    let delete = json!({"id": acme.instance});
    acme.admin.call("InstanceService/DeleteInstance", delete).await.unwrap();
    admin.call("PowerService/CancelPowerJob", json!({"id": first["id"]})).await.unwrap();
    let get = json!({"id": waiting["id"]});
    let has_failed = async || {
        let found = acme.admin.call("PowerService/GetPowerJob", get.clone()).await.unwrap();
        found["power_job"]["state"] == "STATE_FAILED"
    };
    until(has_failed, "the job of the tenant has failed").await;
    let job = acme.admin.call("PowerService/GetPowerJob", get).await.unwrap()["power_job"].clone();
    assert!(job["start_time"].is_null(), "{job}");
    assert!(job["state_reason"].as_str().unwrap().contains("is being deprovisioned"), "{job}");
    site.server.end().await;
}
