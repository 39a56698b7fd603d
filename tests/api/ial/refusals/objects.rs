//! Requests that contradict what there is, or that are too many.

use std::net::Ipv4Addr;
use std::time::Instant;

use serde_json::{Value, json};

use super::{GUESS, NOBODY, changed, good};
use crate::access::calls::SOON;
use crate::ial::platform::{self, Call, Platform, golden, platform_id};
use crate::ial::site::IalSite;

/// R13
pub async fn unknown(acme: &Platform) {
    let (location, model) = ("404.infrastructure.location", "404.infrastructure.model");
    for (call, pointer, value, code) in [
        (Call::Configure, "/location_id", "nowhere", location),
        (Call::Provision, "/location_id", "nowhere", location),
        (Call::Provision, "/zone_id", "kir1-z", location),
        (Call::Provision, "/model_id", "nothing", model),
    ] {
        let answer = acme.call(call, &changed(good(call), pointer, Some(value.into()))).await;
        answer.refused(code, Some(&format!("/request{pointer}")), value);
    }
    for call in [Call::Status, Call::Restart, Call::Decommission, Call::Allocate] {
        for id in [NOBODY, "srv-01j9x4k7"] {
            let answer = acme.call(call, &changed(good(call), "/server_id", Some(id.into()))).await;
            answer.refused(
                "404.infrastructure.server",
                Some("/request/server_id"),
                &format!("{call:?}"),
            );
        }
    }
    let answer = acme.call(Call::Release, &good(Call::Release)).await;
    answer.refused(
        "404.infrastructure.ips.pool",
        Some("/request/ip_id"),
        "a grant that there never was",
    );
    for key in ["ip_id", "ip_assignment_id"] {
        let request = changed(good(Call::Release), &format!("/{key}"), Some("4c21".into()));
        let answer = acme.call(Call::Release, &request).await;
        answer.refused("404.infrastructure.ips.pool", Some(&format!("/request/{key}")), key);
    }
}

/// R14, R15
pub async fn foreign(site: &IalSite, server: &str) {
    let allocated =
        site.acme.call(Call::Allocate, &platform::allocate(1, server, "kir1")).await.data();
    let release = platform::release(1, server, "kir1", &allocated);
    let calls = [Call::Status, Call::Restart, Call::Decommission, Call::Allocate];
    let mut requests: Vec<_> = calls.map(|call| (call, golden(call, 1, server, "kir1"))).into();
    requests.push((Call::Release, release.clone()));
    for (call, request) in &requests {
        let unknown = site.acme.call(*call, &good(*call)).await;
        let answer = site.other.call(*call, request).await;
        assert_eq!(answer.status, 404, "{call:?}: {}", answer.body);
        assert_eq!(answer.body, unknown.body, "{call:?}: that there is one is not said");
    }
    requests.push((Call::Provision, good(Call::Provision)));
    for (call, request) in &requests {
        let answer = site.acme.of_hub("66b1f0c2a9d34e5b7c0affff").call(*call, request).await;
        answer.refused("403.wrong-hub", None, &format!("{call:?}"));
    }
    assert_eq!(site.acme.call(Call::Release, &release).await.data(), true);
}

