//! Request ids count for one caller and one call.

use runtime::{Caller, Role};
use serde_json::{Value, json};

use super::calls::methods;
use super::plain::PLAIN_NOUNS;
use super::site::{Site, TEMPLATE, client, containers};

/// Returns a request of each call that takes a request id; the request of another caller has another `n`.
fn requests(site: &Site, n: usize) -> Vec<(&'static str, Value)> {
    let machine = site.id(["free", "spare"][n]);
    let mac = format!("02:00:00:00:02:{n:02x}");
    let subnet = json!({"name": format!("n{n}"), "cidr": format!("10.{n}.0.0/16")});
    let at = format!("203.0.113.{}", n + 10);
    let range =
        json!({"name": format!("n{n}"), "subnet_id": site.id("subnet"), "first": at, "last": at});
    let group = format!("n{n}");
    let binding = json!({"location_id": site.id("location"), "tenant": "acme", "group": group});
    let bmc = json!({"hardware_id": machine, "redfish": {"url": "https://127.0.0.1:2", "system_id": machine}});
    let stack = json!({"name": format!("n{n}"), "containers": containers("/sbin/init")});
    let job = json!({"hardware_id": machine, "operations": [{"power": "POWER_ON"}]});
    let plain = PLAIN_NOUNS.iter().map(|noun| (noun.create, noun.creation(&format!("n{n}"))));
    let others = [
        ("HardwareService/CreateHardware", json!({"hardware": {"interfaces": [{"mac": mac}]}})),
        ("IdentityService/CreateCredential", json!({"credential": {"role": "ROLE_VIEWER"}})),
        (
            "InstanceService/CreateInstance",
            json!({"instance": {"hardware_id": machine, "reserve_only": true}}),
        ),
        ("LocationBindingService/CreateLocationBinding", json!({"location_binding": binding})),
        ("PowerService/CreateBmc", json!({"bmc": bmc, "skip_login": true})),
        ("SubnetService/CreateRange", json!({"range": range})),
        ("SubnetService/CreateSubnet", json!({"subnet": subnet})),
        ("PowerService/CreatePowerJob", job),
        ("StackService/CreateStack", json!({"stack": stack})),
        (
            "TemplateService/CreateTemplate",
            json!({"template": {"name": format!("n{n}"), "data": TEMPLATE}}),
        ),
        ("TenantService/CreateTenant", json!({"tenant": {"name": format!("n{n}")}})),
        ("WorkflowService/CreateWorkflow", super::site::on_machine(&site.id("maintained"))),
    ];
    others.into_iter().chain(plain).collect()
}

#[tokio::test]
async fn one_request_id_of_two_callers_makes_two_objects_and_a_repeated_one_makes_none() {
    let site = Site::start().await;
    let mut clients = Vec::new();
    for subject in ["person:anna", "person:bob"] {
        clients.push(client(&site.server, Caller::new(Role::Admin, subject).unwrap()).await);
    }
    // RestartInstance returns no object of its own.
    let creates = |it: &prost_reflect::MethodDescriptor| {
        it.input().get_field_by_name("request_id").is_some() && it.name().starts_with("Create")
    };
    assert_eq!(methods().into_iter().filter(creates).count(), requests(&site, 0).len());
    let mut created = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        for (call, mut json) in requests(&site, n) {
            json["request_id"] = "the same".into();
            let mut ids = Vec::new();
            for _ in 0..2 {
                let response = client.call(call, json.clone()).await;
                let response = response.unwrap_or_else(|e| panic!("{call}: {e}"));
                let mut objects = response.as_object().unwrap().values();
                ids.push(objects.find_map(|it| it["id"].as_str()).unwrap().to_owned());
            }
            assert_eq!(ids[0], ids[1], "{call}: repeated");
            assert!(!created.contains(&ids[0]), "{call}: of the other caller");
            created.extend(ids.into_iter().take(1));
        }
    }
    site.server.end().await;
}
