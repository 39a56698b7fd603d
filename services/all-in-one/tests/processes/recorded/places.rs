//! Locations, models, machines and addresses.

use serde_json::{Value, json};
use tinwright::HardwareId;

use super::recording::base64;
use super::site::Site;

/// Names of machines, each with its use.
const MACHINES: [&str; 14] = [
    "enrolled",
    "maintained",
    "broken",
    "free",
    "occupied",
    "installed",
    "failing",
    "installing",
    "leaving",
    "scripted",
    "noded",
    "working",
    "done",
    "off",
];

impl Site<'_> {
    pub(crate) async fn places(&mut self) {
        let geography =
            json!({"country": "DE", "city": "Berlin", "latitude": 52.5, "longitude": 13.25});
        let zones = json!([{"name": "a", "description": "first"}, {"name": "b"}]);
        let location = json!({
            "name": "berlin", "labels": {"site": "1"}, "zones": zones, "geography": geography,
            "boot_url": "http://192.0.2.1/boot", "annotations": {"contact": "noc"},
        });
        let create = json!({"location": location, "request_id": "location-1"});
        self.create("berlin", "LocationService/CreateLocation", create).await;
        let zones = json!({"id": self.id("berlin"), "zones": [{"name": "a"}]});
        self.update("LocationService", "Location", zones, "zones").await;
        let gone = json!({"location": {"name": "gone"}});
        self.create_and_delete("LocationService", "Location", gone).await;
    }

    pub(crate) async fn models(&mut self) {
        let constraints = json!({
            "architecture": "x86_64", "labels": {"rack": "1"}, "vendor": "Acme", "product": "One",
            "cores": {"min": "4", "max": "64"}, "memory_bytes": {"min": "1024"},
            "disks": [{"count": {"min": "1"}, "min_size_bytes": "4096", "medium": "DISK_MEDIUM_SSD"}],
            "interfaces": [{"count": {"min": "1"}, "min_speed_mbps": 1000}],
        });
        let model = json!({
            "name": "small", "labels": {"size": "s"}, "description": "d", "constraints": constraints,
            "boot_silent_minutes": 40, "boot_step_minutes": 20, "annotations": {"price": "1"},
        });
        let create = json!({"model": model, "request_id": "model-1"});
        self.create("small", "ModelService/CreateModel", create).await;
        self.create("any", "ModelService/CreateModel", json!({"model": {"name": "any"}})).await;
        let described = json!({"id": self.id("small"), "description": "described"});
        self.update("ModelService", "Model", described, "description").await;
        let gone = json!({"model": {"name": "gone"}});
        self.create_and_delete("ModelService", "Model", gone).await;
        self.call("ModelService/ListModelOffers", json!({})).await;
    }

    pub(crate) async fn machines(&mut self) {
        let mut full = json!({"hardware": full_machine(&self.id("berlin"))});
        full["request_id"] = "hardware-1".into();
        self.create("full", "HardwareService/CreateHardware", full).await;
        for (number, name) in MACHINES.into_iter().enumerate() {
            let interfaces = json!([{"mac": format!("02:00:00:00:00:{number:02x}")}]);
            let machine =
                json!({"name": name, "state": "STATE_PROVISIONABLE", "interfaces": interfaces});
            let create = json!({"hardware": machine});
            self.create(name, "HardwareService/CreateHardware", create).await;
        }
        let states = [
            ("maintained", "STATE_MAINTENANCE"),
            ("broken", "STATE_FAILED"),
            ("enrolled", "STATE_ENROLLED"),
        ];
        for (name, state) in states {
            let state = json!({"id": self.id(name), "state": state, "reason": "fan"});
            self.call("HardwareService/SetHardwareState", state).await;
        }
        let changed = json!({"id": self.id("free"), "labels": {"rack": "1"}, "plan": "p"});
        self.update("HardwareService", "Hardware", changed, "labels,plan").await;
        let gone = json!({"hardware": {"interfaces": [{"mac": "02:00:00:00:00:ff"}]}});
        self.create_and_delete("HardwareService", "Hardware", gone).await;
    }

    /// Reports inventories, and machines without a record.
    pub(crate) async fn reports(&mut self) {
        let free = self.id("free");
        let own = json!({"hardware_id": free, "inventory": inventory("02:00:00:00:00:03")});
        self.call("HardwareService/RecordInventory", own).await;
        let bmc = json!({"serial": "s-1", "vendor": "Acme", "health": "HEALTH_WARNING"});
        let bmc = json!({"hardware_id": free, "inventory": bmc});
        self.call("HardwareService/RecordBmcInventory", bmc).await;
        let (uuid, mac) = ("1b4e28ba-2fa1-11d2-883f-0016d3cca427", "02:00:00:00:02:00");
        let id = HardwareId::new().to_string();
        let enrolment = json!({"id": id, "mac": mac, "network": "192.0.2.0/24"});
        let mut report = json!({"enrolment": enrolment, "uuid": uuid, "inventory": inventory(mac)});
        report["inventory"]["uuid"] = uuid.into();
        self.create("enrolling", "HardwareService/EnrolMachine", report).await;
        let unknown = ["02:00:00:00:03:00", "02:00:00:00:03:01"].map(|mac| {
            json!({
                "mac": mac, "requests": "3", "reason": "REASON_NO_SUBNET", "architectures": [7],
                "vendor_class": "PXEClient",
            })
        });
        let unknown = json!({"unknown_machines": unknown});
        self.call("UnknownMachineService/RecordUnknownMachines", unknown).await;
        let gone = json!({"mac": "02:00:00:00:03:01"});
        self.call("UnknownMachineService/DeleteUnknownMachine", gone).await;
    }

    pub(crate) async fn subnets(&mut self) {
        let subnet = json!({
            "name": "lab", "labels": {"vlan": "7"}, "cidr": "203.0.113.0/24",
            "gateway": "203.0.113.1", "excluded": ["203.0.113.2-203.0.113.9"], "hold": "3600s",
            "quota": "50", "tenant_quotas": {"acme": "10"},
        });
        let create = json!({"subnet": subnet, "request_id": "subnet-1"});
        self.create("lab", "SubnetService/CreateSubnet", create).await;
        let six = json!({"subnet": {"name": "six", "cidr": "2001:db8::/56"}});
        self.create("six", "SubnetService/CreateSubnet", six).await;
        let changed = json!({"id": self.id("lab"), "quota": "60"});
        self.update("SubnetService", "Subnet", changed, "quota").await;
        let gone = json!({"subnet": {"name": "gone", "cidr": "192.0.2.0/24"}});
        self.create_and_delete("SubnetService", "Subnet", gone).await;
    }

    pub(crate) async fn ranges(&mut self) {
        let lab = self.id("lab");
        let range = |name: &str, first: &str, last: &str, kind: &str| {
            let [first, last] = [first, last].map(|it| format!("203.0.113.{it}"));
            let range = json!({
                "name": name, "subnet_id": lab, "first": first, "last": last, "kind": kind,
            });
            json!({"range": range})
        };
        let mut first = range("static", "100", "150", "RANGE_KIND_STATIC");
        first["request_id"] = "range-1".into();
        self.create("static", "SubnetService/CreateRange", first).await;
        let dynamic = range("dynamic", "200", "220", "RANGE_KIND_DYNAMIC");
        self.create("dynamic", "SubnetService/CreateRange", dynamic).await;
        let changed = json!({"id": self.id("static"), "labels": {"use": "vm"}});
        self.update("SubnetService", "Range", changed, "labels").await;
        let gone = range("gone", "160", "161", "RANGE_KIND_STATIC");
        self.create_and_delete("SubnetService", "Range", gone).await;
    }

    pub(crate) async fn bindings(&mut self) {
        let binding = json!({
            "location_id": self.id("berlin"), "tenant": "acme", "group": "g",
            "labels": {"a": "b"}, "subnet_ids": [self.id("lab")], "range_ids": [self.id("static")],
            "configuration": "{\"dns\":\"192.0.2.53\"}",
        });
        let create = json!({"location_binding": binding, "request_id": "binding-1"});
        self.create("binding", "LocationBindingService/CreateLocationBinding", create).await;
        let changed = json!({"id": self.id("binding"), "configuration": "{}"});
        let service = "LocationBindingService";
        self.update(service, "LocationBinding", changed, "configuration").await;
        let gone = json!({"location_binding": {"location_id": self.id("berlin")}});
        self.create_and_delete(service, "LocationBinding", gone).await;
        let machine = self.id("enrolled");
        let holder = json!({"noun": "hardware", "object_id": machine, "hardware_id": machine});
        let claim = json!({"holder": holder, "addresses": ["203.0.113.99"]});
        let claimed = self.call("ClaimService/ClaimAddresses", claim).await["addresses"].clone();
        let release = json!({"noun": "hardware", "object_id": machine, "addresses": claimed});
        self.call("ClaimService/ReleaseAddresses", release).await;
    }
}

