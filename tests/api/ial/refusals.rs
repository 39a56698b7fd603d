//! Everything that has to be refused, by the numbers of the platform's table (R22 is netboot's).

use std::net::Ipv4Addr;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::leaks::VALUES;
use super::platform::{self, Call, Platform, golden, platform_id};
use super::site::IalSite;

const MAX_BODY_BYTES: usize = 1 << 20;
const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const GUESS: &str = VALUES[6];
const FIELDS: [&str; 7] =
    ["client_id", "subscription_id", "namespace", "region", "api_key", "secret", "config"];

/// Returns a good request, but for one key, which a pointer into the request names.
fn changed(mut request: Value, pointer: &str, value: Option<Value>) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = request.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => parent.insert(key.to_owned(), value),
        None => parent.remove(key),
    };
    request
}

fn good(call: Call) -> Value {
    golden(call, 1, NOBODY, "kir1")
}

#[tokio::test]
async fn every_request_that_has_to_be_refused_is_refused_as_the_table_says() {
    let site = IalSite::start().await;
    unreadable(&site.acme).await;
    too_large(&site).await;
    paths(&site.acme).await;
    credentials(&site.acme).await;
    missing(&site.acme).await;
    wrong_types(&site.acme).await;
    unusable(&site.acme).await;
    unknown(&site.acme).await;
    let server =
        site.provisioned(&changed(good(Call::Provision), "/zone_id", Some("kir1-a".into()))).await;
    foreign(&site, &server).await;
    mismatched(&site.acme, &server).await;
    configurations(&site.acme, &server).await;
    not_offered(&site.acme).await;
    building_or_failed(&site).await;
    in_use(&site, &server).await;
    limits(&site).await;
    site.end().await;
}

/// R1, R2, R23
async fn unreadable(acme: &Platform) {
    for call in Call::ALL {
        for body in ["[]", "null", "\"x\"", "1", "{", "{} x", "{\"auth\": }", "auth"] {
            let answer = acme.hurried().send(call, Method::POST, call.path(), body.into()).await;
            answer.refused("400.invalid-syntax", None, &format!("{call:?}: {body}"));
        }
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
            let body = acme.wrapped(&good(call)).into();
            let answer = acme
                .hurried()
                .send_as(call, Method::POST, call.path(), Some(media_type), Some(body))
                .await;
            answer.refused("415.invalid-content-type", None, &format!("{call:?}: {media_type}"));
        }
        let twice =
            format!(r#"{{"auth": {{"client_id": "{GUESS}", "client_id": "x"}}, "request": null}}"#);
        let answer = acme.hurried().send(call, Method::POST, call.path(), twice).await;
        answer.refused("400.invalid-syntax", Some("/auth/client_id"), &format!("{call:?}"));
    }
    let answer = acme.send(Call::Verify, Method::POST, Call::Verify.path(), String::new()).await;
    answer.refused("400.invalid-syntax", None, "an empty body");
    for media_type in [None, Some("application/json; charset=utf-8"), Some("Application/JSON")] {
        let body = acme.wrapped(&Value::Null).into();
        let answer = acme
            .send_as(Call::Verify, Method::POST, Call::Verify.path(), media_type, Some(body))
            .await;
        assert_eq!(answer.data(), json!({"valid": true}), "{media_type:?}");
    }
}

