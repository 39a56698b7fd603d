//! Each call with a good request, and the life of a machine.

use std::collections::BTreeSet;

use reqwest::{Body, Method};
use serde_json::{Value, json};

use super::leaks::VALUES;
use super::platform::{self, Answer, Call, Platform};
use super::site::{ADDRESSES, IalSite};
use crate::support::until;

const JSON: Option<&str> = Some("application/json");

/// Returns a body whose length is not announced.
fn chunked(text: &str) -> Body {
    let parts: Vec<_> = text.as_bytes().chunks(20).map(|part| Ok(part.to_vec())).collect();
    Body::wrap_stream(tokio_stream::iter::<Vec<Result<Vec<u8>, std::io::Error>>>(parts))
}

#[tokio::test]
async fn a_machine_is_ordered_used_and_given_back() {
    let site = IalSite::start().await;
    verify(&site.acme).await;
    listings(&site.acme).await;
    let configuration = configure(&site.acme).await;
    let server = ordered(&site, &configuration).await;
    status(&site, &server).await;
    restarts(&site, &server).await;
    addresses(&site, &server).await;
    given_back(&site, &server).await;
    no_machine_is_left(&site).await;
    site.end().await;
}

async fn verify(acme: &Platform) {
    let is_valid =
        async |platform: &Platform| platform.call(Call::Verify, &Value::Null).await.data();
    assert_eq!(is_valid(acme).await, json!({"valid": true}));
    assert_eq!(acme.call(Call::Verify, &json!("anything")).await.data(), json!({"valid": true}));
    assert_eq!(is_valid(&acme.with("region", "ignored".into())).await, json!({"valid": true}));
    for auth in [Value::Null, json!({}), acme.with("secret", "w0Jt-...".into()).auth] {
        assert_eq!(is_valid(&acme.with_auth(auth)).await, json!({"valid": false}));
    }
}

/// Both listings: without a body, with one of announced length, with a chunked one, and by POST.
async fn listings(acme: &Platform) {
    let mut snapshots = Vec::new();
    for call in [Call::Locations, Call::Models] {
        let body = acme.wrapped(&Value::Null);
        let mut bodies = Vec::new();
        for method in [Method::GET, Method::POST] {
            for body in [None, Some(Body::from(body.clone())), Some(chunked(&body))] {
                let media_type = JSON.filter(|_| body.is_some());
                let answer =
                    acme.send_as(call, method.clone(), call.path(), media_type, body).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
                bodies.push(answer.body);
            }
        }
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        let data: Value = serde_json::from_str(&bodies[0]).unwrap();
        snapshots.push(data["data"]["extra"]["snapshot"].clone());
        if call == Call::Locations { check_locations(&data) } else { check_models(&data) }
    }
    assert!(snapshots[0].is_string() && snapshots[0] == snapshots[1], "{snapshots:?}");
}

fn check_locations(answer: &Value) {
    let locations = answer["data"]["locations"].as_array().unwrap();
    let ids: Vec<_> = locations.iter().map(|it| &it["provider"]["location_id"]).collect();
    assert_eq!(ids, ["dark", "dry", "kir1", "unbound"], "in the order of their ids");
    let geographic = json!({"latitude": 67.8557, "longitude": 20.2253, "city": "Kiruna", "state": "Norrbotten", "country": "SE",
        "region": "eu-north"});
    let kir1 = &locations[2];
    assert_eq!((&kir1["name"], &kir1["geographic"]), (&json!("Kiruna 1"), &geographic));
    let provider =
        json!({"location_id": "kir1", "code": "KRN", "availability_zones": ["kir1-a", "kir1-b"]});
    assert_eq!(kir1["provider"], provider);
    assert_eq!(kir1["annotations"], json!({"power": "hydro"}));
    assert_eq!((&kir1["compatible"], &locations[0]["compatible"]), (&json!(true), &json!(false)));
}

fn check_models(answer: &Value) {
    let models = answer["data"]["models"].as_array().unwrap();
    let ids: Vec<_> = models.iter().map(|it| &it["provider"]["model_id"]).collect();
    assert_eq!(ids, ["m2", "m9"], "in the order of their ids");
    let specs = json!({
        "cpu": {"count": 1, "cores": 16, "threads": 2, "type": "EPYC 4545P", "shared": false},
        "gpu": null,
        "memory": {"size_gb": 128, "type": "ddr5"},
        "storage": [{"count": 2, "size_gb": 960, "type": "nvme"}],
        "network": [{"scope": "public", "type": "ethernet", "throughput": "10Gbps"}],
        "features": {"raid": "raid1", "hypervisor": true, "extra": {"tpm": "2.0"}},
    });
    assert_eq!(models[0]["specs"], specs);
    assert_eq!(models[0]["pricing"], json!({"hourly": 410, "monthly": 239_000}));
    assert_eq!(models[0]["provider"]["locations"], json!(["dry", "kir1", "unbound"]));
    assert_eq!(models[0]["provider"]["availability_zones"]["kir1"], json!(["kir1-a"]));
    assert_eq!(models[0]["compatible"], true);
    assert_eq!(
        (&models[1]["compatible"], &models[1]["provider"]["locations"]),
        (&json!(false), &json!([]))
    );
}

