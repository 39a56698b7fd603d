//! Requests of all sorts: each is answered, with JSON (contract, section 2 and defect D6).

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bodies::bind;
use crate::host::on_host;

fn recorded() -> Vec<(String, Vec<u8>)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../libs/imageapi/tests/data/client");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &std::path::Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

#[test]
fn recorded_requests_of_the_generated_client_are_answered() {
    on_host(|host| {
        let agent = Agent::start(host);
        let requests = recorded();
        assert_eq!(requests.len(), 14);
        for (name, bytes) in requests {
            let answer = agent.client.exchange(&bytes);
            let expected: &[u16] = match name.as_str() {
                "list-attachments" | "list-mounts-by-kind" => &[200],
                "list-containers-all-keys" | "delete-attach" | "delete-container-forced" => &[404],
                "delete-mount-with-defaults" | "set-container-state" => &[404],
                // No object 41.
                "mount-by-reference" => &[404],
                "attach-without-body" | "mount-without-values" | "create-container-empty" => &[422],
                // The first lower directory of the container is not on this host; a session with 0 commands is refused.
                "create-container" | "attach-iscsi" => &[400, 500],
                "attach-local" => &[500],
                other => panic!("{other}"),
            };
            assert!(expected.contains(&answer.status), "{name}: {}", answer.json());
            assert!(answer.json().is_array() || answer.json()["message"].is_string(), "{name}");
        }
    });
}

#[test]
fn errors_of_the_http_layer_are_json() {
    on_host(|host| {
        let agent = Agent::start(host);
        let send = |text: &str| agent.client.exchange(text.as_bytes());
        let plain = |method: &str, path: &str| {
            send(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
        };
        for (method, path, status) in [
            ("GET", "/imageapi/v1/nothing", 404),
            ("GET", "/", 404),
            ("GET", "/imageapi/v1", 404),
            ("PUT", "/imageapi/v1/mount", 405),
            ("OPTIONS", "/imageapi/v1/container", 405),
            ("GET", "/imageapi/v1/mount/", 200),
            ("GET", "/swagger.json", 200),
            ("GET", "/imageapi/v1/mount?id=a", 422),
            ("DELETE", "/imageapi/v1/mount", 422),
        ] {
            let answer = plain(method, path);
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.json());
        }
        assert!(plain("PUT", "/imageapi/v1/mount").head.contains("allow: GET,DELETE,POST"));
        let post = |kind: &str, body: &str| {
            send(&format!(
                "POST /imageapi/v1/mount HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
        };
        assert_eq!(post("text/plain", "{}").status, 415);
        assert_eq!(post("application/json", "{").status, 400);
        assert_eq!(post("application/json; charset=utf-8", "{}").status, 501);
        let excluded = "GET /imageapi/v1/mount HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n";
        assert_eq!(send(excluded).status, 406);
        assert_eq!(plain("HEAD", "/imageapi/v1/mount").status, 405);
    });
}

#[test]
fn d34_bodies_above_the_limit_are_refused_and_not_cut() {
    on_host(|host| {
        let agent = Agent::with_flags(host, &["--scheme", "unix", "--scheme", "http"]);
        let tcp = crate::client::Client::Tcp(agent.address("http"));
        for client in [&agent.client, &tcp] {
            for (filler, status) in
                [((1 << 20) - 100, 501), (1 << 20, 400), (5 << 20, 400), (80 << 20, 400)]
            {
                let body = json!({"unknown": "a".repeat(filler)});
                let answer = client.call("POST", "/mount", Some(&body));
                assert_eq!(answer.status, status, "{filler}: {}", answer.json());
            }
        }
        let mut deep = bind("/");
        for _ in 0..40 {
            deep = json!({"kind": "overlay", "overlay": {"lower": [deep]}});
        }
        assert_eq!(agent.client.refused("/mount", &deep).0, 400);
        let wide: Vec<Value> = (0..65).map(|_| bind("/")).collect();
        let wide = json!({"kind": "overlay", "overlay": {"lower": wide}});
        assert_eq!(agent.client.refused("/mount", &wide).0, 400);
    });
}

#[test]
fn d6_definitions_with_holes_are_answered() {
    on_host(|host| {
        let agent = Agent::start(host);
        let rbd =
            json!({"kind": "rbd", "rbd": {"monitors": ["10.0.0.1"], "pool": "p", "image": "i"}});
        assert_eq!(agent.client.refused("/attach", &rbd).0, 400);
        let null = json!({"kind": "overlay", "overlay": {"lower": [null]}});
        assert_eq!(agent.client.refused("/mount", &null).0, 400);
        let with_id = json!({"id": 7, "command": "/init", "mount": bind("/")});
        assert_eq!(agent.client.refused("/container", &with_id).0, 400);
        // Every definition with one property replaced by null, a wrong type, or nothing.
        let whole =
            crate::bodies::running("n", "/init", crate::bodies::squashfs_stack("/missing", "/a"));
        for broken in broken(&whole) {
            let (status, message) = agent.client.refused("/container", &broken);
            assert!((400..=501).contains(&status) && !message.is_empty(), "{broken}: {status}");
        }
        agent.client.until_empty();
    });
}

/// Returns `value` with each of its parts replaced in turn.
fn broken(value: &Value) -> Vec<Value> {
    let mut all = vec![Value::Null, json!(7), json!("text"), json!([]), json!({}), json!([null])];
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                all.extend(broken(field).into_iter().map(|part| {
                    let mut whole = fields.clone();
                    whole.insert(name.clone(), part);
                    Value::Object(whole)
                }));
                let mut without = fields.clone();
                without.remove(name);
                all.push(Value::Object(without));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                all.extend(broken(item).into_iter().map(|part| {
                    let mut whole = items.clone();
                    whole[at] = part;
                    Value::Array(whole)
                }));
            }
        }
        _ => {}
    }
    all
}
