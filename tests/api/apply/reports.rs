//! What commands report of changes, of what they did not find, and of what they refuse to send.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Ended, Operator, tinwright};

const SITE: &str = "\
kind: Hardware
name: node-1
state: provisionable
interfaces: [{mac: 02-00-00-00-00-01}]
---
kind: Subnet
name: lan
cidr: 198.51.100.0/24
---
kind: Range
name: pool
subnet: lan
first: 198.51.100.10
last: 198.51.100.20
range_kind: static
---
version: '0.1'
name: stop
tasks:
- name: os
  worker: '{{.device_1}}'
  actions:
  - {name: off, image: poweroff}
";

/// Starts a server with the objects of [`SITE`].
async fn site() -> Operator {
    let operator = Operator::start().await;
    let path = operator.file("site.yaml", SITE);
    operator.ok(&format!("apply -f {path}")).await;
    operator
}

#[tokio::test]
async fn an_object_that_gets_another_name_and_a_dry_run_are_reported_as_they_are() {
    let operator = site().await;
    let path = operator.file("site.yaml", SITE);
    let printed = operator.ok(&format!("apply --dry-run -f {path}")).await;
    assert_eq!(printed.matches(" unchanged (dry run)\n").count(), 4, "{printed}");
    let copied =
        "kind: Hardware\nname: x\nstate: provisionable\ninterfaces: [{mac: 02-00-00-00-00-01}]\n";
    let path = operator.file("x.yaml", copied);
    let refused = operator.run(&format!("apply -f {path}")).await.1.unwrap_err();
    let (_, id) = refused[0]
        .split_once("is the MAC of node-1, not of x: to rename it, add to the file: ")
        .unwrap();
    let path = operator.file("x.yaml", &format!("{copied}{id}\n"));
    let printed = operator.ok(&format!("apply -f {path}")).await;
    assert_eq!(printed, "hardware/x changed (its name was node-1)\n");
    for (state, command) in
        [("maintenance", "set-state x maintenance"), ("enrolled", "set-state x enrolled")]
    {
        let path = operator.file("state.yaml", &format!("kind: Hardware\nname: x\nstate: {state}\ninterfaces: [{{mac: 02-00-00-00-00-01}}]\n"));
        let printed = operator.ok(&format!("apply -f {path}")).await;
        let wanted = format!(
            "hardware/x unchanged\nhardware/x: its state stays provisionable; to change it: tinwright hardware {command}\n"
        );
        assert_eq!(printed, wanted);
    }
    let new = "kind: Hardware\nname: node-9\ninterfaces: [{mac: 02-00-00-00-00-09}]\n---\nkind: Bmc\nhardware: node-9\nusername: a\npassword: b\nredfish: {url: https://192.0.2.1}\n";
    let path = operator.file("new.yaml", new);
    let printed = operator.ok(&format!("apply --dry-run -f {path}")).await;
    assert_eq!(printed, "hardware/node-9 created (dry run)\nbmc/node-9 created (dry run)\n");
    operator.end().await;
}

#[tokio::test]
async fn what_was_not_found_is_named_with_the_command_that_lists_what_is_there() {
    let operator = site().await;
    for (line, empty) in [
        ("hardware list -l rack=z", "no hardware matches\n"),
        ("instance list --state active", "no instance matches\n"),
        ("instance list", "no instance: create one with "),
    ] {
        let printed = operator.ok(line).await;
        assert!(printed.starts_with(empty), "{line}: {printed}");
    }
    for (line, hint) in [
        ("hardware list --location nowhere", "(see `tinwright location list`)"),
        ("workflow get 01a218f6-21cd-7000-8000-000000000001", "(see `tinwright workflow list`)"),
    ] {
        let errors = operator.run(line).await.1.unwrap_err();
        assert!(errors[0].ends_with(hint), "{line}: {errors:#?}");
    }
    operator.end().await;
}