/// R16. The server was ordered in the zone kir1-a.
pub async fn mismatched(acme: &Platform, server: &str) {
    let calls = [Call::Status, Call::Restart, Call::Decommission, Call::Allocate];
    for call in calls {
        for (key, wrong) in [("location_id", "dry"), ("zone_id", "kir1-b"), ("model_id", "m9")] {
            let request = golden(call, 1, server, "kir1");
            if key == "model_id" && request.get(key).is_none() {
                continue;
            }
            let answer =
                acme.call(call, &changed(request, &format!("/{key}"), Some(wrong.into()))).await;
            answer.refused("403.mismatch", Some(&format!("/request/{key}")), &format!("{call:?}"));
        }
    }
    let allocated = acme.call(Call::Allocate, &platform::allocate(1, server, "kir1")).await.data();
    let release = platform::release(1, server, "kir1", &allocated);
    let other = "198.51.100.99/32";
    for (key, wrong) in [
        ("kind", "ipv6"),
        ("cidr", other),
        ("server_id", NOBODY),
        ("location_id", "dry"),
        ("zone_id", "kir1-b"),
    ] {
        let answer = acme
            .call(Call::Release, &changed(release.clone(), &format!("/{key}"), Some(wrong.into())))
            .await;
        answer.refused("403.mismatch", Some(&format!("/request/{key}")), key);
    }
    assert_eq!(acme.call(Call::Release, &release).await.data(), true);
    for (key, wrong) in [
        ("location_id", "dry"),
        ("location_id", "nowhere"),
        ("model_id", "m9"),
        ("zone_id", "kir1-b"),
    ] {
        let request = changed(good(Call::Provision), &format!("/{key}"), Some(wrong.into()));
        let answer = acme.call(Call::Provision, &request).await;
        answer.refused("403.mismatch", Some(&format!("/request/{key}")), key);
    }
}

/// R16 of a server that was ordered in any zone, and got a machine in kir1-a.
pub async fn zones(site: &IalSite) {
    let server = site.provisioned(&platform::provision(50, "kir1")).await;
    let in_zone = |request: Value, zone: &str| changed(request, "/zone_id", Some(zone.into()));
    let allocate = platform::allocate(50, &server, "kir1");
    let allocated = site.acme.call(Call::Allocate, &in_zone(allocate, "kir1-a")).await.data();
    let release = platform::release(50, &server, "kir1", &allocated);
    let calls = [Call::Provision, Call::Status, Call::Restart, Call::Decommission, Call::Allocate];
    let mut requests: Vec<_> = calls.map(|call| (call, golden(call, 50, &server, "kir1"))).into();
    requests.push((Call::Release, release.clone()));
    for (call, request) in requests {
        for zone in ["kir1-b", "nowhere"] {
            let answer = site.acme.call(call, &in_zone(request.clone(), zone)).await;
            answer.refused("403.mismatch", Some("/request/zone_id"), &format!("{call:?}: {zone}"));
        }
    }
    for call in [Call::Provision, Call::Status] {
        let request = in_zone(golden(call, 50, &server, "kir1"), "kir1-a");
        assert_eq!(site.acme.call(call, &request).await.data()["server_id"], server, "{call:?}");
    }
    assert_eq!(site.acme.call(Call::Release, &in_zone(release, "kir1-a")).await.data(), true);
    let change = in_zone(platform::change(50, &server, "kir1"), "kir1-a");
    assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
}

/// R17
pub async fn configurations(site: &IalSite, server: &str) {
    let acme = &site.acme;
    let known = acme.call(Call::Configure, &platform::configure("kir1")).await.data()["configuration_latest"].clone();
    assert!(known["format"].is_u64() && known["tenant"] == "acme", "{known}");
    let of = |key: &str, value: Value| changed(known.clone(), &format!("/{key}"), Some(value));
    for call in [Call::Provision, Call::Status, Call::Allocate, Call::Release] {
        for format in [json!(2), json!("1"), Value::Null] {
            let request = changed(
                golden(call, 1, server, "kir1"),
                "/location_configuration",
                Some(of("format", format)),
            );
            let answer = acme.call(call, &request).await;
            let source = Some("/request/location_configuration/format");
            answer.refused("422.invalid-argument", source, &format!("{call:?}"));
        }
    }
    for call in [Call::Provision, Call::Status, Call::Allocate] {
        for (key, value) in [("tenant", "other"), ("location", "dry")] {
            let request = changed(
                golden(call, 1, server, "kir1"),
                "/location_configuration",
                Some(of(key, value.into())),
            );
            let answer = acme.call(call, &request).await;
            let source = format!("/request/location_configuration/{key}");
            answer.refused("422.invalid-argument", Some(&source), &format!("{call:?}"));
            let title = format!("location_configuration/{key}: belongs to another {key}");
            assert_eq!(answer.value["error"]["title"], title, "{call:?}");
        }
    }
    wrong_locations(acme, &known).await;
    let stale = of("version", "an old one".into());
    for call in [Call::Provision, Call::Status] {
        let request = changed(
            golden(call, 1, server, "kir1"),
            "/location_configuration",
            Some(stale.clone()),
        );
        assert_eq!(acme.call(call, &request).await.data()["server_id"], server, "{call:?}");
    }
    bindings_of_others(site, server, &known).await;
}

