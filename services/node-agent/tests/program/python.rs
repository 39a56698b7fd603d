//! The client in Python, which sends what a generated Go client sends.

use std::fs;
use std::process::Command;

use crate::agent::Agent;
use crate::host::{Host, on_host};

/// Runs the client, and returns what it printed.
fn client(arguments: &[&str]) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py");
    let output = Command::new("python3").arg(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn images(host: &Host) {
    for directory in ["image/proc", "image/dev", "image/sys", "files"] {
        fs::create_dir_all(host.path(directory)).unwrap();
    }
    // The stop is answered at once.
    host.script(
        "image",
        "bin/sleep",
        "#!/bin/sh\ntrap 'exit 0' 15\nbusybox sleep 1000 & wait $!\n",
    );
    host.squashfs("image", "files/image.sqsh");
    host.ext4("image", "files/image.ext4");
}

#[test]
fn its_requests_are_byte_for_byte_those_that_were_recorded() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../libs/imageapi/tests/data/client");
    assert_eq!(client(&["compare", recorded]), "14 requests are equal\n");
}

#[test]
fn it_does_the_schemes_of_the_contract_over_http() {
    on_host(|host| {
        images(host);
        let agent = Agent::with_flags(host, &["--scheme", "http"]);
        let address = format!("http://{}", agent.address("http"));
        client(&["journey", &address, &host.root.to_string_lossy()]);
    });
}

#[test]
fn it_does_the_schemes_of_the_contract_over_the_unix_socket() {
    on_host(|host| {
        images(host);
        let _agent = Agent::start(host);
        client(&[
            "journey",
            &format!("unix:{}", host.text("socket")),
            &host.root.to_string_lossy(),
        ]);
    });
}
