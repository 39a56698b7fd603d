//! A request for each call that would change something, if it were admitted.

use prost_reflect::Value as Field;
use runtime::authority::request_certificate;
use serde_json::{Value, json};
use tinwright::{HardwareId, InstanceId};

use super::calls::{self, method};
use super::plain::PLAIN_NOUNS;
use super::site::{Site, TEMPLATE, containers, on_machine};

/// Calls that change nothing in this site: they need a claim's revision, a restored store, an edge, a BMC that answers, a ready image, a node, an instance that names a stack, a power job, an active or failed instance, a key, a prepared
/// workflow, or a leased action.
pub const WITHOUT_CHANGE: &[&str] = &[
    "ClaimService/ReleaseAddresses",
    "IdentityService/Authenticate",
    "IdentityService/RotateAuthority",
    "IdentityService/RotateSiteKey",
    "ImageService/AddSignature",
    "InstanceService/ReinstallInstance",
    "InstanceService/ReportStackRunning",
    "InstanceService/RestartInstance",
    "InstanceService/RetryInstance",
    "LeaseService/DeleteLease",
    "LeaseService/WithholdAddresses",
    "NodeService/CallNode",
    "NodeService/Connect",
    "NodeService/DeleteNode",
    "PowerService/CancelPowerJob",
    "PowerService/EnrolBmc",
    "PowerService/ReadBmcInventory",
    "PowerService/ReleasePowerJob",
    "StoreService/Backup",
    "StoreService/ResumeImageCollection",
    "TemplateService/RenderTemplate",
    "WorkerService/AppendLog",
    "WorkerService/FinishAction",
    "WorkerService/Redeem",
    "WorkerService/Renew",
    "WorkerService/ReportProgress",
    "WorkerService/StartAction",
    "WorkflowService/NoteBoot",
    "WorkflowService/PlanWorkflow",
];

/// Returns the requests, in an order in which each one changes something.
pub fn changing(site: &Site) -> Vec<(&'static str, Value)> {
    [
        hardware(site),
        plain(site),
        // Before the instance that a grant is attached to is deleted.
        addresses(site),
        instances(site),
        workflows(site),
        power(site),
        stacks(site),
        builds(site),
        identities(site),
    ]
    .concat()
}

fn hardware(site: &Site) -> Vec<(&'static str, Value)> {
    let new = json!({"interfaces": [{"mac": "02:00:00:00:01:00"}]});
    let renamed = json!({"id": site.id("spare"), "name": "x"});
    let state = json!({"id": site.id("spare"), "state": "STATE_MAINTENANCE", "reason": "x"});
    vec![
        ("HardwareService/CreateHardware", json!({"hardware": new})),
        ("HardwareService/UpdateHardware", json!({"hardware": renamed, "update_mask": "name"})),
        ("HardwareService/SetHardwareState", state),
        (
            "HardwareService/RecordInventory",
            json!({"hardware_id": site.id("spare"), "inventory": {"serial": "x"}}),
        ),
        (
            "HardwareService/RecordBmcInventory",
            json!({"hardware_id": site.id("spare"), "inventory": {"serial": "x"}}),
        ),
        ("UnknownMachineService/RecordUnknownMachines", unknown_machines()),
        ("UnknownMachineService/DeleteUnknownMachine", json!({"mac": "02:00:00:00:03:00"})),
        ("HardwareService/EnrolMachine", enrolment()),
        ("HardwareService/DeleteHardware", json!({"id": site.id("spare")})),
    ]
}

fn unknown_machines() -> Value {
    json!({"unknown_machines": [{"mac": "02:00:00:00:03:00", "requests": 1}]})
}

/// The report of a machine without a record.
fn enrolment() -> Value {
    let uuid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    let (id, mac) = (HardwareId::new().to_string(), "02:00:00:00:02:00");
    json!({
        "enrolment": {"id": id, "mac": mac, "network": "192.0.2.0/24"},
        "uuid": uuid,
        "inventory": {"uuid": uuid, "interfaces": [{"name": "eth0", "mac": mac}]},
    })
}

fn plain(site: &Site) -> Vec<(&'static str, Value)> {
    PLAIN_NOUNS.iter().flat_map(|noun| noun.changing(site)).collect()
}

