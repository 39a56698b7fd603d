//! The doors against their own OpenAPI documents, by schemathesis: no error of the server, and no answer that a document does not have.
//!
//! - `mirror`: the REST mirror. `ial`: the infrastructure abstraction layer.
//!
//! Both run against the site of the tests of the latter, which has objects of most kinds, without rate limits.

mod ial;
mod mirror;

use std::process::{Command, Output};

use runtime::Role;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;

use crate::support::RunningServer;

/// The duration of a run of the long tests.
const LONG_SECONDS: u64 = 600;
const SEED: u64 = 16;
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// A run of schemathesis.
struct Run<'a> {
    server: &'a RunningServer,
    /// The API key that the requests have.
    key: String,
    /// The name and the form of the header with the key.
    header: [&'a str; 2],
    /// The configuration of operations.
    operations: String,
    seconds: u64,
}

impl Run<'_> {
    /// Runs schemathesis with the document at an address, or in a file.
    async fn against(self, document: &str, arguments: &[&str]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("schemathesis.toml");
        std::fs::write(&file, self.configuration()).unwrap();
        let mut command = Command::new(setup::tools().unwrap().join("schemathesis"));
        command.arg("--config-file").arg(&file).args(["run", document, "--no-color"]);
        // One worker: with more, the parser of Python 3.11 fails now and then (CPython issue 106905).
        command.args(["--checks", CHECKS, "--seed", &SEED.to_string(), "--workers", "1"]);
        command.args(["--max-time", &self.seconds.to_string()]).args(arguments);
        command.env("TINWRIGHT_API_KEY", self.key).current_dir(folder.path());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Returns the configuration. It has no key: that is in the environment.
    fn configuration(&self) -> String {
        let authority = self.server.secrets().join("ca.pem");
        let [name, form] = self.header;
        format!(
            "tls-verify = {authority:?}\nrequest-timeout = 35\nmax-stream-events = 4\n\
             headers = {{ {name} = \"{form}${{TINWRIGHT_API_KEY}}\" }}\n\
             [generation]\nwith-security-parameters = false\ndatabase = \"none\"\n{}",
            self.operations
        )
    }
}

/// Returns an API key of an admin.
async fn admin_key(server: &RunningServer) -> String {
    let mut admin = IdentityServiceClient::new(server.channel(Some(Role::Admin)).await);
    let credential = pb::Credential { role: pb::Role::Admin.into(), ..pb::Credential::default() };
    let request = pb::CreateCredentialRequest {
        credential: Some(credential),
        ..pb::CreateCredentialRequest::default()
    };
    admin.create_credential(request).await.unwrap().into_inner().api_key
}

fn assert_conforms(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("passed"), "{text}");
    // Its warnings that all requests for an operation were refused, which would test nothing.
    for refused in ["Authentication failed", "Rate limited"] {
        assert!(!text.contains(refused), "{text}");
    }
}
