//! The REST mirror against its own OpenAPI document, by schemathesis: no error of the server, and no answer that the document does not have.

use std::path::Path;
use std::process::{Command, Output};

use runtime::Role;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;

use crate::support::{RunningServer, start};

/// The duration of the run in CI.
const SHORT_SECONDS: u64 = 40;
/// The duration of the run of the long tests.
const LONG_SECONDS: u64 = 600;
const SEED: u64 = 16;

/// Calls that would end the run: one replaces the authority that the client trusts, one deletes the client's own key, and two follow a log
/// that does not end.
const LEFT_OUT: [&str; 4] = ["RotateAuthority", "DeleteCredential", "ReadLog", "ReadBootLog"];
/// Calls that answer 503 if the BMC that they are given does not answer.
const OF_BMCS: [&str; 4] = ["CreateBmc", "EnrolBmc", "UpdateBmc", "ReadBmcInventory"];
/// Calls to a service of the edges, which this server does not run.
const OF_EDGES: [&str; 6] =
    ["ExplainBoot", "GetBoot", "ListBoots", "ExplainMetadata", "ListLeases", "DeleteLease"];
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// Returns an API key of an admin.
async fn api_key(server: &RunningServer) -> String {
    let mut admin = IdentityServiceClient::new(server.channel(Some(Role::Admin)).await);
    let credential = pb::Credential { role: pb::Role::Admin.into(), ..pb::Credential::default() };
    let request = pb::CreateCredentialRequest {
        credential: Some(credential),
        ..pb::CreateCredentialRequest::default()
    };
    admin.create_credential(request).await.unwrap().into_inner().api_key
}

/// Returns the configuration of schemathesis. It has no key: that is in the environment.
fn configuration(authority: &Path) -> String {
    let expected = |calls: &[&str], statuses: &str| {
        format!(
            "[[operations]]\ninclude-operation-id = {calls:?}\n\
             checks.not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", {statuses}]\n"
        )
    };
    let left_out =
        format!("[[operations]]\ninclude-operation-id = {LEFT_OUT:?}\nenabled = false\n");
    let head = format!(
        "tls-verify = {authority:?}\nrequest-timeout = 35\nmax-stream-events = 4\n\
         headers = {{ X-Api-Key = \"${{TINWRIGHT_API_KEY}}\" }}\n\
         [generation]\nwith-security-parameters = false\ndatabase = \"none\"\n"
    );
    [head, left_out, expected(&OF_BMCS, "503"), expected(&OF_EDGES, "501, 503")].concat()
}

/// Runs schemathesis for `seconds` against the document of a new server.
async fn run(seconds: u64, arguments: &[&str]) -> Output {
    let server = start().await;
    let key = api_key(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schemathesis.toml");
    std::fs::write(&file, configuration(&server.secrets().join("ca.pem"))).unwrap();
    let url = format!("https://{}/openapi.json", server.gateway);
    let mut command = Command::new(setup::tools().unwrap().join("schemathesis"));
    command.arg("--config-file").arg(&file).args(["run", &url, "--no-color", "--checks", CHECKS]);
    command.args(["--seed", &SEED.to_string(), "--max-time", &seconds.to_string()]);
    command.args(arguments).env("TINWRIGHT_API_KEY", key).current_dir(folder.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    server.end().await;
    output
}

fn assert_conforms(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("passed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "not seen to pass yet"]
async fn the_mirror_answers_as_its_document_says() {
    let arguments = ["--phases", "coverage,fuzzing", "--max-examples", "5", "--workers", "2"];
    assert_conforms(&run(SHORT_SECONDS, &arguments).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes"]
async fn the_mirror_answers_as_its_document_says_for_ten_minutes() {
    assert_conforms(&run(LONG_SECONDS, &["--workers", "2"]).await);
}
