//! The infrastructure abstraction layer. Requests have the credentials of a customer, and most name objects of the site.

use std::path::Path;

use serde_json::{Value, json};

use super::{LONG_SECONDS, Run, assert_conforms};
use crate::ial::leaks::VALUES;
use crate::ial::platform::{Call, allocate, provision};
use crate::ial::site::IalSite;

/// The duration of the run in CI.
const SHORT_SECONDS: u64 = 30;

/// Lets all operations answer 503, which says when to repeat a call: no machine is free, or a BMC does not answer. No other error of the
/// server is expected.
const OPERATIONS: &str = "[checks]\n\
    not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", 503]\n";

/// Replaces the schemas of values of a call's request by the `values` that the site has.
fn narrow(document: &mut Value, path: &str, values: &Value) {
    let values = values.as_object().unwrap();
    let schema = "/requestBody/content/application~1json/schema/properties/request/properties";
    for operation in document["paths"][path].as_object_mut().unwrap().values_mut() {
        let properties = operation.pointer_mut(schema).unwrap();
        for (name, values) in values {
            assert!(properties[name].is_object(), "{path}: {name}");
            properties[name] = json!({"enum": values});
        }
        // Those of a request without body.
        for parameter in
            operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let texts = values[parameter["name"].as_str().unwrap()].as_array().unwrap();
            let texts: Vec<_> = texts.iter().filter(|value| value.is_string()).collect();
            parameter["schema"] = json!({"enum": texts});
        }
    }
}

/// Returns values of the site for the requests of calls: a machine for most, and another one that may be given back.
async fn known_values(site: &IalSite) -> Vec<(&'static str, Value)> {
    let server = site.provisioned(&provision(1, "kir1")).await;
    site.boot(&server).await;
    let ended = site.provisioned(&provision(2, "kir1")).await;
    let address = site.acme.call(Call::Allocate, &allocate(1, &server, "kir1")).await.data();
    let (kir1, zones) = (["kir1"], json!([null, "kir1-a"]));
    let of_server = json!({"server_id": [server], "location_id": kir1, "zone_id": zones});
    let restart =
        json!({"server_id": [server], "location_id": kir1, "model_id": ["m2"], "zone_id": zones});
    let decommission =
        json!({"server_id": [ended], "location_id": kir1, "model_id": ["m2"], "zone_id": zones});
    let release = json!({"server_id": [server], "location_id": kir1, "zone_id": zones, "kind": ["ipv4"],
        "ip_id": [address["ip_id"]], "ip_assignment_id": [address["ip_assignment_id"]], "cidr": [address["cidr"]],
        "nat_private_ip": [null]});
    let locations = ["kir1", "dry", "unbound", "dark"];
    let order = json!({"model_id": ["m2", "m9"], "location_id": locations, "zone_id": zones});
    vec![
        ("/location/configure", json!({"location_id": locations})),
        ("/infrastructure/server/provision", order),
        ("/infrastructure/server/provision-status", of_server.clone()),
        ("/infrastructure/server/provision-check", of_server.clone()),
        ("/infrastructure/server/restart", restart),
        ("/infrastructure/server/decommission", decommission),
        ("/infrastructure/ip/allocate", of_server),
        ("/infrastructure/ip/release", release),
    ]
}

/// Returns the door's document, with what the site has in place of free values.
async fn document(site: &IalSite) -> Value {
    let mut document = site.acme.document("/v1/openapi.json").await;
    document["components"]["schemas"]["Auth"] = json!({"const": site.acme.auth});
    for (path, values) in known_values(site).await {
        narrow(&mut document, path, &values);
    }
    document
}

/// Asserts that each call was answered without error, too, by the record of all exchanges.
fn assert_each_call_succeeds(record: &Path) {
    let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let exchanges = record["log"]["entries"].as_array().unwrap();
    for call in Call::ALL {
        let is_done = |it: &Value| {
            let url = it["request"]["url"].as_str().unwrap();
            url.split('?').next().unwrap().ends_with(call.path()) && it["response"]["status"] == 200
        };
        assert!(exchanges.iter().any(is_done), "{call:?}");
    }
}

/// Runs schemathesis for `seconds`.
async fn run(seconds: u64, arguments: &[&str]) {
    let site = IalSite::start_without_rate_limits().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ial.json");
    std::fs::write(&file, document(&site).await.to_string()).unwrap();
    let run = Run {
        server: &site.server,
        // For requests without body.
        key: VALUES[7].to_owned(),
        header: ["Authorization", "Bearer "],
        operations: OPERATIONS.to_owned(),
        seconds,
    };
    let base = format!("https://{}/v1", site.server.gateway);
    let arguments = [&["--url", base.as_str()][..], arguments].concat();
    let output = run.against(file.to_str().unwrap(), &arguments).await;
    site.end().await;
    assert_conforms(&output);
}

#[tokio::test(flavor = "multi_thread")]
async fn ial_answers_as_its_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.har");
    let record_argument = ["--report", "har", "--report-har-path", record.to_str().unwrap()];
    let arguments = ["--phases", "coverage,fuzzing", "--max-examples", "60"];
    run(SHORT_SECONDS, &[&arguments[..], &record_argument].concat()).await;
    assert_each_call_succeeds(&record);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes"]
async fn ial_answers_as_its_document_says_for_ten_minutes() {
    run(LONG_SECONDS, &["--max-examples", "2000"]).await;
}
