//! A machine without a BMC is given back: an operator restarts it and confirms that, and the clean-up goes on.

use runtime::{Caller, Role};
use serde_json::{Value, json};
use tonic::Code;

use crate::access::calls::Client;
use crate::support::{RunningServer, start, until};

const TEMPLATE: &str = "name: t\ntasks:\n- name: os\n  worker: \"{{ .device_1 }}\"\n  actions:\n  - {name: boot, image: rootio, command: [version]}\n";

/// A worker of the machine, and the workflow that it has begun.
struct Worker {
    client: Client,
    lease: Value,
}

impl Worker {
    /// Leases the next action in the boot epoch `epoch`.
    async fn new(server: &RunningServer, machine: &str, epoch: u64) -> Self {
        let caller = Caller::worker(machine.parse().unwrap(), epoch);
        let client = Client::new(server.channel_of(Some(caller)).await);
        let boot = format!("11111111-1111-1111-1111-{epoch:012}");
        let holder = json!({"holder": {"boot_id": boot, "process_id": "p"}});
        let next = client.call("WorkerService/NextAction", holder).await.unwrap();
        let next = &next["assignment"];
        let lease = json!({"workflow_id": next["workflow_id"], "lease_id": next["lease_id"]});
        client.call("WorkerService/StartAction", lease.clone()).await.unwrap();
        Self { client, lease }
    }

    /// Reports success.
    async fn finish(self) {
        let mut end = self.lease;
        end["state"] = "ACTION_STATE_SUCCESS".into();
        self.client.call("WorkerService/FinishAction", end).await.unwrap();
    }
}

#[tokio::test]
async fn a_machine_without_a_bmc_is_wiped_once_its_restart_is_confirmed() {
    let server = start().await;
    let admin = Client::new(server.channel(Some(Role::Admin)).await);
    let hardware = json!({
        "name": "node-1", "state": "STATE_PROVISIONABLE", "interfaces": [{"mac": "02:00:00:00:00:01"}],
    });
    let created = admin.call("HardwareService/CreateHardware", json!({"hardware": hardware}));
    let machine = created.await.unwrap()["hardware"]["id"].as_str().unwrap().to_owned();
    let template = json!({"template": {"data": TEMPLATE}});
    let template = admin.call("TemplateService/CreateTemplate", template).await.unwrap();
    let mut instance = json!({"hardware_id": machine, "template_id": template["template"]["id"]});
    let create = async |instance: &Value| {
        admin.call("InstanceService/CreateInstance", json!({"instance": instance})).await
    };
    let refused = create(&instance).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("node-1 has no BMC: add one"), "{refused}");
    instance["power_management"] = "POWER_MANAGEMENT_NONE".into();
    let created = create(&instance).await.unwrap();
    let get = json!({"id": created["instance"]["id"]});
    let read = async || {
        let found = admin.call("InstanceService/GetInstance", get.clone()).await;
        found.map_or(Value::Null, |found| found["instance"].clone())
    };
    let reason = "waits for the machine's worker";
    until(async || read().await["state_reason"] == reason, "the installation waits").await;
    Worker::new(&server, &machine, 0).await.finish().await;
    until(async || read().await["state"] == "STATE_ACTIVE", "an active instance").await;

    let used = json!({"id": template["template"]["id"]});
    let used = admin.call("TemplateService/DeleteTemplate", used).await.unwrap_err();
    assert!(used.message().starts_with("template t is used by instance "), "{used}");

    admin.call("InstanceService/DeleteInstance", get.clone()).await.unwrap();
    let reason = "node-1 has no BMC: restart it from the network, then: tinwright workflow confirm-restart node-1";
    until(async || read().await["state_reason"] == reason, "the clean-up waits").await;
    let confirm = json!({"hardware_id": machine});
    let confirmed = admin.call("WorkflowService/ConfirmRestart", confirm).await.unwrap();
    assert_eq!(confirmed["boot_epoch"], "1");
    let reason = "waits for the machine's worker";
    until(async || read().await["state_reason"] == reason, "the clean-up is created").await;
    // An identity of the tenant's time is good for nothing now.
    let old = Caller::worker(machine.parse().unwrap(), 0);
    let old = Client::new(server.channel_of(Some(old)).await);
    let holder = json!({"holder": {"boot_id": "b", "process_id": "p"}});
    let refused = old.call("WorkerService/NextAction", holder).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    Worker::new(&server, &machine, 1).await.finish().await;
    until(async || read().await.is_null(), "the machine is free").await;
    let free = json!({"id": machine});
    let free = admin.call("HardwareService/GetHardware", free).await.unwrap();
    assert_eq!(free["hardware"]["state"], "STATE_PROVISIONABLE");
    server.end().await;
}