fn instances(site: &Site) -> Vec<(&'static str, Value)> {
    let (id, machine) = (site.id("instance"), site.id("occupied"));
    let renamed = json!({"id": id, "hostname": "x"});
    let report =
        json!({"hardware_id": machine, "instance_id": id, "generation": 1, "started": true});
    let runs = json!({
        "hardware_id": machine, "instance_id": id, "generation": 1, "boot_time": "2026-01-01T00:00:00Z",
    });
    vec![
        (
            "InstanceService/CreateInstance",
            json!({"instance": {"hardware_id": site.id("free"), "reserve_only": true}}),
        ),
        ("InstanceService/ReportPhoneHome", json!({"hardware_id": machine, "instance_id": id})),
        ("InstanceService/ReportScript", report),
        ("InstanceService/ReportStackRunning", runs),
        ("InstanceService/UpdateInstance", json!({"instance": renamed, "update_mask": "hostname"})),
        ("InstanceService/RetryInstance", json!({"id": id})),
        // Of no instance, and of an older revision: whether the instance is active already is a matter of time.
        ("InstanceService/RestartInstance", json!({"id": InstanceId::new().to_string()})),
        ("InstanceService/ReinstallInstance", json!({"id": id, "revision": 1})),
        ("InstanceService/DeleteInstance", json!({"id": id, "force": true})),
    ]
}

fn workflows(site: &Site) -> Vec<(&'static str, Value)> {
    let id = |name| json!({"id": site.id(name)});
    let renamed = json!({"id": site.id("template"), "name": "x"});
    let of_lease = json!({"workflow_id": site.id("current"), "lease_id": "x"});
    let holder = json!({"boot_id": "11111111-1111-1111-1111-111111111111", "process_id": "p"});
    vec![
        ("TemplateService/CreateTemplate", json!({"template": {"name": "n", "data": TEMPLATE}})),
        ("TemplateService/UpdateTemplate", json!({"template": renamed, "update_mask": "name"})),
        (
            "TemplateService/RenderTemplate",
            json!({"template_data": TEMPLATE, "hardware_id": site.id("spare")}),
        ),
        ("TemplateService/DeleteTemplate", id("template")),
        ("WorkflowService/CreateWorkflow", on_machine(&site.id("maintained"))),
        ("WorkflowService/PlanWorkflow", json!({"hardware_id": site.id("spare")})),
        ("WorkflowService/ReleaseWorkflow", id("held")),
        ("WorkflowService/CancelWorkflow", id("pending")),
        ("WorkflowService/DeleteWorkflow", id("ended")),
        ("WorkflowService/NoteBoot", json!({"hardware_id": site.id("working"), "step": "x"})),
        ("WorkflowService/ConfirmRestart", json!({"hardware_id": site.id("maintained")})),
        ("WorkerService/ReportInventory", json!({"inventory": {"serial": "x"}})),
        ("WorkerService/NextAction", json!({"holder": holder})),
        ("WorkerService/StartAction", of_lease.clone()),
        ("WorkerService/ReportProgress", of_lease.clone()),
        ("WorkerService/AppendLog", of_lease.clone()),
        ("WorkerService/FinishAction", of_lease),
    ]
}

fn power(site: &Site) -> Vec<(&'static str, Value)> {
    let machine = site.id("maintained");
    let renamed = json!({"id": site.id("bmc"), "username": "x"});
    let bmc = json!({"hardware_id": machine, "redfish": {"url": "https://127.0.0.1:2"}});
    let job = json!({"hardware_id": machine, "operations": [{"power": "POWER_ON"}]});
    vec![
        ("PowerService/CreateBmc", json!({"bmc": bmc, "skip_login": true})),
        (
            "PowerService/UpdateBmc",
            json!({"bmc": renamed, "update_mask": "username", "skip_login": true}),
        ),
        ("PowerService/CreatePowerJob", job),
        ("PowerService/DeleteBmc", json!({"id": site.id("bmc")})),
    ]
}

fn stacks(site: &Site) -> Vec<(&'static str, Value)> {
    let id = site.id("stack");
    let changed = json!({"id": id, "containers": containers("/sbin/other")});
    let new = json!({"name": "new", "containers": containers("/sbin/init")});
    let call = json!({"list_mounts": {}});
    let hello = json!({"hello": {"boot_id": "11111111-1111-1111-1111-111111111111"}});
    vec![
        ("NodeService/CallNode", json!({"node_id": site.id("free"), "call": call})),
        ("NodeService/DeleteNode", json!({"id": site.id("free")})),
        ("NodeService/Connect", hello),
        ("StackService/CreateStack", json!({"stack": new})),
        ("StackService/UpdateStack", json!({"stack": changed, "update_mask": "containers"})),
        ("StackService/RollBackStack", json!({"id": id})),
        ("StackService/DeleteStack", json!({"id": id})),
    ]
}

