//! A server with locations, machines, addresses, and the credentials of two customers.
//!
//! | location | machines | what is special |
//! |---|---|---|
//! | `kir1` | four, in the zone `kir1-a` | twelve addresses, which are free again two seconds after their release |
//! | `dry` | one | its only address is granted: a machine is built for ever |
//! | `unbound` | one | no addresses: a machine fails |
//! | `dark` | none | no boot URL: nothing can be provisioned |

use runtime::{Caller, MachinePurpose, Role};
use serde_json::{Value, json};

use super::leaks::{self, VALUES};
use super::platform::{self, Call, HUB, Platform};
use crate::access::calls::Client;
use crate::access::site::client;
use crate::support::{RunningServer, start, start_in, start_with, until};

/// The addresses of `kir1`.
pub const ADDRESSES: usize = 12;

pub struct IalSite {
    pub server: RunningServer,
    pub admin: Client,
    /// The platform, for the customer with the machines.
    pub acme: Platform,
    /// The platform, for another customer.
    pub other: Platform,
    /// The platform, with credentials of the first customer for limits.
    pub busy: Platform,
    machines: usize,
}

fn auth(fields: Value) -> Value {
    let mut auth = fields;
    auth["cycle"] = json!({"hub_name": "Acme Production", "hub_id": HUB});
    auth
}

impl IalSite {
    pub async fn start() -> Self {
        leaks::begin();
        Self::on(start().await).await
    }

    /// The same for programs that send more requests than a platform.
    pub async fn start_without_rate_limits() -> Self {
        leaks::begin();
        Self::on(start_with(tempfile::tempdir().unwrap(), &["--no-rate-limits"]).await).await
    }

    async fn on(server: RunningServer) -> Self {
        let admin = client(&server, Role::Admin.into()).await;
        let [id, key, secret, config, other_id, other_secret, _, bearer, busy_secret] = VALUES;
        let fields = json!({"client_id": id, "api_key": key, "secret": secret, "config": config});
        let other_fields = json!({"client_id": other_id, "secret": other_secret});
        let busy_fields = json!({"namespace": "busy", "secret": busy_secret});
        for tenant in ["acme", "other"] {
            create(&admin, "TenantService/CreateTenant", json!({"tenant": {"name": tenant}})).await;
        }
        let bearer_fields = json!({"api_key": bearer});
        let all = [
            ("acme", &fields),
            ("other", &other_fields),
            ("acme", &busy_fields),
            ("acme", &bearer_fields),
        ];
        for (tenant, fields) in all {
            let credential = json!({"tenant": tenant, "role": "ROLE_OPERATOR"});
            let request = json!({"credential": credential, "fields": fields});
            admin.call("IdentityService/CreateCredential", request).await.unwrap();
        }
        let acme = Platform::new(&server, auth(fields));
        let other = acme.with_auth(auth(other_fields));
        let busy = acme.with_auth(auth(busy_fields));
        let mut site = Self { server, admin, acme, other, busy, machines: 0 };
        site.prepare().await;
        site
    }

    async fn prepare(&mut self) {
        let constraints = json!({"architecture": "x86_64"});
        let notes = json!({"ial/name": "Metal M2", "ial/class": "m2", "ial/hourly-mils": "410", "ial/monthly-mils": "239000",
            "ial/raid": "raid1", "ial/hypervisor": "true", "ial/features/tpm": "2.0", "ial/memory-type": "ddr5"});
        let model = json!({"name": "m2", "constraints": constraints, "annotations": notes});
        create(&self.admin, "ModelService/CreateModel", json!({"model": model})).await;
        let arm = json!({"name": "m9", "constraints": {"architecture": "aarch64"}});
        create(&self.admin, "ModelService/CreateModel", json!({"model": arm})).await;
        let kir1 = self.location("kir1", "http://192.0.2.1/boot.ipxe").await;
        let range = self.bind(&kir1, "198.51.100.32/27", 40, 39 + ADDRESSES).await;
        assert!(!range.is_empty());
        for _ in 0..4 {
            self.machine(&kir1, "kir1-a").await;
        }
        let dry = self.location("dry", "http://192.0.2.1/boot.ipxe").await;
        let range = self.bind(&dry, "198.51.100.64/27", 70, 70).await;
        let taken = json!({"grant": {"range_id": range}});
        create(&self.admin, "GrantService/CreateGrant", taken).await;
        self.machine(&dry, "").await;
        let unbound = self.location("unbound", "http://192.0.2.1/boot.ipxe").await;
        self.machine(&unbound, "").await;
        self.location("dark", "").await;
    }

    async fn location(&self, name: &str, boot_url: &str) -> String {
        let zones = ["a", "b"].map(|zone| json!({"name": format!("{name}-{zone}")}));
        let geography = json!({"country": "SE", "state": "Norrbotten", "city": "Kiruna", "region": "eu-north",
            "latitude": 67.8557, "longitude": 20.2253});
        let location = json!({"name": name, "boot_url": boot_url, "zones": zones, "geography": geography,
            "annotations": {"ial/name": "Kiruna 1", "ial/code": "KRN", "ial/notes/power": "hydro"}});
        create(&self.admin, "LocationService/CreateLocation", json!({"location": location})).await
    }

