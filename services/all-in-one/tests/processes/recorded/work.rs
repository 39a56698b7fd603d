//! Templates, BMCs, workflows and instances, and what instances use.

use serde_json::{Value, json};

use super::places::inventory;
use super::recording::base64;
use super::site::Site;
use super::worker::Worker;

/// A template with two actions, the first one with a value.
const TEMPLATE: &str = r#"name: install
global_timeout: 600
tasks:
- name: os
  worker: "{{.device_1}}"
  actions:
  - {name: write, image: rootio, command: [version], timeout: 90, environment: {TEXT: "{{.text}}"}}
  - {name: configure, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4, CMD_LINE: ls}}
"#;
/// A public key that nobody has the private one of.
const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g";
/// Instances that are installed, each with its machine.
const INSTALLED: [(&str, &str); 4] = [
    ("active", "installed"),
    ("failed", "failing"),
    ("provisioning", "installing"),
    ("deprovisioning", "leaving"),
];
const CREATE_INSTANCE: &str = "InstanceService/CreateInstance";

impl Site<'_> {
    pub(crate) async fn templates(&mut self) {
        let template = json!({"name": "install", "labels": {"os": "debian"}, "data": TEMPLATE});
        let create = json!({"template": template, "request_id": "template-1"});
        self.create("install", "TemplateService/CreateTemplate", create).await;
        let own = json!({"template": {"name": "own", "data": TEMPLATE, "tenant": "acme"}});
        self.create("own", "TemplateService/CreateTemplate", own).await;
        let changed = json!({"id": self.id("install"), "labels": {"os": "any"}});
        self.update("TemplateService", "Template", changed, "labels").await;
        let plan = self.workflow_on("free");
        self.call("TemplateService/RenderTemplate", plan.clone()).await;
        self.call("WorkflowService/PlanWorkflow", plan).await;
        let gone = json!({"template": {"name": "gone", "data": TEMPLATE}});
        self.create_and_delete("TemplateService", "Template", gone).await;
    }

    /// Returns the fields of a request for a workflow on a machine.
    fn workflow_on(&self, machine: &str) -> Value {
        let values = json!({"text": "t"});
        json!({
            "template_id": self.id("install"), "hardware_id": self.id(machine), "values": values,
        })
    }

    pub(crate) async fn bmcs(&mut self) {
        let redfish = json!({
            "hardware_id": self.id("off"), "username": "u", "password": "p", "labels": {"row": "1"},
            "redfish": {"url": "https://127.0.0.1:1", "system_id": "1"},
        });
        let create = json!({"bmc": redfish, "skip_login": true, "request_id": "bmc-1"});
        self.create("redfish", "PowerService/CreateBmc", create).await;
        let ipmi = json!({"host": "127.0.0.1", "port": 1, "cipher_suite": 17});
        let mut ipmi = json!({"ipmi": ipmi, "username": "u", "password": "p"});
        ipmi["hardware_id"] = self.id("maintained").into();
        let create = json!({"bmc": ipmi, "skip_login": true});
        self.create("ipmi", "PowerService/CreateBmc", create.clone()).await;
        let changed = json!({"id": self.id("ipmi"), "username": "root"});
        self.update("PowerService", "Bmc", changed, "username").await;
        let mut gone = create;
        gone["bmc"]["hardware_id"] = self.id("broken").into();
        gone["bmc"]["ipmi"]["port"] = 2.into();
        self.create_and_delete("PowerService", "Bmc", gone).await;
    }

    /// Creates workflows that nobody works on.
    pub(crate) async fn workflows(&mut self) {
        let create = "WorkflowService/CreateWorkflow";
        let waiting = self.workflow_on("maintained");
        let mut held = waiting.clone();
        held["held"] = true.into();
        self.create("released workflow", create, held.clone()).await;
        let released = json!({"id": self.id("released workflow")});
        self.call("WorkflowService/ReleaseWorkflow", released).await;
        self.create("held workflow", create, held).await;
        for name in ["cancelled workflow", "deleted workflow"] {
            self.create(name, create, waiting.clone()).await;
            self.call("WorkflowService/CancelWorkflow", json!({"id": self.id(name)})).await;
        }
        let deleted = json!({"id": self.id("deleted workflow")});
        self.call("WorkflowService/DeleteWorkflow", deleted).await;
        let confirmed = json!({"hardware_id": self.id("maintained")});
        self.call("WorkflowService/ConfirmRestart", confirmed.clone()).await;
        self.call("WorkflowService/GetBootEpoch", confirmed).await;
    }

    /// Creates workflows that workers carry out.
    pub(crate) async fn works(&mut self) {
        let create = "WorkflowService/CreateWorkflow";
        let mut running = self.workflow_on("working");
        running["labels"] = json!({"a": "b"});
        running["request_id"] = "workflow-1".into();
        self.create("running workflow", create, running).await;
        let worker = Worker::new(self, "working", "running workflow").await;
        worker.redeem(self).await;
        worker.begin(self).await;
        let step = json!({"hardware_id": self.id("working"), "step": "fetched the kernel"});
        self.call("WorkflowService/NoteBoot", step).await;
        self.create("done workflow", create, self.workflow_on("done")).await;
        let worker = Worker::new(self, "done", "done workflow").await;
        worker.finish_all(self).await;
        let own = json!({"inventory": inventory("02:00:00:00:00:0c")});
        self.call_as(&worker.caller, "WorkerService/ReportInventory", own).await;
    }

    /// Creates instances without an installation.
    pub(crate) async fn instances(&mut self) {
        let full = json!({"instance": self.full_instance(), "request_id": "instance-1"});
        self.create("reserving", CREATE_INSTANCE, full).await;
        self.until_state("reserving", "STATE_ACTIVE").await;
        let script = json!({"contents": "#!ipxe\nexit", "always_pxe": true});
        let script = json!({"hardware_id": self.id("scripted"), "custom_ipxe": script});
        self.create("script", CREATE_INSTANCE, json!({"instance": script})).await;
        let mut report = json!({"generation": "1", "started": true});
        report["hardware_id"] = self.id("scripted").into();
        report["instance_id"] = self.id("script").into();
        self.call("InstanceService/ReportScript", report).await;
    }

    fn full_instance(&self) -> Value {
        let ip = json!({
            "address": "203.0.113.20", "prefix_length": 24, "gateway": "203.0.113.1",
            "family": "FAMILY_V4", "flags": ["FLAG_PUBLIC"],
        });
        json!({
            "hardware_id": self.id("occupied"), "reserve_only": true, "hostname": "db-1",
            "tenant": "acme", "external_id": "e-1", "labels": {"app": "db"}, "tags": ["a", "b"],
            "ssh_keys": [SSH_KEY], "ips": [ip], "userdata": "#cloud-config\n",
            "vendor_data": "#cloud-config\n", "crypted_root_password": "$6$abc$def",
            "extra": base64(b"{\"a\":1}"), "protect": true, "annotations": {"note": "n"},
        })
    }

    /// Waits until the instance has the state.
    async fn until_state(&self, instance: &str, state: &str) {
        let get = json!({"id": self.id(instance), "view": "VIEW_FULL", "show_deleted": true});
        let is_reached = |it: &Value| it["instance"]["state"] == state;
        self.until("InstanceService/GetInstance", get, is_reached).await;
    }

    /// Creates instances whose installation succeeds, fails or goes on, and one that is cleaned up.
    pub(crate) async fn installations(&mut self) {
        for (name, machine) in INSTALLED {
            let instance = json!({
                "hardware_id": self.id(machine), "template_id": self.id("install"),
                "template_values": {"text": "secret text"}, "hostname": name,
                "power_management": "POWER_MANAGEMENT_NONE",
                "deprovision_template_id": self.id("install"),
            });
            self.create(name, CREATE_INSTANCE, json!({"instance": instance})).await;
        }
        self.installer("active", "installed").await.finish_all(self).await;
        self.until_state("active", "STATE_ACTIVE").await;
        // A deleted instance whose machine was never booted needs no clean-up.
        for (instance, machine) in [("failed", "failing"), ("deprovisioning", "leaving")] {
            let failing = self.installer(instance, machine).await;
            let lease = failing.begin(self).await;
            failing.finish(self, lease, "ACTION_STATE_FAILED").await;
            self.until_state(instance, "STATE_FAILED").await;
        }
        self.installer("provisioning", "installing").await.begin(self).await;
        let deleted = json!({"id": self.id("deprovisioning")});
        self.call("InstanceService/DeleteInstance", deleted).await;
        let mut report = json!({"hardware_id": self.id("installed"), "host_keys": [SSH_KEY]});
        report["instance_id"] = self.id("active").into();
        self.call("InstanceService/ReportPhoneHome", report).await;
    }

    /// Returns the worker that installs the instance on the machine.
    async fn installer(&mut self, instance: &str, machine: &str) -> Worker {
        let get = json!({"id": self.id(instance)});
        let waits = |it: &Value| it["instance"]["state_reason"] == "waits for the machine's worker";
        let waiting = self.until("InstanceService/GetInstance", get, waits).await;
        let workflow = waiting["instance"]["workflow_id"].as_str().unwrap();
        let name = format!("workflow of {instance}");
        self.name(&name, workflow);
        Worker::new(self, machine, &name).await
    }

    pub(crate) async fn deleted_instance(&mut self) {
        let instance = json!({
            "hardware_id": self.id("free"), "reserve_only": true, "tenant": "acme",
            "external_id": "e-9",
        });
        self.create("deleted", CREATE_INSTANCE, json!({"instance": instance})).await;
        self.until_state("deleted", "STATE_ACTIVE").await;
        let changed = json!({"id": self.id("deleted"), "tags": ["t"]});
        self.update("InstanceService", "Instance", changed, "tags").await;
        let deleted = json!({"id": self.id("deleted"), "force": true});
        self.call("InstanceService/DeleteInstance", deleted).await;
        self.until_state("deleted", "STATE_DELETED").await;
    }

    pub(crate) async fn grants(&mut self) {
        let create = "GrantService/CreateGrant";
        let grant = json!({"grant": {"range_id": self.id("static")}});
        let mut keyed = grant.clone();
        keyed["grant"]["tenant"] = "acme".into();
        keyed["grant"]["key"] = "k-1".into();
        keyed["grant"]["labels"] = json!({"a": "b"});
        self.create("attached", create, keyed).await;
        for name in ["pending", "confirmed", "released"] {
            self.create(name, create, grant.clone()).await;
        }
        let id = |name: &str| json!({"id": self.id(name)});
        self.call("GrantService/ConfirmGrant", id("confirmed")).await;
        let attachment = json!({"instance_id": self.id("reserving"), "primary": true});
        let attach = json!({"id": self.id("attached"), "attachment": attachment});
        self.call("GrantService/AttachGrant", attach).await;
        let instance = self.id("reserving");
        let attach = json!({"id": self.id("released"), "attachment": {"instance_id": instance}});
        self.call("GrantService/AttachGrant", attach).await;
        self.call("GrantService/DetachGrant", id("released")).await;
        self.call("GrantService/ReleaseGrant", id("released")).await;
        let has_address = |it: &Value| it["instance"]["addresses"].is_array();
        self.until("InstanceService/GetInstance", json!({"id": self.id("reserving")}), has_address)
            .await;
    }

    pub(crate) async fn stacks(&mut self) {
        let containers = |command: &str| {
            let mount = json!({"nfs": {"host": "nas", "path": "/x"}});
            json!([{"name": "os", "command": command, "mount": mount}])
        };
        let stack =
            json!({"name": "web", "labels": {"a": "b"}, "containers": containers("/sbin/init")});
        let create = json!({"stack": stack, "request_id": "stack-1"});
        self.create("web", "StackService/CreateStack", create).await;
        let changed = json!({"id": self.id("web"), "containers": containers("/sbin/other")});
        self.update("StackService", "Stack", changed, "containers").await;
        self.call("StackService/RollBackStack", json!({"id": self.id("web"), "version": "1"}))
            .await;
        let gone = json!({"stack": {"name": "gone", "containers": containers("/sbin/init")}});
        self.create_and_delete("StackService", "Stack", gone).await;
        let node = json!({
            "hardware_id": self.id("noded"), "image_stack": {"stack_id": self.id("web")},
            "power_management": "POWER_MANAGEMENT_NONE",
        });
        self.create("node instance", CREATE_INSTANCE, json!({"instance": node})).await;
    }

    pub(crate) async fn power_jobs(&mut self) {
        let create = "PowerService/CreatePowerJob";
        let boot =
            json!({"boot": {"device": "DEVICE_PXE", "mode": "MODE_UEFI", "persistent": true}});
        let media = json!({"image_url": "https://images.test/?token=1", "drive": "DRIVE_CD"});
        let off = json!({"power": "POWER_SOFT_OFF", "soft_off_limit": "30s"});
        let job = json!({
            "hardware_id": self.id("off"), "labels": {"a": "b"}, "request_id": "job-1",
            "operations": [boot, {"insert_media": media}, {"power": "POWER_CYCLE"}, off],
        });
        self.create("job", create, job).await;
        let next = json!({"hardware_id": self.id("off"), "operations": [{"power": "POWER_ON"}]});
        self.create("cancelled job", create, next.clone()).await;
        self.call("PowerService/CancelPowerJob", json!({"id": self.id("cancelled job")})).await;
        let mut held = next;
        held["held"] = true.into();
        self.create("held job", create, held.clone()).await;
        self.create("released job", create, held).await;
        self.call("PowerService/ReleasePowerJob", json!({"id": self.id("released job")})).await;
    }
}