fn builds(site: &Site) -> Vec<(&'static str, Value)> {
    let of_attempt = json!({"build_id": site.id("build"), "holder": "b", "attempt": 1});
    let mut failed = of_attempt.clone();
    failed["failure"] = json!({"reason": "x", "may_retry": true});
    vec![
        ("BuilderService/LeaseBuild", json!({"holder": "b"})),
        ("BuilderService/ReportBuild", of_attempt),
        ("BuilderService/FinishBuild", failed),
        ("BuildService/CancelBuild", json!({"id": site.id("build")})),
    ]
}

fn addresses(site: &Site) -> Vec<(&'static str, Value)> {
    let id = |name| json!({"id": site.id(name)});
    let subnet = json!({"name": "new", "cidr": "192.0.2.0/24"});
    let (first, last) = ("203.0.113.10", "203.0.113.19");
    let range =
        json!({"name": "new", "subnet_id": site.id("subnet"), "first": first, "last": last});
    let subnet_update = json!({"id": site.id("subnet"), "quota": 1});
    let range_update = json!({"id": site.id("range"), "name": "x"});
    let grant = json!({"block": "203.0.113.7"});
    let binding = json!({"location_id": site.id("second location")});
    let binding_update = json!({"id": site.id("location binding"), "configuration": "{}"});
    let attachment = json!({"instance_id": site.id("instance")});
    let holder = json!({"noun": "hardware", "object_id": site.id("spare")});
    let claim = json!({"holder": holder, "addresses": ["203.0.113.99"]});
    vec![
        ("ClaimService/ClaimAddresses", claim),
        ("SubnetService/CreateSubnet", json!({"subnet": subnet})),
        ("SubnetService/UpdateSubnet", json!({"subnet": subnet_update, "update_mask": "quota"})),
        ("SubnetService/DeleteSubnet", id("unused subnet")),
        ("SubnetService/CreateRange", json!({"range": range})),
        ("SubnetService/UpdateRange", json!({"range": range_update, "update_mask": "name"})),
        ("GrantService/CreateGrant", json!({"grant": grant})),
        ("GrantService/ConfirmGrant", id("grant")),
        ("GrantService/AttachGrant", json!({"id": site.id("grant"), "attachment": attachment})),
        ("GrantService/DetachGrant", id("grant")),
        ("GrantService/ReleaseGrant", id("grant")),
        ("SubnetService/DeleteRange", id("range")),
        ("LocationBindingService/CreateLocationBinding", json!({"location_binding": binding})),
        (
            "LocationBindingService/UpdateLocationBinding",
            json!({"location_binding": binding_update, "update_mask": "configuration"}),
        ),
        ("LocationBindingService/DeleteLocationBinding", id("location binding")),
    ]
}

fn identities(site: &Site) -> Vec<(&'static str, Value)> {
    let described = json!({"id": site.id("tenant"), "description": "x"});
    let credential = json!({"role": "ROLE_VIEWER"});
    vec![
        ("TenantService/CreateTenant", json!({"tenant": {"name": "new"}})),
        ("TenantService/UpdateTenant", json!({"tenant": described, "update_mask": "description"})),
        ("TenantService/DeleteTenant", json!({"id": site.id("tenant")})),
        ("IdentityService/CreateCredential", json!({"credential": credential})),
        ("IdentityService/DeleteCredential", json!({"id": site.id("credential")})),
        ("IdentityService/IssueCertificate", certificate()),
        ("IdentityService/RevokeCertificate", json!({"serial": "7f"})),
    ]
}

fn certificate() -> Value {
    let method = method("IdentityService/IssueCertificate");
    let json = json!({"role": "ROLE_VIEWER", "subject": "person:anna"});
    let mut request = calls::request(&method, json);
    let (certificate_request, _) = request_certificate().unwrap();
    request.set_field_by_name("certificate_request", Field::Bytes(certificate_request.into()));
    calls::json(&request)
}