    /// Binds addresses of a new subnet, by their last numbers. Returns the id of the range.
    async fn bind(&self, location: &str, cidr: &str, first: usize, last: usize) -> String {
        let name = format!("s{first}");
        let gateway = cidr.split('/').next().unwrap().parse::<std::net::Ipv4Addr>().unwrap();
        let gateway = std::net::Ipv4Addr::from(u32::from(gateway) + 1).to_string();
        let subnet = json!({"name": name, "cidr": cidr, "gateway": gateway, "hold": "2s"});
        let subnet =
            create(&self.admin, "SubnetService/CreateSubnet", json!({"subnet": subnet})).await;
        let [first, last] = [first, last].map(|n| format!("198.51.100.{n}"));
        let range = json!({"name": name, "subnet_id": subnet, "first": first, "last": last});
        let range = create(&self.admin, "SubnetService/CreateRange", json!({"range": range})).await;
        let binding = json!({"location_id": location, "subnet_ids": [subnet], "configuration": "{\"vlan\": 214}"});
        let call = "LocationBindingService/CreateLocationBinding";
        create(&self.admin, call, json!({"location_binding": binding})).await;
        range
    }

    /// Creates a machine, and reports its inventory.
    async fn machine(&mut self, location: &str, zone: &str) {
        self.machines += 1;
        let mac = format!("02:00:00:00:00:{:02x}", self.machines);
        let hardware = json!({"interfaces": [{"mac": mac}], "architecture": "x86_64", "location_id": location, "zone": zone,
            "state": "STATE_PROVISIONABLE"});
        let id =
            create(&self.admin, "HardwareService/CreateHardware", json!({"hardware": hardware}))
                .await;
        let processors = json!({"model": "EPYC 4545P", "sockets": 1, "cores": 16, "threads": 32});
        let disk = |name: &str| json!({"name": name, "size_bytes": 960_197_124_096_u64, "medium": "DISK_MEDIUM_NVME"});
        let inventory = json!({"uuid": id, "architecture": "x86_64", "memory_bytes": 128_u64 << 30, "processors": processors,
            "disks": [disk("nvme0n1"), disk("nvme1n1")],
            "interfaces": [{"name": "eth0", "mac": mac, "speed_mbps": 10_000, "link": true}]});
        let worker = Role::Machine(id.parse().unwrap(), MachinePurpose::Work);
        let worker = client(&self.server, worker.into()).await;
        let report = json!({"inventory": inventory});
        worker.call("WorkerService/ReportInventory", report).await.unwrap();
    }

    /// Provisions a machine, and returns its server's id once it may boot.
    pub async fn provisioned(&self, request: &Value) -> String {
        self.provisioned_for(&self.acme, request).await
    }

    /// The same for one of the customers.
    pub async fn provisioned_for(&self, customer: &Platform, request: &Value) -> String {
        let server = customer.call(Call::Provision, request).await.data()["server_id"].clone();
        let server = server.as_str().unwrap().to_owned();
        let status = platform::status(0, &server, request["location_id"].as_str().unwrap());
        let is_done = async || {
            let data = customer.call(Call::Status, &status).await.data();
            let nothing = json!({"uuid": null, "initial_ips": [], "mac_addr": null});
            assert!(data["provisioned"] == true || data["auth"] == nothing, "{data}");
            data["provisioned"] == true
        };
        until(is_done, "the machine is provisioned").await;
        server
    }

    pub async fn instance(&self, server: &str) -> Value {
        let get = json!({"id": server, "show_deleted": true});
        self.admin.call("InstanceService/GetInstance", get).await.unwrap()["instance"].clone()
    }

    /// Lets the server's machine start the platform's script, and gives it a BMC, which does not respond. Returns the machine's id.
    pub async fn boot(&self, server: &str) -> String {
        let is_on = async || !self.instance(server).await["install_time"].is_null();
        until(is_on, "the machine is to be switched on").await;
        let instance = self.instance(server).await;
        let machine = instance["hardware_id"].as_str().unwrap().to_owned();
        let netboot = Caller::new(Role::Service, "service:netboot").unwrap();
        let netboot = client(&self.server, netboot).await;
        let report = json!({"hardware_id": machine, "instance_id": server, "generation": instance["generation"], "started": true});
        netboot.call("InstanceService/ReportScript", report).await.unwrap();
        let is_active = async || self.instance(server).await["state"] == "STATE_ACTIVE";
        until(is_active, "the instance is active").await;
        let redfish = json!({"url": "https://127.0.0.1:1", "system_id": machine});
        let bmc =
            json!({"hardware_id": machine, "redfish": redfish, "username": "u", "password": "p"});
        let bmc = json!({"bmc": bmc, "skip_login": true});
        self.admin.call("PowerService/CreateBmc", bmc).await.unwrap();
        machine
    }

    /// Waits until the grant of the address is confirmed, which happens ten seconds after its answer.
    pub async fn confirmed(&self, allocated: &Value) {
        let id = allocated["ip_id"].as_str().unwrap().strip_prefix("ip-").unwrap().to_owned();
        let is_confirmed = async || {
            let found = self.admin.call("GrantService/GetGrant", json!({"id": id})).await.unwrap();
            assert_eq!(found["grant"]["state"], "GRANT_STATE_ACTIVE");
            found["grant"]["confirm_time"].is_string()
        };
        until(is_confirmed, "the grant is confirmed").await;
    }

    /// Ends the server, and starts another one with the same data.
    pub async fn restarted(self) -> Self {
        let server = start_in(self.server.end().await).await;
        let admin = client(&server, Role::Admin.into()).await;
        let [acme, other, busy] = [self.acme, self.other, self.busy]
            .map(|platform| Platform::new(&server, platform.auth));
        Self { server, admin, acme, other, busy, machines: self.machines }
    }

    pub async fn end(self) {
        leaks::assert_none();
        self.server.end().await;
    }
}

/// Makes the call, and returns the id of what it creates.
async fn create(admin: &Client, call: &str, request: Value) -> String {
    let created = admin.call(call, request).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    let object = created.as_object().unwrap().values().find(|it| it["id"].is_string());
    object.map(|it| it["id"].as_str().unwrap().to_owned()).unwrap_or_default()
}