#[tokio::test]
async fn a_context_on_the_command_line_precedes_variables() {
    let operator = site().await;
    let home = tempfile::tempdir().unwrap();
    let run = async |line: &str| {
        let mut command = tinwright(line.split(' '));
        command.env("XDG_CONFIG_HOME", home.path());
        command
            .env("TINWRIGHT_SERVER", "https://127.0.0.1:1")
            .env("TINWRIGHT_DATA", "/nonexistent");
        Ended::of(command).await
    };
    let (url, secrets) = (operator.server.grpc, operator.server.secrets());
    let add = format!("context add lab --server https://{url} --secrets {}", secrets.display());
    assert_eq!(run(&add).await.code, 0);
    let named = run("hardware list -q --context lab").await;
    assert_eq!((named.code, named.printed.lines().count()), (0, 1), "{:#?}", named.errors);
    assert_eq!(run("--context lab hardware list -q").await.code, 0, "before the command");
    assert_eq!(run("hardware list -q").await.code, 1, "the variables count without a context");
    let both = run("hardware list -q --context lab --data /nonexistent").await;
    assert_eq!(both.code, 2, "both name a certificate");
    assert!(both.errors[0].contains("give --context or --data, not both"), "{:#?}", both.errors);
    let used = run("context use lab").await.printed;
    assert!(used.contains("TINWRIGHT_SERVER is set and precedes it"), "{used}");
    let wrong = run("subnet create").await;
    let usage = wrong.errors.iter().find(|line| line.starts_with("Usage: ")).unwrap();
    assert!(!usage.contains("--server") && !usage.contains("--data"), "{usage}");
    let mut command = tinwright(["hardware", "list", "-q"]);
    command.env("XDG_CONFIG_HOME", home.path()).env("TINWRIGHT_CONTEXT", "lab");
    command.env("TINWRIGHT_DATA", "/nonexistent");
    let ended = Ended::of(command).await;
    assert_eq!(ended.code, 0, "the context in a variable: {:#?}", ended.errors);
    operator.end().await;
}

#[tokio::test]
async fn an_empty_variable_is_as_one_that_is_not_set() {
    let operator = site().await;
    let mut command = tinwright(["hardware", "list", "-q"]);
    command
        .env("TINWRIGHT_SERVER", format!("https://{}", operator.server.grpc))
        .env("TINWRIGHT_SECRETS", operator.server.secrets())
        .env("TINWRIGHT_CONTEXT", "")
        .env("TINWRIGHT_DATA", "");
    let ended = Ended::of(command).await;
    assert_eq!((ended.code, ended.printed.lines().count()), (0, 1), "{:#?}", ended.errors);
    operator.end().await;
}

#[tokio::test]
async fn what_lists_print_as_references_is_what_commands_take() {
    let operator = site().await;
    operator.ok("location create lab").await;
    operator.ok("address binding create location/lab --subnet subnet/lan").await;
    for (list, get) in [
        ("hardware list -o name", "hardware get"),
        ("subnet list -o name", "subnet get"),
        ("range list -o name", "range get"),
        ("template list -o name", "template get"),
        ("address binding list -o name", "address binding get"),
    ] {
        let reference = operator.ok(list).await.trim().to_owned();
        assert_eq!(operator.ok(&format!("{get} {reference} -o name")).await.trim(), reference);
    }
    let by_location = operator.ok("address binding get lab -o jsonpath={.subnet_ids[*]}").await;
    assert_eq!(by_location, operator.ok("subnet list -q").await);
    // Its host name is the name of another machine, which has an instance, too.
    let machine = "kind: Hardware\nname: node-2\nstate: provisionable\ninterfaces: [{mac: 02-00-00-00-00-02}]\n";
    operator.ok(&format!("apply -f {}", operator.file("machine.yaml", machine))).await;
    for (machine, hostname) in [("node-1", "node-2"), ("node-2", "")] {
        let order = format!(
            "kind: Instance\nhardware: {machine}\nhostname: '{hostname}'\nreserve_only: true\n"
        );
        operator.ok(&format!("instance create -f {}", operator.file("order.yaml", &order))).await;
    }
    let id = operator.ok("instance get hardware/node-1 -o jsonpath={.id}").await;
    let reference = operator.ok("instance get node-1 -o name").await;
    assert_eq!(
        operator.ok(&format!("instance get {} -o jsonpath={{.id}}", reference.trim())).await,
        id
    );
    operator.ok(&format!("instance delete {} --yes --wait", reference.trim())).await;
    let left = operator.ok("instance list -o jsonpath={.items[*].hostname}").await;
    assert_eq!(left.trim(), "", "the instance whose host name was node-2 is gone");
    let gone = operator.ok(&format!("instance wait {} --for gone", reference.trim())).await;
    assert_eq!(gone, format!("instance {} is gone\n", id.trim()));
    operator.end().await;
}

