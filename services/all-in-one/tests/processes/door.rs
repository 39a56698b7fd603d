//! A process with the gateway only: it has no key of the site, and calls the others as its clients.

use std::net::SocketAddr;
use std::process::{Command, Output};

use super::process::{Place, Process, arguments, free_address, soon};

const CONTROL: &str = "address,hardware,identity,instance,power,workflow";

/// Runs the client with `words` as an admin of the site at `control`, which has to succeed. Returns its output.
pub(super) fn client_output(control: &Process, words: &[&str]) -> String {
    let (server, secrets) = (format!("https://{}", control.place.grpc), control.place.secrets());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(words).args(["--server", &server]).arg("--secrets").arg(secrets);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The site's processes.
struct Site {
    control: Process,
    door: Process,
    gateway: SocketAddr,
    /// The serial number of the door's certificate.
    serial: String,
}

impl Site {
    async fn new() -> Self {
        let control = Place::new().start(&arguments(&["--only", CONTROL])).await;
        let (place, gateway) = (Place::new(), free_address());
        let (address, secrets) = (gateway.ip().to_string(), place.secrets());
        let words = ["identity", "issue", "--role", "door", "--subject", "service:gateway"];
        let words = [&words[..], &["--server-name", &address, "--out", secrets.to_str().unwrap()]];
        let table = client_output(&control, &words.concat());
        let serial = table.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        let peers = format!("https://{}", control.place.grpc);
        let listen = gateway.to_string();
        let flags = ["--only", "gateway", "--peers", &peers, "--gateway-listen", &listen];
        let door = place.start(&arguments(&flags)).await;
        Self { control, door, gateway, serial }
    }

    /// Requests `path` of the gateway with further arguments of curl. Returns body and status.
    fn request(&self, path: &str, further: &[&str]) -> (String, String) {
        let secrets = self.control.place.secrets();
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--write-out", "\n%{http_code}", "--cacert"]);
        command.arg(secrets.join("ca.pem")).args(further);
        let Output { stdout, stderr, .. } =
            command.arg(format!("https://{}{path}", self.gateway)).output().unwrap();
        let text = String::from_utf8(stdout).unwrap() + &String::from_utf8_lossy(&stderr);
        let (body, status) = text.rsplit_once('\n').unwrap_or((&text, ""));
        (body.to_owned(), status.to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_needs_no_key_of_the_site_and_makes_no_call_once_it_is_revoked() {
    let site = Site::new().await;
    client_output(&site.control, &["tenant", "create", "acme"]);
    let secrets = site.control.place.secrets();
    let (certificate, key) = (secrets.join("admin.pem"), secrets.join("admin-key.pem"));
    let admin = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let (body, status) = site.request("/api/v1/tenants", &admin);
    assert!(status == "200" && body.contains("\"acme\""), "{status} {body}");
    assert_eq!(site.request("/api/v1/tenants", &[]).1, "401");
    assert_eq!(site.request("/openapi.json", &[]).1, "200");
    let absent = site.request("/api/v1/boots", &admin);
    assert_eq!(absent.1, "501", "no process serves netboot: {}", absent.0);
    let issued =
        client_output(&site.control, &["identity", "credential", "create", "--role", "viewer"]);
    let key = issued.trim().rsplit_once("shown only once: ").unwrap().1.to_owned();
    let header = format!("X-Api-Key: {key}");
    let (body, status) = site.request("/api/v1/tenants", &["--header", &header]);
    assert_eq!(status, "200", "{issued}: {body}");
    let mut files: Vec<_> = std::fs::read_dir(site.door.place.secrets())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["ca.pem", "door-key.pem", "door.pem"]);
    assert!(!site.door.place.path("data/store").exists());
    assert!(!site.door.log().contains(&key), "{}", site.door.log());
    client_output(&site.control, &["identity", "revoke", &site.serial]);
    let refused = async {
        while site.request("/api/v1/tenants", &admin).1 == "200" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    soon(refused).await;
}

#[tokio::test]
async fn the_secrets_of_a_door_are_for_the_gateway_only() {
    let control = Place::new().start(&arguments(&["--only", CONTROL])).await;
    let place = Place::new();
    let secrets = place.secrets();
    let words = ["identity", "issue", "--role", "door", "--out", secrets.to_str().unwrap()];
    client_output(&control, &words);
    let peers = format!("https://{}", control.place.grpc);
    let flags = ["--only", "gateway,power", "--store", "memory", "--peers", &peers];
    let refused = place.refused(&arguments(&flags)).await;
    assert!(refused.contains("has the secrets of a door, which serves gateway only"), "{refused}");
}
