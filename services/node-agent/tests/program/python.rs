//! The client in Python, which sends what a generated Go client sends.

use std::process::Command;

use crate::agent::Agent;
use crate::host::on_host;

/// Some stops come before the container's program has set its signal handler, and the kernel discards them.
const STOP_GRACE: &str = "1s";

/// Runs the client, and returns what it printed.
fn client(arguments: &[&str]) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py");
    let output = Command::new("python3").arg(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn its_requests_are_byte_for_byte_those_that_were_recorded() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../libs/imageapi/tests/data/client");
    assert_eq!(client(&["compare", recorded]), "14 requests are equal\n");
}

#[test]
fn it_does_the_schemes_of_the_contract_over_http() {
    on_host(|host| {
        host.client_images();
        let agent = Agent::with_flags(host, &["--scheme", "http", "--stop-grace", STOP_GRACE]);
        let address = format!("http://{}", agent.address("http"));
        client(&["journey", &address, &host.root.to_string_lossy()]);
    });
}

#[test]
fn it_does_the_schemes_of_the_contract_over_the_unix_socket() {
    on_host(|host| {
        host.client_images();
        let flags = ["--scheme", "unix", "--stop-grace", STOP_GRACE];
        let _agent = Agent::with_flags(host, &flags);
        client(&[
            "journey",
            &format!("unix:{}", host.text("socket")),
            &host.root.to_string_lossy(),
        ]);
    });
}
