//! Machines of the rack in several moments of their life.

use runtime::Caller;
use serde_json::{Value, json};

use super::{Operator, rack};
use crate::access::calls::Client;
use crate::support::until;

/// Returns the id of the machine `name`.
async fn id(operator: &Operator, name: &str) -> String {
    let printed = operator.ok(&format!("hardware get {name} -o jsonpath={{.id}}")).await;
    printed.trim().to_owned()
}

/// Runs the only action of the workflow on the machine `name` as its worker does, up to the report of `state`.
async fn work(operator: &Operator, name: &str, state: &str) {
    let machine = id(operator, name).await.parse().unwrap();
    let worker = Client::new(operator.server.channel_of(Some(Caller::worker(machine, 0))).await);
    let holder =
        json!({"holder": {"boot_id": "11111111-1111-1111-1111-111111111111", "process_id": "p"}});
    let next = worker.call("WorkerService/NextAction", holder).await.unwrap();
    let next = &next["assignment"];
    let mut lease = json!({"workflow_id": next["workflow_id"], "lease_id": next["lease_id"]});
    worker.call("WorkerService/StartAction", lease.clone()).await.unwrap();
    lease["state"] = state.into();
    worker.call("WorkerService/FinishAction", lease).await.unwrap();
}

/// Waits until the instance on the machine `name` has `value` in `field`.
async fn until_instance(operator: &Operator, name: &str, field: &str, value: &str) {
    let line = format!("instance get {name} -o json");
    let has_it = async || {
        let (printed, _) = operator.run(&line).await;
        let instance: Value = serde_json::from_str(&printed).unwrap_or_default();
        instance[field].as_str().is_some_and(|it| it.starts_with(value))
    };
    until(has_it, &format!("{field} of {name} is {value}")).await;
}

/// Creates the rack from its file, and lets its machines live: active, failed, waiting, cleaned, kept, protected, in maintenance.
pub async fn rack(operator: &Operator) {
    let (text, count) = rack::file();
    let path = operator.file("rack.yaml", &text);
    let printed = operator.ok(&format!("apply --skip-login -f {path}")).await;
    assert_eq!(printed.matches(" created\n").count(), count, "{printed}");
    for name in ["node-15", "node-16", "node-17", "node-18"] {
        until_instance(operator, name, "state_reason", "waits for the machine's worker").await;
    }
    for (name, state) in [
        ("node-15", "ACTION_STATE_SUCCESS"),
        ("node-16", "ACTION_STATE_FAILED"),
        ("node-17", "ACTION_STATE_SUCCESS"),
    ] {
        work(operator, name, state).await;
    }
    until_instance(operator, "node-15", "state", "STATE_ACTIVE").await;
    until_instance(operator, "node-16", "state", "STATE_FAILED").await;
    until_instance(operator, "node-17", "state", "STATE_ACTIVE").await;
    operator.ok("instance delete node-17 --yes").await;
    until_instance(operator, "node-17", "state_reason", "node-17 has no BMC: restart it").await;
    until_instance(operator, "node-02", "install_time", "2").await;
    operator.ok("hardware set-state node-10 maintenance --reason fan").await;
    operator.ok("hardware set-state node-13 failed").await;
    operator.ok("hardware protect node-11").await;
    report_inventory(operator).await;
}

/// Reports what the worker of a machine finds in it.
async fn report_inventory(operator: &Operator) {
    let inventory = json!({
        "uuid": "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10", "serial": "S7", "memory_bytes": "8589934592",
        "interfaces": [{"mac": "52:54:00:00:01:0e", "name": "eno1"}],
    });
    let caller = Caller::worker(id(operator, "node-04").await.parse().unwrap(), 0);
    let worker = Client::new(operator.server.channel_of(Some(caller)).await);
    worker.call("WorkerService/ReportInventory", json!({"inventory": inventory})).await.unwrap();
}
