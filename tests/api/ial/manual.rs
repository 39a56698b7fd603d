//! The commands of `docs/ial.md`, in their order, as a reader types them.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::Value;
use setup::pages::{Block, typed};
use tokio::process::Command;

use super::decode;
use super::platform::{self, Call, platform_id};
use super::site::IalSite;
use crate::support::until;

/// Returns the call of a command, by its URL.
fn call_of(command: &str) -> Call {
    let is_of = |call: &&Call| {
        command.contains(&format!("\"$URL{}\"", call.path().strip_prefix("/v1").unwrap()))
    };
    *Call::ALL.iter().find(is_of).unwrap_or_else(|| panic!("no call: {command}"))
}

async fn run(site: &IalSite, command: &str, variables: &BTreeMap<&str, String>) -> Output {
    let mut shell = Command::new("bash");
    shell.args(["-euc", command]).envs(variables);
    let own = [
        ("CURL_CA_BUNDLE", site.server.secrets().join("ca.pem")),
        ("CURL_HOME", site.server.dir.path().into()),
    ];
    shell.envs(own).output().await.unwrap()
}

#[tokio::test]
async fn the_commands_of_the_manual_are_answered_without_error() {
    let site = IalSite::start().await;
    let mut variables = BTreeMap::from([
        ("URL", format!("https://{}/v1", site.server.gateway)),
        ("AUTH", site.acme.auth.to_string()),
        ("LOCATION", "kir1".to_owned()),
        ("MODEL", "m2".to_owned()),
        ("PLATFORM_SERVER", platform_id(1)),
    ]);
    let mut calls = Vec::new();
    for command in typed("docs/ial.md", "Calls").iter().flat_map(Block::commands) {
        let call = call_of(&command);
        calls.push(call);
        let done = run(&site, &command, &variables).await;
        let failure = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command}: {failure}");
        let body = String::from_utf8(done.stdout).unwrap();
        decode::decode(call, 200, &body);
        let answer: Value = serde_json::from_str(&body).unwrap();
        let text = |key: &str| answer["data"][key].as_str().unwrap().to_owned();
        match call {
            Call::Verify => assert_eq!(answer["data"]["valid"], true),
            Call::Configure => assert_eq!(answer["data"]["configured"], true),
            Call::Provision => {
                let server = text("server_id");
                wait(&site, &server).await;
                variables.insert("SERVER", server);
            }
            Call::Allocate => {
                let names = [("IP", "ip_id"), ("ASSIGNMENT", "ip_assignment_id"), ("CIDR", "cidr")];
                variables.extend(names.map(|(name, key)| (name, text(key))));
            }
            Call::Locations
            | Call::Models
            | Call::Status
            | Call::Restart
            | Call::Decommission
            | Call::Release => {}
        }
    }
    let missing: Vec<_> = Call::ALL.iter().filter(|call| !calls.contains(call)).collect();
    assert_eq!(missing, [&Call::Verify; 0]);
    site.end().await;
}

/// Waits as the reader does, until the machine may boot, and lets it boot.
async fn wait(site: &IalSite, server: &str) {
    let status = platform::status(1, server, "kir1");
    let is_done =
        async || site.acme.call(Call::Status, &status).await.data()["provisioned"] == true;
    until(is_done, "the machine is provisioned").await;
    site.boot(server).await;
}