#[tokio::test]
async fn followed_events_have_the_columns_of_the_list() {
    let operator = site().await;
    let listed = operator.ok("events -o wide").await;
    let url = format!("https://{}", operator.server.grpc);
    let secrets = operator.server.secrets().display().to_string();
    let line = ["events", "-f", "-o", "wide", "--server", &url, "--secrets", &secrets];
    let mut follow = tinwright(line).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for wanted in listed.lines() {
        let next = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
        assert_eq!(words(&next.unwrap().unwrap().unwrap()), words(wanted));
    }
    operator.end().await;
}

#[tokio::test]
async fn a_grant_is_printed_as_it_is_confirmed_and_is_not_taken_for_a_machine() {
    let operator = site().await;
    let printed = operator.ok("address grant --subnet lan").await;
    assert!(printed.contains(" active ") && !printed.contains("pending"), "{printed}");
    let grants = operator.ok("address list -o yaml").await;
    let path = operator.file("grants.yaml", &grants);
    let errors = operator.run(&format!("apply --dry-run -f {path}")).await.1.unwrap_err();
    assert!(errors[0].contains("kind \"Grant\" is none of "), "{errors:#?}");
    operator.end().await;
}

#[tokio::test]
async fn a_private_key_is_neither_sent_nor_repeated() {
    let operator = site().await;
    let secret = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ";
    let key = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}\n-----END-----\n");
    let path = operator.file("id", &key);
    let line = format!("instance create --hardware node-1 --template stop --ssh-key {path}");
    let errors = operator.run(&line).await.1.unwrap_err();
    let expected = format!("{path}: a private key: give the public key, whose file ends with .pub");
    assert_eq!(errors, [expected]);
    let order = format!(
        "kind: Instance\nhardware: node-1\ntemplate: stop\npower_management: none\nssh_keys: [{secret}]\n"
    );
    let path = operator.file("order.yaml", &order);
    let errors = operator.run(&format!("apply -f {path}")).await.1.unwrap_err();
    assert!(errors[0].contains("ssh_keys[0]: does not begin with a key type"), "{errors:#?}");
    assert!(!errors.join(" ").contains(&secret[..8]), "{errors:#?}");
    operator.end().await;
}

#[tokio::test]
async fn instances_of_a_file_are_waited_for_and_a_wait_has_a_limit() {
    let operator = site().await;
    let order = "kind: Instance\nhardware: node-1\ntemplate: stop\npower_management: none\n";
    let path = operator.file("order.yaml", order);
    operator.ok(&format!("instance create -f {path}")).await;
    let errors = operator.run("instance wait node-1 --timeout 1s").await.1.unwrap_err();
    assert!(errors[0].starts_with("instance node-1 is provisioning after 1 s"), "{errors:#?}");
    let machine = "kind: Hardware\nname: node-2\nstate: provisionable\ninterfaces: [{mac: 02-00-00-00-00-02}]\n";
    let path = operator.file("machine.yaml", machine);
    operator.ok(&format!("apply -f {path}")).await;
    let path = operator.file("kept.yaml", "kind: Instance\nhardware: node-2\nreserve_only: true\n");
    operator.ok(&format!("instance create -f {path} --wait")).await;
    let state = operator.ok("instance get node-2 -o jsonpath={.state}").await;
    assert_eq!(state, "active\n");
    operator.end().await;
}

