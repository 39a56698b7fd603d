//! A site with two tenants that have an object of every noun that a tenant reaches, each with a mark in its texts.

use runtime::{Caller, Role};
use serde_json::{Value, json};

use super::calls::Client;
use super::site::client;
use crate::support::{RunningServer, start, until};

/// A tenant, and its objects.
pub struct Customer {
    /// In all texts of its objects.
    pub mark: String,
    pub machine: String,
    pub mac: String,
    pub address: String,
    pub template: String,
    pub instance: String,
    pub workflow: String,
    pub action: String,
    pub grant: String,
    pub image: String,
    /// An admin of the tenant.
    pub admin: Client,
}

/// A server with the tenants `acme` and `other`, and an admin of the site.
pub struct Customers {
    pub server: RunningServer,
    pub site_admin: Client,
    pub acme: Customer,
    pub other: Customer,
}

impl Customers {
    pub async fn start() -> Self {
        let server = start().await;
        let site_admin = client(&server, Role::Admin.into()).await;
        let subnet = json!({"subnet": {"name": "lab", "cidr": "203.0.113.0/24"}});
        let subnet = create(&site_admin, "SubnetService/CreateSubnet", subnet).await;
        let (first, last) = ("203.0.113.100", "203.0.113.199");
        let range = json!({"name": "lab", "subnet_id": subnet, "first": first, "last": last});
        create(&site_admin, "SubnetService/CreateRange", json!({"range": range})).await;
        let acme = Customer::create(&server, &site_admin, "acme", 1).await;
        let other = Customer::create(&server, &site_admin, "other", 2).await;
        Self { server, site_admin, acme, other }
    }
}

/// Makes the call `call`, and returns the id of what it creates.
async fn create(client: &Client, call: &str, json: Value) -> String {
    let created = client.call(call, json).await.unwrap_or_else(|e| panic!("{call}: {e}"));
    let object = created.as_object().unwrap().values().find(|it| it["id"].is_string());
    object.unwrap()["id"].as_str().unwrap().to_owned()
}

impl Customer {
    async fn create(server: &RunningServer, site: &Client, tenant: &str, n: u8) -> Self {
        create(site, "TenantService/CreateTenant", json!({"tenant": {"name": tenant}})).await;
        let caller = Caller::new(Role::Admin, &format!("person:{tenant}")).unwrap();
        let admin = client(server, caller.with_tenant(tenant.parse().unwrap()).unwrap()).await;
        let mark = format!("mark{}", &tinwright::InstanceId::new().to_string()[24..]);
        let (mac, address) = (format!("02:00:00:00:00:{n:02x}"), format!("192.0.2.{n}"));
        let labels = json!({"mark": mark});
        let machine = json!({
            "name": format!("{mark}-machine"), "labels": labels, "interfaces": [{"mac": mac}],
            "state": "STATE_PROVISIONABLE", "facility": mark,
        });
        let machine = json!({"hardware": machine});
        let machine = create(site, "HardwareService/CreateHardware", machine).await;
        let data = format!(
            "name: {mark}\ntasks:\n- name: {mark}\n  worker: \"{{{{ .device_1 }}}}\"\n  actions:\n  - {{name: {mark}, image: rootio, command: [version], environment: {{MARK: {mark}, V: \"{{{{ .v }}}}\"}}}}\n"
        );
        let template = json!({"name": format!("{mark}-template"), "labels": labels, "data": data});
        let template = json!({"template": template});
        let template = create(&admin, "TemplateService/CreateTemplate", template).await;
        let instance = json!({
            "hardware_id": machine, "tenant": tenant, "external_id": format!("{mark}-external"),
            "hostname": format!("{mark}-host"), "labels": labels, "tags": [mark], "userdata": mark,
            "ips": [{"address": address}], "template_id": template, "template_values": {"v": mark},
            "power_management": "POWER_MANAGEMENT_NONE",
        });
        let instance = json!({"instance": instance});
        let instance = create(site, "InstanceService/CreateInstance", instance).await;
        let wanted = json!({"block": format!("203.0.113.10{n}"), "key": mark, "labels": labels});
        let grant = create(&admin, "GrantService/CreateGrant", json!({"grant": wanted})).await;
        let source = json!({"url": {"url": format!("https://images.example/{mark}.raw")}});
        let image = json!({
            "name": format!("{mark}-image"), "family": mark, "labels": labels, "description": mark,
            "source": source,
        });
        let image = create(&admin, "ImageService/CreateImage", json!({"image": image})).await;
        let (workflow, action) = (String::new(), String::new());
        let new = Self {
            mark,
            machine,
            mac,
            address,
            template,
            instance,
            workflow,
            action,
            grant,
            image,
            admin,
        };
        new.run_a_workflow(server, site).await
    }

