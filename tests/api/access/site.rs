//! A server with an object of every noun, none of which changes by itself.

use std::collections::BTreeMap;

use runtime::{Caller, Role};
use serde_json::{Value, json};

use super::calls::Client;
use super::plain::PLAIN_NOUNS;
use crate::support::{RunningServer, start};

/// A template of one action.
pub const TEMPLATE: &str = "name: t\ntasks:\n- name: os\n  worker: \"{{ .device_1 }}\"\n  actions:\n  - {name: configure, image: cexec, environment: {BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4, CMD_LINE: ls}}\n";

/// A server, and the ids of its objects by name.
pub struct Site {
    pub server: RunningServer,
    pub ids: BTreeMap<&'static str, String>,
}

impl Site {
    pub async fn start() -> Self {
        let server = start().await;
        let admin = client(&server, Role::Admin.into()).await;
        let service = Caller::new(Role::Service, "service:instance").unwrap();
        let service = client(&server, service).await;
        let mut site = Self { server, ids: BTreeMap::new() };
        let machines = ["free", "spare", "occupied", "maintained", "working"];
        for (n, name) in machines.into_iter().enumerate() {
            let interfaces = json!([{"mac": format!("02:00:00:00:00:{n:02x}")}]);
            let hardware =
                json!({"name": name, "state": "STATE_PROVISIONABLE", "interfaces": interfaces});
            let create = json!({"hardware": hardware});
            site.create(&admin, name, "HardwareService/CreateHardware", create).await;
        }
        let maintenance = json!({"id": site.id("maintained"), "state": "STATE_MAINTENANCE"});
        admin.call("HardwareService/SetHardwareState", maintenance).await.unwrap();
        let script = json!({"contents": "#!ipxe\nexit"});
        let instance = json!({"hardware_id": site.id("occupied"), "custom_ipxe": script});
        let instance = json!({"instance": instance});
        site.create(&admin, "instance", "InstanceService/CreateInstance", instance).await;
        let template = json!({"template": {"name": "t", "data": TEMPLATE}});
        site.create(&admin, "template", "TemplateService/CreateTemplate", template).await;
        let workflows =
            [("pending", "maintained"), ("ended", "maintained"), ("current", "working")];
        for (name, machine) in workflows {
            let workflow = on_machine(&site.id(machine));
            site.create(&admin, name, "WorkflowService/CreateWorkflow", workflow).await;
        }
        let held =
            json!({"hardware_id": site.id("maintained"), "template_data": TEMPLATE, "held": true});
        site.create(&service, "held", "WorkflowService/CreateWorkflow", held).await;
        let cancel = json!({"id": site.ids["ended"]});
        admin.call("WorkflowService/CancelWorkflow", cancel).await.unwrap();
        // The machine has no BMC before the script was recorded as booted: nothing switches it on.
        site.until_idle(&admin).await;
        let bmc = json!({"bmc": {
            "hardware_id": site.id("occupied"), "redfish": {"url": "https://127.0.0.1:1"}, "username": "u", "password": "p",
        }, "skip_login": true});
        site.create(&admin, "bmc", "PowerService/CreateBmc", bmc).await;
        for noun in &*PLAIN_NOUNS {
            site.create(&admin, noun.field, noun.create, noun.creation("lab")).await;
        }
        let subnet = json!({"subnet": {"name": "lab", "cidr": "203.0.113.0/24"}});
        site.create(&admin, "subnet", "SubnetService/CreateSubnet", subnet).await;
        let unused = json!({"subnet": {"name": "unused", "cidr": "2001:db8::/64"}});
        site.create(&admin, "unused subnet", "SubnetService/CreateSubnet", unused).await;
        let (first, last) = ("203.0.113.100", "203.0.113.199");
        let range =
            json!({"name": "r", "subnet_id": site.id("subnet"), "first": first, "last": last});
        site.create(&admin, "range", "SubnetService/CreateRange", json!({"range": range})).await;
        let grant = json!({"grant": {"range_id": site.id("range")}});
        site.create(&admin, "grant", "GrantService/CreateGrant", grant).await;
        let second = json!({"location": {"name": "second"}});
        site.create(&admin, "second location", "LocationService/CreateLocation", second).await;
        let binding = json!({"location_binding": {"location_id": site.id("location")}});
        let call = "LocationBindingService/CreateLocationBinding";
        site.create(&admin, "location binding", call, binding).await;
        let tenant = json!({"tenant": {"name": "acme"}});
        site.create(&admin, "tenant", "TenantService/CreateTenant", tenant).await;
        let stack = json!({"stack": {"name": "lab", "containers": containers("/sbin/init")}});
        site.create(&admin, "stack", "StackService/CreateStack", stack).await;
        let source = json!({"url": {"url": "https://images.example/disk.raw"}});
        let imported = json!({"image": {"name": "imported", "source": source}});
        site.create(&admin, "imported image", "ImageService/CreateImage", imported).await;
        let get = json!({"id": site.id("imported image")});
        let imported = admin.call("ImageService/GetImage", get).await.unwrap();
        site.ids.insert("build", imported["image"]["build_id"].as_str().unwrap().to_owned());
        let credential = json!({"credential": {"role": "ROLE_VIEWER"}});
        site.create(&admin, "credential", "IdentityService/CreateCredential", credential).await;
        site
    }

    /// Returns the id of the object `name`.
    pub fn id(&self, name: &str) -> String {
        self.ids[name].clone()
    }

    /// Makes the call `call`, and stores the id of what it creates as `name`.
    async fn create(&mut self, client: &Client, name: &'static str, call: &str, json: Value) {
        let created = client.call(call, json).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let object = created.as_object().unwrap().values().find(|it| it["id"].is_string());
        self.ids.insert(name, object.unwrap()["id"].as_str().unwrap().to_owned());
    }

    /// Waits until the services have done what they do with the instance.
    async fn until_idle(&self, admin: &Client) {
        let get = json!({"id": self.id("instance")});
        let is_installed = async || {
            let found = admin.call("InstanceService/GetInstance", get.clone()).await.unwrap();
            !found["instance"]["install_time"].is_null()
        };
        crate::support::until(is_installed, "the script of the instance was booted").await;
    }
}

/// Returns the containers of a stack: one, with this command.
pub fn containers(command: &str) -> Value {
    json!([{"name": "os", "command": command, "mount": {"nfs": {"host": "nas", "path": "/x"}}}])
}

/// Returns a request for a workflow on the machine `id`.
pub fn on_machine(id: &str) -> Value {
    json!({"hardware_id": id, "template_data": TEMPLATE})
}

/// Returns a client with the certificate of `caller`.
pub async fn client(server: &RunningServer, caller: Caller) -> Client {
    Client::new(server.channel_of(Some(caller)).await)
}