/// R3. A client that waits for the server to ask for the body gets the whole answer before the connection is closed.
async fn too_large(site: &IalSite) {
    let spaces = |bytes: usize| {
        let body = site.acme.wrapped(&Value::Null);
        format!("{body}{}", " ".repeat(bytes - body.len()))
    };
    let path = Call::Verify.path();
    let largest = site.acme.send(Call::Verify, Method::POST, path, spaces(MAX_BODY_BYTES)).await;
    assert_eq!(largest.data(), json!({"valid": true}));
    let dir = site.server.dir.path();
    let (sent, head) = (dir.join("too-large"), dir.join("head"));
    std::fs::write(&sent, spaces(MAX_BODY_BYTES + 1)).unwrap();
    for framing in ["X-Framing: length", "Transfer-Encoding: chunked"] {
        let mut curl = Command::new("curl");
        curl.args([
            "-q",
            "-sS",
            "--http1.1",
            "-H",
            "Content-Type: application/json",
            "-H",
            "Expect: 100-continue",
        ]);
        curl.args(["-H", framing, "--cacert"])
            .arg(site.server.secrets().join("ca.pem"))
            .arg("-D")
            .arg(&head);
        curl.arg("--data-binary").arg(format!("@{}", sent.display()));
        let done =
            curl.arg(format!("https://{}{path}", site.server.gateway)).output().await.unwrap();
        assert!(done.status.success(), "{framing}: {}", String::from_utf8_lossy(&done.stderr));
        let body = String::from_utf8(done.stdout).unwrap();
        super::decode::decode(Call::Verify, 422, &body);
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["error"]["code"], "422.max-exceeded", "{framing}");
        let head = std::fs::read_to_string(&head).unwrap().to_ascii_lowercase();
        let lines: Vec<_> = head.lines().collect();
        assert!(lines.iter().any(|line| line.starts_with("http/1.1 422")), "{framing}: {head}");
        assert!(lines.contains(&"content-type: application/json"), "{framing}: {head}");
        assert!(lines.contains(&"connection: close"), "{framing}: {head}");
    }
}

/// R4
async fn paths(acme: &Platform) {
    let body = || acme.wrapped(&Value::Null);
    for path in [
        "/v1/nothing",
        "/v1/infrastructure/location/configure",
        "//v1/nothing",
        "/v1/auth/verify/more",
    ] {
        for method in [Method::GET, Method::POST] {
            let answer = acme.hurried().send(Call::Verify, method, path, body()).await;
            answer.refused("404.uri", None, path);
            assert!(answer.headers.get("allow").is_none(), "{path}");
        }
    }
    for call in Call::ALL {
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            if method == Method::GET && call.methods().contains("GET") {
                continue;
            }
            let answer = acme.hurried().send(call, method.clone(), call.path(), body()).await;
            answer.refused("404.uri", None, &format!("{method} {call:?}"));
            assert_eq!(answer.headers["allow"], call.methods(), "{method} {call:?}");
        }
    }
    for path in ["//v1/auth/verify", "/v1/auth/verify/", "//v1/auth/verify/"] {
        let answer = acme.send(Call::Verify, Method::POST, path, body()).await;
        assert_eq!(answer.data(), json!({"valid": true}), "{path}");
    }
}

/// R5, R6
async fn credentials(acme: &Platform) {
    let mut texts = Vec::new();
    for call in Call::WITH_REQUEST {
        let request = json!({"neither": "a good request"});
        let without = json!({"request": request}).to_string();
        let answer = acme.send(call, Method::POST, call.path(), without).await;
        answer.refused("401.auth-invalid", None, &format!("{call:?}"));
        texts.push(answer.body);
        let none = [Value::Null, json!({}), json!({"client_id": null})];
        let wrong = ["client_id", "secret"].map(|key| acme.with(key, GUESS.into()).auth);
        for auth in none.into_iter().chain(wrong) {
            let answer = acme.with_auth(auth).call(call, &request).await;
            answer.refused("401.auth-invalid", None, &format!("{call:?}"));
            texts.push(answer.body);
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "what is wrong is not said: {texts:?}");
    for call in Call::ALL {
        for key in FIELDS {
            for empty in ["", "  "] {
                let answer = acme.hurried().with(key, empty.into()).call(call, &good(call)).await;
                answer.refused(
                    "422.invalid-argument",
                    Some(&format!("/auth/{key}")),
                    &format!("{call:?}"),
                );
            }
            let answer = acme.hurried().with(key, 7.into()).call(call, &good(call)).await;
            answer.refused(
                "400.invalid-syntax",
                Some(&format!("/auth/{key}")),
                &format!("{call:?}"),
            );
        }
        for config in ["eA", "e_8=", "eA= =", "%"] {
            let answer = acme.hurried().with("config", config.into()).call(call, &good(call)).await;
            answer.refused(
                "422.invalid-argument",
                Some("/auth/config"),
                &format!("{call:?}: {config}"),
            );
        }
    }
}

/// Returns the keys of each request that must be there and not be empty.
fn required(call: Call) -> &'static [&'static str] {
    match call {
        Call::Verify | Call::Locations | Call::Models => &[],
        Call::Configure => &["location_id"],
        Call::Provision => &["hostname", "model_id", "location_id"],
        Call::Status => &["server_id", "location_id"],
        Call::Restart | Call::Decommission => &["server_id", "hostname", "model_id", "location_id"],
        Call::Allocate => &["kind", "server_id", "location_id"],
        Call::Release => &["kind", "ip_id", "ip_assignment_id", "cidr", "server_id", "location_id"],
    }
}