    /// Runs the installation, whose action fails with a log and a reason. Nothing changes by itself afterwards.
    async fn run_a_workflow(self, server: &RunningServer, site: &Client) -> Self {
        let get = json!({"id": self.instance});
        let instance = async || {
            let found = site.call("InstanceService/GetInstance", get.clone()).await.unwrap();
            found["instance"].clone()
        };
        let workflow = async || {
            let id = json!({"id": instance().await["workflow_id"]});
            let found = site.call("WorkflowService/GetWorkflow", id).await;
            found.map_or(Value::Null, |found| found["workflow"].clone())
        };
        let waits = async || workflow().await["state_reason"] == "waits for the machine's worker";
        until(waits, "the installation waits for the machine").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let created = workflow().await;
        let (workflow, action) = (text(&created["id"]), text(&created["actions"][0]["id"]));
        let epoch = created["boot_epoch"].as_str().map_or(0, |it| it.parse().unwrap());
        let machine = self.machine.parse().unwrap();
        let worker = client(server, Caller::worker(machine, epoch)).await;
        let boot = "11111111-1111-1111-1111-111111111111";
        let holder = json!({"holder": {"boot_id": boot, "process_id": "p"}});
        let next = worker.call("WorkerService/NextAction", holder).await.unwrap();
        let lease = find(&next, "lease_id").unwrap_or_else(|| panic!("{next}"));
        let of_lease = json!({"workflow_id": workflow, "lease_id": lease});
        worker.call("WorkerService/StartAction", of_lease.clone()).await.unwrap();
        let mut log = of_lease.clone();
        log["data"] = base64(&self.mark);
        worker.call("WorkerService/AppendLog", log).await.unwrap();
        let mut end = of_lease;
        end["state"] = "ACTION_STATE_FAILED".into();
        end["reason"] = self.mark.as_str().into();
        end["tail"] = self.mark.as_str().into();
        worker.call("WorkerService/FinishAction", end).await.unwrap();

        let get = json!({"id": workflow});
        let has_ended = async || {
            let found = site.call("WorkflowService/GetWorkflow", get.clone()).await.unwrap();
            !found["workflow"]["end_time"].is_null()
        };
        until(has_ended, "the workflow has ended").await;
        let has_failed = async || instance().await["state"] == "STATE_FAILED";
        until(has_failed, "the installation has failed").await;
        Self { workflow, action, ..self }
    }

    /// Returns the values that belong to this tenant only, each with one of the same form that nobody has.
    pub fn values(&self) -> Vec<(&str, String)> {
        let ids = [&self.machine, &self.template, &self.instance, &self.workflow, &self.action];
        let ids = ids.into_iter().chain([&self.grant, &self.image]);
        let ids = ids.map(|id| (id.as_str(), format!("{}00000000", &id[..28])));
        let mark = "mark0123456789ab";
        let mut values: Vec<_> = ids.collect();
        values.extend([
            (self.mac.as_str(), "02:00:00:00:00:77".to_owned()),
            (self.address.as_str(), "192.0.2.77".to_owned()),
            (self.mark.as_str(), mark.to_owned()),
        ]);
        values
    }
}

/// Returns the text of the first field `name` in `json`.
fn find(json: &Value, name: &str) -> Option<String> {
    match json {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value {
            Value::String(text) if key == name => Some(text.clone()),
            Value::Object(_) | Value::Array(_) | Value::String(_) => find(value, name),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }),
        Value::Array(values) => values.iter().find_map(|value| find(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns `text` as bytes in JSON.
fn base64(text: &str) -> Value {
    let method = super::calls::method("WorkerService/AppendLog");
    let mut request = super::calls::request(&method, json!({}));
    let bytes = prost_reflect::Value::Bytes(text.to_owned().into());
    request.set_field_by_name("data", bytes);
    super::calls::json(&request)["data"].clone()
}
