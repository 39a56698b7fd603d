//! The REST mirror.

use serde_json::{Value, json};

use super::{LONG_SECONDS, Run, admin_key, assert_conforms};
use crate::access::calls::Client;
use crate::ial::site::IalSite;

/// The duration of the run in CI.
const SHORT_SECONDS: u64 = 20;

/// Calls that would end the run: one replaces the authority that the client trusts, one deletes the client's own key, and two follow a log
/// that does not end.
const LEFT_OUT: [&str; 4] = ["RotateAuthority", "DeleteCredential", "ReadLog", "ReadBootLog"];
/// Calls that answer 503 if the BMC that they are given does not answer.
const OF_BMCS: [&str; 4] = ["CreateBmc", "EnrolBmc", "UpdateBmc", "ReadBmcInventory"];
/// Calls to a service of the edges, which this server does not run.
const OF_EDGES: [&str; 7] = [
    "ExplainBoot",
    "GetBoot",
    "ListBoots",
    "ExplainMetadata",
    "ListLeases",
    "GetLease",
    "DeleteLease",
];
/// Collections with objects of the site, and the calls that list them.
const COLLECTIONS: [(&str, &str); 8] = [
    ("hardware", "HardwareService/ListHardware"),
    ("location-bindings", "LocationBindingService/ListLocationBindings"),
    ("locations", "LocationService/ListLocations"),
    ("models", "ModelService/ListModels"),
    ("grants", "GrantService/ListGrants"),
    ("ranges", "SubnetService/ListRanges"),
    ("subnets", "SubnetService/ListSubnets"),
    ("tenants", "TenantService/ListTenants"),
];

/// Returns the ids of the objects that a call lists.
async fn ids(admin: &Client, call: &str) -> Vec<String> {
    let listed = admin.call(call, json!({})).await.unwrap();
    let objects = listed.as_object().unwrap().values().find_map(Value::as_array);
    let objects = objects.unwrap_or_else(|| panic!("{call}: {listed}"));
    objects.iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect()
}

/// Lets most requests for an object name one of the site. Deletions name others, so that the objects stay.
async fn known_objects(admin: &Client) -> String {
    let (mut dictionaries, mut operations) = ("[dictionaries]\n".to_owned(), String::new());
    for (collection, call) in COLLECTIONS {
        let values = ids(admin, call).await;
        dictionaries += &format!("{collection} = {{ values = {values:?} }}\n");
        operations += &format!(
            "[[operations]]\ninclude-path-regex = '^/api/v1/{collection}/\\{{id\\}}'\n\
             exclude-method = \"DELETE\"\n\
             parameters = {{ \"path.id\" = {{ dictionary = \"{collection}\", probability = 0.7 }} }}\n"
        );
    }
    dictionaries + &operations
}

/// Returns the configuration of operations.
async fn operations(admin: &Client) -> String {
    let expected = |calls: &[&str], statuses: &str| {
        format!(
            "[[operations]]\ninclude-operation-id = {calls:?}\n\
             checks.not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", {statuses}]\n"
        )
    };
    let left_out =
        format!("[[operations]]\ninclude-operation-id = {LEFT_OUT:?}\nenabled = false\n");
    let known = known_objects(admin).await;
    [known, left_out, expected(&OF_BMCS, "503"), expected(&OF_EDGES, "501, 503")].concat()
}

/// Runs schemathesis for `seconds`.
async fn run(seconds: u64, arguments: &[&str]) {
    let site = IalSite::start_without_rate_limits().await;
    let run = Run {
        server: &site.server,
        key: admin_key(&site.server).await,
        header: ["X-Api-Key", ""],
        operations: operations(&site.admin).await,
        seconds,
    };
    let document = format!("https://{}/openapi.json", site.server.gateway);
    let output = run.against(&document, arguments).await;
    site.server.end().await;
    assert_conforms(&output);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_answers_as_its_document_says() {
    run(SHORT_SECONDS, &["--phases", "coverage,fuzzing", "--max-examples", "5"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes"]
async fn the_mirror_answers_as_its_document_says_for_ten_minutes() {
    run(LONG_SECONDS, &[]).await;
}