/// A location that is wrong is the fault, and not the configuration of another one beside it.
async fn wrong_locations(acme: &Platform, known: &Value) {
    for (n, location, code, source) in [
        (1, "nowhere", "403.mismatch", "/request/location_id"),
        (1, "dry", "403.mismatch", "/request/location_id"),
        (30, "nowhere", "404.infrastructure.location", "/request/location_id"),
        (30, "dry", "422.invalid-argument", "/request/location_configuration/location"),
    ] {
        let mut order = platform::provision(n, location);
        order["location_configuration"] = known.clone();
        let answer = acme.call(Call::Provision, &order).await;
        answer.refused(code, Some(source), &format!("{n}: {location}"));
    }
}

/// R17: the resources that a configuration names. One that was deleted may have been the tenant's.
async fn bindings_of_others(site: &IalSite, server: &str, known: &Value) {
    let location = json!({"name": "kir1"});
    let location = site.admin.call("LocationService/GetLocation", location).await.unwrap();
    let binding = async |tenant: &str| {
        let binding = json!({"location_id": location["location"]["id"], "tenant": tenant, "group": "elsewhere"});
        let request = json!({"location_binding": binding});
        let call = "LocationBindingService/CreateLocationBinding";
        let created = site.admin.call(call, request).await.unwrap();
        created["location_binding"]["id"].clone()
    };
    let (own, foreign) = (binding("acme").await, binding("other").await);
    let with = |call, id: &Value| {
        let sent = changed(known.clone(), "/binding", Some(id.clone()));
        changed(golden(call, 1, server, "kir1"), "/location_configuration", Some(sent))
    };
    for call in [Call::Provision, Call::Status, Call::Allocate, Call::Release] {
        let answer = site.acme.call(call, &with(call, &foreign)).await;
        let source = Some("/request/location_configuration/binding");
        answer.refused("422.invalid-argument", source, &format!("{call:?}"));
    }
    let status = with(Call::Status, &foreign);
    for (call, id) in [(Call::Provision, &own), (Call::Status, &own)] {
        let answer = site.acme.call(call, &with(call, id)).await;
        assert_eq!(answer.data()["server_id"], server, "{call:?}: another binding of its own");
    }
    for id in [&own, &foreign] {
        let delete = json!({"id": id});
        let call = "LocationBindingService/DeleteLocationBinding";
        site.admin.call(call, delete).await.unwrap();
    }
    assert_eq!(site.acme.call(Call::Status, &status).await.data()["server_id"], server);
    for wrong in ["", "no id"] {
        let answer = site.acme.call(Call::Status, &with(Call::Status, &wrong.into())).await;
        assert_eq!(answer.data()["server_id"], server, "{wrong:?} names nothing");
    }
}

