//! Requests that are wrong whatever there is.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{GUESS, changed, good};
use crate::ial::decode;
use crate::ial::platform::{Call, Platform};
use crate::ial::site::IalSite;

const MAX_BODY_BYTES: usize = 1 << 20;
const FIELDS: [&str; 7] =
    ["client_id", "subscription_id", "namespace", "region", "api_key", "secret", "config"];

/// R1, R2, R23
pub async fn unreadable(acme: &Platform) {
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
pub async fn too_large(site: &IalSite) {
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
        decode::decode(Call::Verify, 422, &body);
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
pub async fn paths(acme: &Platform) {
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
pub async fn credentials(acme: &Platform) {
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
pub async fn missing(acme: &Platform) {
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
pub async fn wrong_types(acme: &Platform) {
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
pub async fn unusable(acme: &Platform) {
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