#[tokio::test]
async fn a_file_of_instances_is_planned_and_those_that_are_created_are_waited_for() {
    let operator = site().await;
    let machine = "kind: Hardware\nname: node-2\ninterfaces: [{mac: 02-00-00-00-00-02}]\n";
    let path = operator.file("machine.yaml", machine);
    operator.ok(&format!("apply -f {path}")).await;
    let order = |name: &str| format!("kind: Instance\nhardware: {name}\nreserve_only: true\n");
    let path = operator.file("orders.yaml", &["node-2", "node-1"].map(order).join("---\n"));
    let (printed, planned) = operator.run(&format!("instance plan -f {path}")).await;
    assert!(printed.lines().count() == 2 && printed.contains(" node-1"), "{printed}");
    let refused = format!(
        "{path}:1: node-2 is enrolled, and not accepted yet: tinwright hardware accept node-2"
    );
    let total = "1 of 2 objects failed".to_owned();
    assert_eq!(planned, Err(vec![refused.clone(), total.clone()]));
    assert_eq!(operator.ok("instance list -q").await, "", "a plan creates nothing");
    let (_, created) = operator.run(&format!("instance create -f {path} --wait")).await;
    assert_eq!(created, Err(vec![refused, total]));
    let state = operator.ok("instance get node-1 -o jsonpath={.state}").await;
    assert_eq!(state, "active\n");
    operator.end().await;
}

#[tokio::test]
async fn another_port_of_the_server_is_named_as_such() {
    let operator = site().await;
    let secrets = operator.server.secrets().display().to_string();
    for (scheme, address) in [("https", operator.server.gateway), ("http", operator.server.vitals)]
    {
        let url = format!("{scheme}://{address}");
        let line = ["hardware", "list", "--server", &url, "--secrets", &secrets];
        let ended = Ended::of(tinwright(line)).await;
        let wanted = format!("the server at {url} is not the API of Tinwright");
        assert_eq!(ended.code, 1);
        assert!(ended.errors[0].starts_with(&wanted), "{:#?}", ended.errors);
    }
    operator.end().await;
}

#[tokio::test]
async fn a_second_bmc_and_an_update_without_a_setting_are_refused_before_a_login() {
    let operator = site().await;
    let password = operator.file("password", "secret");
    let create = format!(
        "power bmc create --hardware node-1 --url https://127.0.0.1:1 --username a --password-file {password}"
    );
    operator.ok(&format!("{create} --skip-login")).await;
    let errors = operator.run(&create).await.1.unwrap_err();
    let expected = "node-1 has a BMC already: to change it: tinwright power bmc update node-1";
    assert_eq!(errors, [expected]);
    let errors = operator.run("power bmc update node-1").await.1.unwrap_err();
    assert_eq!(errors, ["nothing to change: give a setting"]);
    operator.end().await;
}

#[tokio::test]
async fn refusals_of_addresses_name_what_is_in_the_way() {
    let operator = site().await;
    for line in [
        "tenant create acme",
        "tenant create initech",
        "subnet update lan --tenant-quota acme=5",
        "subnet update lan --tenant-quota initech=6",
        "location create kir1",
        "address binding create kir1 --subnet lan",
        "subnet create small 192.0.2.0/24",
        "range create one 192.0.2.5-192.0.2.5 --subnet small",
        "location create kir2",
        "address binding create kir2 --range one",
        "address grant --location kir2",
        "subnet update small --rename tiny",
    ] {
        operator.ok(line).await;
    }
    for (line, text) in [
        (
            "subnet update lan --tenant-quota nope=5",
            "subnet.tenant_quotas[nope]: there is no tenant nope",
        ),
        ("address binding create kir1 --subnet lan", "location kir1 has a binding already: "),
        ("address grant --location kir2", "location kir2 is exhausted: 1 of 1 blocks are taken"),
        ("subnet delete tiny --yes", "subnet tiny has range one"),
    ] {
        let errors = operator.run(line).await.1.unwrap_err();
        assert!(errors[0].starts_with(text), "{line}: {errors:#?}");
    }
    let quotas = operator.ok("subnet get lan -o jsonpath={.tenant_quotas}").await;
    assert!(quotas.contains("acme") && quotas.contains("initech"), "{quotas}");
    operator.end().await;
}