/// Orders without the platform's id of the machine: the host name is a weak key, also of those that come at once.
pub async fn host_names(site: &IalSite) {
    const ORDERS: usize = 8;
    let order = changed(platform::provision(20, "kir1"), "/cycle", Some(Value::Null));
    let source = Some("/request/hostname");
    let mut servers = Vec::new();
    for round in 0..2 {
        let calls = (0..ORDERS).map(|_| {
            let (acme, order) = (site.acme.hurried(), order.clone());
            tokio::spawn(async move { acme.call(Call::Provision, &order).await })
        });
        let mut created = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            let answer = call.await.unwrap();
            if answer.status == 200 {
                created.push(answer.data()["server_id"].as_str().unwrap().to_owned());
            } else {
                answer.refused("409.duplicate-found", source, &format!("round {round}"));
            }
        }
        assert_eq!(created.len(), 1, "round {round}");
        let again = site.acme.call(Call::Provision, &order).await;
        again.refused("409.duplicate-found", source, "it is in use");
        let change = platform::change(20, &created[0], "kir1");
        assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
        servers.append(&mut created);
    }
    assert_ne!(servers[0], servers[1], "the name is free again, the id is not");
}

/// Orders with one host name that come at once, with different ids of the platform or without one:
/// one gets a machine, and the others the fault of the name. At `unbound` there is one machine for
/// all.
pub async fn host_names_at_once(site: &IalSite) {
    for (location, first) in [("kir1", 40), ("unbound", 60)] {
        let numbers = first..first + 4;
        let mut orders: Vec<_> = numbers.map(|n| platform::provision(n, location)).collect();
        orders.push(changed(orders[0].clone(), "/cycle", Some(Value::Null)));
        let calls = orders.into_iter().map(|mut order| {
            order["hostname"] = "one.fleet-a.example.net".into();
            let acme = site.acme.hurried();
            tokio::spawn(async move { acme.call(Call::Provision, &order).await })
        });
        let mut created = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            let answer = call.await.unwrap();
            if answer.status == 200 {
                created.push(answer.data()["server_id"].as_str().unwrap().to_owned());
            } else {
                answer.refused("409.duplicate-found", Some("/request/hostname"), location);
            }
        }
        assert_eq!(created.len(), 1, "{location}: {created:?}");
        let change = platform::change(first, &created[0], location);
        assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
    }
}

/// R18, and what else is not offered there. The platform's machines are new ones.
pub async fn not_offered(acme: &Platform) {
    let answer = acme.call(Call::Configure, &platform::configure("dark")).await;
    answer.refused("422.not-compatible", None, "configure");
    let new = platform::provision(8, "kir1");
    for (pointer, value) in [
        ("/location_id", json!("dark")),
        ("/model_id", json!("m9")),
        ("/zone_id", json!("kir1-b")),
        ("/model_features/raid", json!("raid6")),
        ("/provision_options/encrypt_storage", json!(true)),
        ("/provision_options/storage_size", json!(1921)),
    ] {
        let answer = acme.call(Call::Provision, &changed(new.clone(), pointer, Some(value))).await;
        answer.refused("422.not-compatible", Some(&format!("/request{pointer}")), pointer);
    }
}

/// R19
pub async fn building_or_failed(site: &IalSite) {
    for (n, location, state) in [(2, "dry", "STATE_QUEUED"), (3, "unbound", "STATE_FAILED")] {
        let server = site
            .acme
            .call(Call::Provision, &platform::provision(n, location))
            .await
            .data()["server_id"]
            .clone();
        let server = server.as_str().unwrap();
        let is_there = async || {
            let instance = site.instance(server).await;
            instance["state"] == state && instance["state_reason"].is_string()
        };
        crate::support::until(is_there, state).await;
        for call in [Call::Restart, Call::Allocate] {
            let answer = site.acme.call(call, &golden(call, n, server, location)).await;
            answer.refused("403.invalid-state", None, &format!("{call:?}: {state}"));
        }
        let data =
            site.acme.call(Call::Status, &platform::status(n, server, location)).await.data();
        assert_eq!(data["provisioned"], false, "{data}");
        assert_eq!(data["auth"], json!({"uuid": null, "initial_ips": [], "mac_addr": null}));
        assert_eq!(data["extra"].get("failed"), (n == 3).then_some(&Value::Bool(true)), "{data}");
        let ended =
            site.acme.call(Call::Decommission, &platform::change(n, server, location)).await;
        assert_eq!(ended.data(), true);
        for call in [Call::Restart, Call::Allocate, Call::Status] {
            let answer = site.acme.call(call, &golden(call, n, server, location)).await;
            answer.refused("403.invalid-state", None, &format!("{call:?}: decommissioned"));
        }
    }
}