/// R7, R8
async fn missing(acme: &Platform) {
    for call in Call::WITH_REQUEST {
        let bare = json!({"auth": acme.auth}).to_string();
        let answer = acme.send(call, Method::POST, call.path(), bare).await;
        answer.refused("422.missing-argument", Some("/request"), &format!("{call:?}"));
        let answer = acme.call(call, &Value::Null).await;
        answer.refused("422.missing-argument", Some("/request"), &format!("{call:?}"));
        for key in required(call) {
            for value in [None, Some(Value::Null), Some("".into())] {
                let request = changed(good(call), &format!("/{key}"), value);
                let answer = acme.call(call, &request).await;
                answer.refused(
                    "422.missing-argument",
                    Some(&format!("/request/{key}")),
                    &format!("{call:?}"),
                );
            }
        }
    }
    for value in [None, Some(Value::Null)] {
        let answer = acme
            .call(Call::Configure, &changed(good(Call::Configure), "/version", value.clone()))
            .await;
        answer.refused("422.missing-argument", Some("/request/version"), "configure");
        let request = changed(good(Call::Provision), "/model_features", value);
        let answer = acme.call(Call::Provision, &request).await;
        answer.refused("422.missing-argument", Some("/request/model_features"), "provision");
    }
}

/// R9
async fn wrong_types(acme: &Platform) {
    for call in Call::WITH_REQUEST {
        for request in [json!("x"), json!([]), json!(1)] {
            let answer = acme.call(call, &request).await;
            answer.refused("400.invalid-syntax", Some("/request"), &format!("{call:?}"));
        }
        for (key, value) in good(call).as_object().unwrap() {
            // A string for an object, and a number for everything else.
            let is_text =
                value.is_string() || ["zone_id", "nat_private_ip"].contains(&key.as_str());
            let wrong = if is_text { json!(7) } else { json!("x") };
            let answer =
                acme.call(call, &changed(good(call), &format!("/{key}"), Some(wrong))).await;
            answer.refused(
                "400.invalid-syntax",
                Some(&format!("/request/{key}")),
                &format!("{call:?}"),
            );
        }
    }
    for (call, pointer, wrong) in [
        (Call::Configure, "/cycle/location_id", json!({})),
        (Call::Provision, "/cycle/server_id", json!(7)),
        (Call::Provision, "/model_features/raid", json!(true)),
        (Call::Provision, "/model_features/hypervisor", json!("yes")),
        (Call::Provision, "/provision_options/encrypt_storage", json!(1)),
        (Call::Status, "/cycle/model_id", json!([])),
        (Call::Allocate, "/cycle/pool_id", json!(7)),
    ] {
        let answer = acme.call(call, &changed(good(call), pointer, Some(wrong))).await;
        answer.refused("400.invalid-syntax", Some(&format!("/request{pointer}")), pointer);
    }
}

