//! Power jobs of tenants: those for the machine that their own instance occupies. They order some, unless it is being given back, and see all.

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
    let bmc = json!({"hardware_id": machine, "redfish": {"url": "https://127.0.0.1:1", "system_id": machine}});
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
    let of_other = order(&other.admin, &other.machine).await.unwrap();
    for call in ["PowerService/GetPowerJob", "PowerService/CancelPowerJob"] {
        let missing = acme.admin.call(call, json!({"id": of_other["id"]})).await.unwrap_err();
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

#[tokio::test]
async fn a_tenant_sees_the_sites_jobs_on_its_machine_and_cancels_its_own_only() {
    let site = Customers::start().await;
    let (acme, other, admin) = (&site.acme, &site.other, &site.site_admin);
    create_bmc(admin, &acme.machine).await;
    let of_site = order(admin, &acme.machine).await.unwrap();
    assert_eq!(of_site["tenant"], "acme");
    assert_eq!(of_site["instance_id"], acme.instance.as_str());
    assert_eq!(of_site["creator_tenant"], Value::Null);
    let own = order(&acme.admin, &acme.machine).await.unwrap();
    assert_eq!(own["creator_tenant"], "acme");
    for job in [&of_site, &own] {
        let id = json!({"id": job["id"]});
        acme.admin.call("PowerService/GetPowerJob", id.clone()).await.unwrap();
        let missing = other.admin.call("PowerService/GetPowerJob", id).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{missing}");
    }
    let cancel = json!({"id": of_site["id"]});
    let refused = acme.admin.call("PowerService/CancelPowerJob", cancel).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let cancel = json!({"id": own["id"]});
    let cancelled = acme.admin.call("PowerService/CancelPowerJob", cancel).await.unwrap();
    assert_eq!(cancelled["power_job"]["state"], "STATE_CANCELLED");
    let get = json!({"id": of_site["id"]});
    let job = admin.call("PowerService/GetPowerJob", get).await.unwrap();
    assert_ne!(job["power_job"]["state"], "STATE_CANCELLED");
    // A job for an instance is not created once another one, or none, occupies the machine.
    let on = json!([{"power": "POWER_ON"}]);
    let job = json!({"hardware_id": acme.machine, "operations": on, "instance_id": other.instance});
    let refused = admin.call("PowerService/CreatePowerJob", job).await.unwrap_err();
    assert_eq!(refused.get_details_error_info().unwrap().reason, "OCCUPANT", "{refused}");
    site.server.end().await;
}

/// Returns the power jobs that `client` sees, without the one with this `id`.
async fn others(client: &Client, id: &Value) -> Vec<Value> {
    let listed = client.call("PowerService/ListPowerJobs", json!({})).await.unwrap();
    let jobs = listed["power_jobs"].as_array().cloned().unwrap_or_default();
    jobs.into_iter().filter(|job| job["id"] != *id).collect()
}

#[tokio::test]
async fn a_tenant_sees_the_clean_up_of_its_machine_but_neither_stops_it_nor_reads_of_the_bmc() {
    let site = Customers::start().await;
    let (acme, admin) = (&site.acme, &site.site_admin);
    create_bmc(admin, &acme.machine).await;
    let first = order(admin, &acme.machine).await.unwrap();
    let delete = json!({"id": acme.instance});
    acme.admin.call("InstanceService/DeleteInstance", delete).await.unwrap();
    let is_queued = async || !others(admin, &first["id"]).await.is_empty();
    until(is_queued, "the clean-up has its power job").await;
    let clean_up = others(&acme.admin, &first["id"]).await.remove(0);
    assert_eq!((&clean_up["tenant"], &clean_up["creator_tenant"]), (&json!("acme"), &Value::Null));
    let id = json!({"id": clean_up["id"]});
    let refused = acme.admin.call("PowerService/CancelPowerJob", id.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    // The instance is being deprovisioned: a job of the tenant would not begin.
    admin.call("PowerService/CancelPowerJob", json!({"id": first["id"]})).await.unwrap();
    let reason = async || {
        let found = admin.call("PowerService/GetPowerJob", id.clone()).await.unwrap();
        found["power_job"]["state_reason"].as_str().unwrap_or_default().to_owned()
    };
    until(async || reason().await.contains("127.0.0.1"), "the BMC does not answer").await;
    let mut told = others(&acme.admin, &first["id"]).await;
    let filter = json!({"filter": {"object_id": clean_up["id"]}});
    let events = async |client: &Client| {
        let found = client.call("EventService/ListEvents", filter.clone()).await.unwrap();
        found["events"].as_array().cloned().unwrap_or_default()
    };
    let has_begun =
        async || events(&acme.admin).await.iter().any(|event| event["new_state"] == "running");
    until(has_begun, "the tenant is told that the job began").await;
    told.extend(events(&acme.admin).await);
    for text in told {
        assert!(!text.to_string().contains("127.0.0.1"), "{text}");
    }
    assert!(events(&site.other.admin).await.is_empty());
    site.server.end().await;
}