/// R20
pub async fn in_use(site: &IalSite, server: &str) {
    let allocated =
        site.acme.call(Call::Allocate, &platform::allocate(1, server, "kir1")).await.data();
    site.confirmed(&allocated).await;
    let mut request = platform::allocate(1, server, "kir1");
    request["cycle"]["pool_id"] = "66b2f0c2a9d34e5b7c08bbbb".into();
    let late = site.acme.call(Call::Allocate, &request).await.data();
    request["kind"] = "ipv6".into();
    let other = site.acme.call(Call::Allocate, &request).await;
    other.refused("403.mismatch", Some("/request/cycle/pool_id"), "the pool has another address");
    let change = platform::change(1, server, "kir1");
    let answer = site.acme.call(Call::Decommission, &change).await;
    answer.refused("403.invalid-state", None, "addresses are left");
    assert_eq!(answer.value["error"]["extra"]["ips"], json!([allocated["ip_id"]]));
    // The refusal released nothing.
    site.confirmed(&late).await;
    let release = platform::release(1, server, "kir1", &late);
    assert_eq!(site.acme.call(Call::Release, &release).await.data(), true);
    let release = platform::release(1, server, "kir1", &allocated);
    assert_eq!(site.acme.call(Call::Release, &release).await.data(), true);
    assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
    let again = site.acme.call(Call::Provision, &good(Call::Provision)).await;
    again.refused("403.invalid-state", None, &platform_id(1));
}

/// Makes a hundred calls at once. Returns how many were answered, and how many were refused because they were too many.
async fn hurry(platform: &Platform) -> [usize; 2] {
    let calls = (0..100).map(|_| {
        let platform = platform.clone();
        tokio::spawn(async move { platform.call(Call::Verify, &Value::Null).await })
    });
    let (mut answered, mut refused) = (0, 0);
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.unwrap();
        if answer.status == 200 {
            answered += 1;
            continue;
        }
        answer.refused("429.rate-limiting", None, "calls");
        answer.names_a_delay();
        refused += 1;
    }
    [answered, refused]
}

/// R21: the limit of one credential, and that of wrong credentials from one address.
pub async fn limits(site: &IalSite) {
    let busy = site.busy.hurried();
    let (begun, mut answered, mut refused) = (Instant::now(), 0, 0);
    // A busy host may make fewer calls in a second than the limit allows.
    while refused == 0 && begun.elapsed() < SOON {
        let [more, too_many] = hurry(&busy).await;
        (answered, refused) = (answered + more, refused + too_many);
    }
    // 400 at once, and 80 in each second.
    let most = 400 + 80 * (1 + begun.elapsed().as_secs() as usize);
    let is_limited = (400..=most).contains(&answered) && refused > 0;
    assert!(is_limited, "{answered} of at most {most} were answered, {refused} refused");
    let auth = json!({"client_id": GUESS, "secret": GUESS});
    let guesser = Platform::from_address(&site.server, auth, Ipv4Addr::new(127, 0, 0, 9)).hurried();
    for count in 0..30 {
        let answer = guesser.call(Call::Verify, &Value::Null).await;
        if answer.status == 200 {
            assert_eq!(answer.data(), json!({"valid": false}));
            continue;
        }
        answer.refused("429.rate-limiting", None, "checks");
        answer.names_a_delay();
        assert!(count >= 10, "{count}");
        return;
    }
    panic!("wrong credentials are checked without a limit");
}