/// A machine with a value in each field.
fn full_machine(location: &str) -> Value {
    let dhcp = json!({
        "address": {"address": "192.0.2.10", "prefix_length": 24, "gateway": "192.0.2.1"},
        "hostname": "full", "domain_name": "example.org", "lease_time": "3600s",
        "name_servers": ["192.0.2.53"], "time_servers": ["192.0.2.123"], "mtu": 9000,
        "classless_routes": [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1"}],
    });
    let ipxe = json!({"contents": "#!ipxe\nshell"});
    let netboot = json!({
        "allow_pxe": true, "allow_workflow": true, "ipxe": ipxe, "local_boot": "LOCAL_BOOT_SANBOOT",
    });
    let first = json!({
        "mac": "02:00:00:00:01:01", "name": "eth0", "dhcp": dhcp, "netboot": netboot,
        "bond": "bond0",
    });
    let second = json!({"mac": "02:00:00:00:01:02", "bond": "bond0"});
    let policy = json!({
        "phone_home": "PHONE_HOME_REQUIRED", "metadata_tokens": "METADATA_TOKENS_REQUIRED",
        "kernel_params": ["a=b"],
    });
    json!({
        "name": "full", "state": "STATE_PROVISIONABLE", "labels": {"rack": "1", "row": "a"},
        "agent_id": "agent", "facility": "f", "plan": "p", "manufacturer": "m",
        "architecture": "x86_64", "interfaces": [first, second], "disks": [{"device": "/dev/sda"}],
        "policy": policy,
        "extra": base64(b"{\"password\":\"hunter2\"}"), "bonds": [{"name": "bond0", "mode": "802.3ad"}],
        "protect": true, "location_id": location, "zone": "a", "root_disk": {"serial": "d-1"},
    })
}

/// The inventory of a machine with an interface `mac`.
pub(crate) fn inventory(mac: &str) -> Value {
    let neighbour = json!({"system_name": "switch-1", "port_id": "7", "vlan_id": 7});
    let disk =
        json!({"name": "sda", "serial": "d-1", "size_bytes": "8192", "medium": "DISK_MEDIUM_SSD"});
    let interface = json!({
        "name": "eth0", "mac": mac, "speed_mbps": 1000, "link": true, "lldp_neighbour": neighbour,
    });
    json!({
        "serial": "s-1", "vendor": "Acme", "product": "One", "firmware_mode": "FIRMWARE_MODE_UEFI",
        "processors": {"model": "m", "sockets": 1, "cores": 8, "threads": 16},
        "memory_bytes": "4096", "disks": [disk], "interfaces": [interface],
    })
}