/// R10, R11, R12
async fn unusable(acme: &Platform) {
    let label = "a".repeat(64);
    let name = vec!["a".repeat(49); 6].join(".");
    let hostnames = ["a_b", "-a", "a-", "a..b", ".a", "a b", "ä", &label, &name];
    let hostnames = hostnames.map(|it| (Call::Provision, "/hostname", it));
    let kinds = ["IPv4", "IPV6", "v4", "inet", " ipv4"];
    let kinds = kinds.map(|it| [(Call::Allocate, "/kind", it), (Call::Release, "/kind", it)]);
    let cidrs = ["198.51.100.52", "x/32", "198.51.100.52/33", "198.51.100.300/32", "/"];
    let cidrs = cidrs.map(|it| (Call::Release, "/cidr", it));
    let addresses = ["x", "10.0.0.1/8", "10.0.0"].map(|it| (Call::Release, "/nat_private_ip", it));
    let rows =
        hostnames.into_iter().chain(kinds.into_iter().flatten()).chain(cidrs).chain(addresses);
    for (call, pointer, value) in rows {
        let answer = acme.call(call, &changed(good(call), pointer, Some(value.into()))).await;
        answer.refused("422.invalid-argument", Some(&format!("/request{pointer}")), value);
    }
}

/// R13
async fn unknown(acme: &Platform) {
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
async fn foreign(site: &IalSite, server: &str) {
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
async fn mismatched(acme: &Platform, server: &str) {
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
    for (key, wrong) in
        [("kind", "ipv6"), ("cidr", other), ("server_id", NOBODY), ("location_id", "dry")]
    {
        let answer = acme
            .call(Call::Release, &changed(release.clone(), &format!("/{key}"), Some(wrong.into())))
            .await;
        answer.refused("403.mismatch", Some(&format!("/request/{key}")), key);
    }
    assert_eq!(acme.call(Call::Release, &release).await.data(), true);
    for (key, wrong) in [("location_id", "dry"), ("model_id", "m9")] {
        let request = changed(good(Call::Provision), &format!("/{key}"), Some(wrong.into()));
        let answer = acme.call(Call::Provision, &request).await;
        answer.refused("403.mismatch", Some(&format!("/request/{key}")), key);
    }
}

/// R17
async fn configurations(acme: &Platform, server: &str) {
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
    for call in [Call::Provision, Call::Allocate] {
        for (key, value) in [("tenant", "other"), ("location", "dry")] {
            let request = changed(
                golden(call, 1, server, "kir1"),
                "/location_configuration",
                Some(of(key, value.into())),
            );
            let answer = acme.call(call, &request).await;
            let source = format!("/request/location_configuration/{key}");
            answer.refused("422.invalid-argument", Some(&source), &format!("{call:?}"));
        }
    }
    let stale = of("version", "an old one".into());
    for call in [Call::Provision, Call::Status] {
        let request = changed(
            golden(call, 1, server, "kir1"),
            "/location_configuration",
            Some(stale.clone()),
        );
        assert_eq!(acme.call(call, &request).await.data()["server_id"], server, "{call:?}");
    }
}

/// R18, and what else is not offered there. The platform's machines are new ones.
async fn not_offered(acme: &Platform) {
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
async fn building_or_failed(site: &IalSite) {
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
async fn in_use(site: &IalSite, server: &str) {
    let allocated =
        site.acme.call(Call::Allocate, &platform::allocate(1, server, "kir1")).await.data();
    site.attached(&allocated).await;
    let change = platform::change(1, server, "kir1");
    let answer = site.acme.call(Call::Decommission, &change).await;
    answer.refused("403.invalid-state", None, "addresses are left");
    assert_eq!(answer.value["error"]["extra"]["ips"], json!([allocated["ip_id"]]));
    let release = platform::release(1, server, "kir1", &allocated);
    assert_eq!(site.acme.call(Call::Release, &release).await.data(), true);
    assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
    let again = site.acme.call(Call::Provision, &good(Call::Provision)).await;
    again.refused("403.invalid-state", None, &platform_id(1));
}

/// R21: the limit of one credential, and that of wrong credentials from one address.
async fn limits(site: &IalSite) {
    let busy = site.busy.hurried();
    let calls = (0..100).map(|_| {
        let busy = busy.clone();
        tokio::spawn(async move { busy.call(Call::Verify, &Value::Null).await })
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
    assert!(answered >= 20 && refused > 0, "{answered} were answered, {refused} refused");
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
