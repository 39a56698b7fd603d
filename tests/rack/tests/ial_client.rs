//! The platform's client decodes as strictly as the types of the platform say: what it accepts is an answer that the platform understands.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write as _;
use std::process::{Command, Stdio};

const STATUS: &str = r#"{"data":{"server_id":"s-1","provisioned":true,"auth":{"uuid":"4c4c4544-0051-3610-8052-b4c04f4d3532",
    "initial_ips":["198.51.100.37"],"mac_addr":"b4:96:91:0a:7e:21"},"extra":null},"error":null}"#;
const MODELS: &str = r#"{"data":{"models":[{"name":"M2","drivers":null,"description":"","specs":{
    "cpu":{"count":1,"cores":16,"threads":2,"type":"EPYC","shared":false},"gpu":null,"memory":{"size_gb":128,"type":"ddr5"},
    "storage":[{"count":2,"size_gb":960,"type":"nvme"}],"network":[{"scope":"public","type":"ethernet","throughput":"10Gbps"}],
    "features":{"raid":null,"hypervisor":true}},"provider":{"category":"bare-metal","model_id":"m2","locations":["kir1"],
    "availability_zones":{"kir1":["a"]}},"pricing":{"hourly":410,"monthly":0},"compatible":true}],"extra":{}},"error":null}"#;
const REFUSED: &str = r#"{"data":null,"error":{"status":403,"code":"403.invalid-state","title":"gone","source":"/request/server_id"}}"#;

/// True if the client accepts `body` as the answer of `call` with this HTTP status, false if it says what is wrong.
fn accepts(call: &str, status: u16, body: &str) -> bool {
    let mut client = Command::new("python3");
    client.arg(setup::root().join("tests/rack/ial_client.py"));
    client.args(["--decode", call, "--status", &status.to_string()]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let done = client.wait_with_output().unwrap();
    let line: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(line["error"].is_string(), !done.status.success(), "{line}");
    done.status.success()
}

#[test]
fn the_client_accepts_what_the_types_of_the_platform_allow() {
    for (call, status, body) in
        [("status", 200, STATUS), ("models", 200, MODELS), ("status", 403, REFUSED)]
    {
        assert!(accepts(call, status, body), "{body}");
    }
    let class = r#""category":"bare-metal","class":"m2""#;
    assert!(accepts("models", 200, &MODELS.replace(r#""category":"bare-metal""#, class)));
    assert!(accepts("restart", 200, r#"{"data":true,"error":null}"#));
}

#[test]
fn the_client_refuses_everything_else() {
    for (call, status, body, part, instead) in [
        ("status", 200, STATUS, r#""extra":null"#, r#""extra":null,"more":1"#),
        ("status", 200, STATUS, r#","extra":null"#, ""),
        ("status", 200, STATUS, r#"["198.51.100.37"]"#, "null"),
        ("status", 200, STATUS, "198.51.100.37", "198.51.100.37/32"),
        ("status", 200, STATUS, "4c4c4544", "4C4C4544"),
        ("status", 200, STATUS, r#""error":null"#, r#""error":null,"meta":{}"#),
        ("status", 200, STATUS, r#","error":null"#, ""),
        ("status", 200, STATUS, r#""provisioned":true"#, r#""provisioned":1"#),
        ("models", 200, MODELS, "960", "960.0"),
        ("models", 200, MODELS, "960", "-960"),
        ("models", 200, MODELS, "960", "96e1"),
        ("models", 200, MODELS, "410", "true"),
        ("models", 200, MODELS, "410", "18446744073709551616"),
        ("models", 200, MODELS, r#""description":"""#, r#""description":null"#),
        ("models", 200, MODELS, r#""scope":"public""#, r#""scope":"global""#),
        ("status", 403, REFUSED, r#""data":null"#, r#""data":{}"#),
        ("status", 403, REFUSED, "403.invalid-state", "404.uri"),
        ("status", 403, REFUSED, "/request/server_id", "server_id"),
        ("status", 404, REFUSED, "gone", "other status"),
        ("restart", 200, r#"{"data":true,"error":null}"#, "true", "false"),
    ] {
        let changed = body.replacen(part, instead, 1);
        assert_ne!(changed, body, "{part}");
        assert!(!accepts(call, status, &changed), "{changed}");
    }
}