/// Returns the configuration of `kir1`.
async fn configure(acme: &Platform) -> Value {
    let first = acme.call(Call::Configure, &platform::configure("kir1")).await.data();
    assert_eq!(
        (&first["configured"], first["version"].is_string()),
        (&json!(true), true),
        "{first}"
    );
    let latest = first["configuration_latest"].clone();
    assert_eq!((&latest["format"], &latest["configuration"]), (&json!(1), &json!({"vlan": 214})));
    let mut again = platform::configure("kir1");
    (again["version"], again["configuration_current"]) = (first["version"].clone(), latest.clone());
    assert_eq!(acme.call(Call::Configure, &again).await.data(), first, "nothing has changed");
    let unbound = acme.call(Call::Configure, &platform::configure("unbound")).await.data();
    assert_eq!(
        unbound,
        json!({"configured": false, "version": null, "configuration_latest": null})
    );
    latest
}

/// Orders one machine by several calls, some at the same time, and returns the id of its server.
async fn ordered(site: &IalSite, configuration: &Value) -> String {
    let mut order = platform::provision(1, "kir1");
    order["location_configuration"] = configuration.clone();
    let calls = (0..4).map(|_| {
        let (platform, order) = (site.acme.hurried(), order.clone());
        tokio::spawn(async move { platform.call(Call::Provision, &order).await.data() })
    });
    let mut servers = BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        let data = call.await.unwrap();
        assert_eq!((&data["location_modified"], &data["extra"]), (&json!(false), &json!({})));
        servers.insert(data["server_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(servers.len(), 1, "one machine: {servers:?}");
    let server = site.provisioned(&order).await;
    assert!(servers.contains(&server));
    let mut same_name = platform::provision(2, "kir1");
    same_name["hostname"] = order["hostname"].clone();
    let answer = site.acme.call(Call::Provision, &same_name).await;
    answer.refused("409.duplicate-found", Some("/request/hostname"), "the name is in use");
    server
}

/// The same answer by both paths, both methods, and from the query.
async fn status(site: &IalSite, server: &str) {
    let request = platform::status(1, server, "kir1");
    let base = "/v1/infrastructure/server";
    let mut answers: Vec<Answer> = Vec::new();
    for path in ["provision-status", "provision-check"] {
        let path = format!("{base}/{path}");
        for method in [Method::POST, Method::GET] {
            let body = site.acme.wrapped(&request);
            answers.push(site.acme.send(Call::Status, method.clone(), &path, body.clone()).await);
            let body = Some(chunked(&body));
            answers.push(site.acme.send_as(Call::Status, method, &path, JSON, body).await);
        }
        let query = format!("{path}?server_id={server}&location_id=kir1");
        answers.push(site.acme.get(Call::Status, &query, VALUES[7]).await);
    }
    let mut bodies: Vec<_> = answers.iter().map(|answer| answer.body.as_str()).collect();
    bodies.dedup();
    assert_eq!((answers.len(), bodies.len()), (10, 1), "{bodies:?}");
    let data = &answers[0].value["data"];
    let machine = site.instance(server).await["hardware_id"].clone();
    assert_eq!((&data["server_id"], &data["provisioned"]), (&json!(server), &json!(true)));
    assert_eq!(data["auth"]["uuid"], machine, "it reported its record's id as its UUID");
    let mac = data["auth"]["mac_addr"].as_str().unwrap();
    assert!(mac.starts_with("02:00:00:00:00:"), "{mac}");
    let ips = data["auth"]["initial_ips"].as_array().unwrap();
    assert!(ips.len() == 1 && ips[0].as_str().unwrap().starts_with("198.51.100."), "{ips:?}");
    assert_eq!(data["extra"], json!({}));
}

/// Returns the number of power jobs that were ordered for the server's machine, as those of its instance.
async fn power_jobs(site: &IalSite, machine: &str, server: &str) -> usize {
    let request = json!({"hardware_id": machine});
    let listed = site.admin.call("PowerService/ListPowerJobs", request).await.unwrap();
    let jobs = listed["power_jobs"].as_array().cloned().unwrap_or_default();
    jobs.iter().filter(|job| job["instance_id"] == server).count()
}

/// Restarts soon after another are one.
async fn restarts(site: &IalSite, server: &str) {
    let change = platform::change(1, server, "kir1");
    let early = site.acme.call(Call::Restart, &change).await;
    early.refused("403.invalid-state", None, "a machine that was never on is not restarted");
    let machine = site.boot(server).await;
    let before = power_jobs(site, &machine, server).await;
    for _ in 0..3 {
        assert_eq!(site.acme.call(Call::Restart, &change).await.data(), true);
    }
    assert_eq!(power_jobs(site, &machine, server).await, before + 1);
    let status = platform::status(1, server, "kir1");
    assert_eq!(site.acme.call(Call::Status, &status).await.data()["provisioned"], true);
}

/// Allocates until nothing is left, releases, and allocates again.
async fn addresses(site: &IalSite, server: &str) {
    let request = platform::allocate(1, server, "kir1");
    let mut allocated = Vec::new();
    let exhausted = loop {
        let answer = site.acme.call(Call::Allocate, &request).await;
        if answer.status != 200 {
            break answer;
        }
        allocated.push(answer.data());
        assert!(allocated.len() < ADDRESSES, "{allocated:?}");
    };
    exhausted.refused("422.max-exceeded", None, "nothing is left");
    assert_eq!(allocated.len(), ADDRESSES - 1, "one is the machine's own");
    let blocks: BTreeSet<_> = allocated.iter().map(|it| it["cidr"].as_str().unwrap()).collect();
    assert_eq!(blocks.len(), allocated.len(), "none is given twice");
    for it in &allocated {
        assert!(
            it["cidr"].as_str().unwrap().ends_with("/32") && it["ip_id"] != it["ip_assignment_id"],
            "{it}"
        );
        let network = json!([it["gateway"], it["network"], it["netmask"], it["nat_private_ip"]]);
        assert_eq!(network, json!(["198.51.100.33", "198.51.100.32/27", "255.255.255.224", null]));
    }
    let mut other = request.clone();
    other["kind"] = "ipv6".into();
    let answer = site.acme.call(Call::Allocate, &other).await;
    answer.refused("422.not-compatible", Some("/request/kind"), "there are no IPv6 addresses");
    for (n, it) in allocated.iter().enumerate() {
        let release = platform::release(1, server, "kir1", it);
        // In the wrapper, or bare with the credentials beside its keys.
        let mut bare = release.clone();
        bare["auth"] = site.acme.auth.clone();
        let body = if n % 2 == 0 { site.acme.wrapped(&release) } else { bare.to_string() };
        for _ in 0..2 {
            let answer = site
                .acme
                .send(Call::Release, Method::POST, Call::Release.path(), body.clone())
                .await;
            assert_eq!(answer.data(), true);
        }
    }
    let unknown = platform::release(1, server, "kir1", &allocated[0]).to_string();
    let answer = site.acme.send(Call::Release, Method::POST, Call::Release.path(), unknown).await;
    answer.refused("401.auth-invalid", None, "bare, without credentials");
    allocated_again(site, server).await;
}

/// Allocates what was released, once it was held back long enough; a repeat with the same pool has the same answer.
async fn allocated_again(site: &IalSite, server: &str) {
    let mut request = platform::allocate(1, server, "kir1");
    request["cycle"]["pool_id"] = "66b2f0c2a9d34e5b7c08aaaa".into();
    let is_free = async || site.acme.call(Call::Allocate, &request).await.status == 200;
    until(is_free, "a released address is granted again").await;
    let first = site.acme.call(Call::Allocate, &request).await.data();
    assert_eq!(site.acme.call(Call::Allocate, &request).await.data(), first);
    site.confirmed(&first).await;
    let change = platform::change(1, server, "kir1");
    let refused = site.acme.call(Call::Decommission, &change).await;
    refused.refused("403.invalid-state", None, "an address is left");
    assert_eq!(refused.value["error"]["extra"]["ips"], json!([first["ip_id"]]));
    let release = platform::release(1, server, "kir1", &first);
    assert_eq!(site.acme.call(Call::Release, &release).await.data(), true);
}

/// The gate is closed when the call returns, and for ever.
async fn given_back(site: &IalSite, server: &str) {
    let change = platform::change(1, server, "kir1");
    assert_eq!(site.instance(server).await["boot_gate"]["open"], true);
    for _ in 0..3 {
        assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
        assert_ne!(site.instance(server).await["boot_gate"]["open"], true);
    }
    for (call, request) in [
        (Call::Provision, platform::provision(1, "kir1")),
        (Call::Status, platform::status(1, server, "kir1")),
        (Call::Restart, change),
        (Call::Allocate, platform::allocate(1, server, "kir1")),
    ] {
        let answer = site.acme.call(call, &request).await;
        answer.refused("403.invalid-state", None, &format!("{call:?}: it was given back"));
    }
}

/// Orders the other machines, and one more.
async fn no_machine_is_left(site: &IalSite) {
    for n in 3..10 {
        let order = platform::provision(n, "kir1");
        let answer = site.acme.call(Call::Provision, &order).await;
        if answer.status == 200 {
            let first = answer.data();
            assert_eq!(first["location_modified"], true, "it sent no configuration");
            let again = site.acme.call(Call::Provision, &order).await.data();
            assert_eq!(again, first, "the first answer may have been lost");
            continue;
        }
        answer.refused("503.not-ready", None, "no machine is free");
        answer.names_a_delay();
        assert!(n >= 6, "three were free: {n}");
        return;
    }
    panic!("there are more machines than were made");
}
