//! The messages of the program: without a command, about wrong settings and a missing environment, in its log and at its end.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;

use super::network::{Network, OURS};
use super::peer::Peer;
use super::process::{Place, Process, arguments, get, machine, soon};

const MAC: &str = "52:54:00:00:00:01";
/// Options for free ports.
const FREE_PORTS: &str =
    "--listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --gateway-listen 127.0.0.1:0";

/// Runs `tinwright` with `words`.
fn run(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(words.split_whitespace()).env_remove("TINWRIGHT_DATA").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail with exit code `code`, and returns its error.
fn refused(words: &str, code: i32) -> String {
    let output = run(words);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}: {error}");
    error
}

/// Creates a machine with a name, an address of the network and PXE.
async fn create(server: &Process, name: &str) {
    let mut request = machine(MAC, "198.51.100.50");
    let hardware = request.hardware.as_mut().unwrap();
    hardware.name = name.into();
    hardware.state = hw::State::Provisionable.into();
    let netboot = hw::Netboot { allow_pxe: true, ..hw::Netboot::default() };
    hardware.interfaces[0].netboot = Some(netboot);
    HardwareServiceClient::new(server.channel().await).create_hardware(request).await.unwrap();
}

#[test]
fn without_a_command_the_help_is_printed_and_no_server_is_started() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    let output = command.env("TINWRIGHT_DATA", home.path().join("data")).output().unwrap();
    let help = text(&output.stdout);
    assert!(output.status.success() && help.contains("Usage: tinwright"), "{help}");
    assert!(help.contains("  serve ") && help.lines().count() < 80, "{help}");
    assert!(!home.path().join("data").exists());
    let version = text(&run("--version").stdout);
    assert_eq!(version, concat!("tinwright ", env!("CARGO_PKG_VERSION"), "\n"));
    let all = text(&run("serve --help-all").stdout);
    assert!(all.contains("--etcd-prefix") && all.contains("Usage: tinwright serve"), "{all}");
}

#[test]
fn wrong_settings_are_refused_by_name_with_what_to_do() {
    for (words, error) in [
        (
            "--log verbose",
            "log: \"verbose\" is neither a level (error, warn, info, debug, trace, off)",
        ),
        ("--listen 127.0.0.1", "--listen: add a port: 127.0.0.1:42113"),
        ("--netboot-interface nope0", "netboot_interface nope0: there is no such interface"),
    ] {
        let line = refused(&format!("serve --config /dev/null --store memory {words}"), 78);
        assert!(line.starts_with(&format!("tinwright: {error}")), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn a_check_of_nothing_fails_and_creates_nothing() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("typo");
    let error = refused(&format!("store check --data {}", data.display()), 1);
    assert!(error.contains(&format!("no store in {}", data.display())), "{error}");
    assert!(!data.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_uses_a_directory_is_named() {
    let server = Place::new().start(&[]).await;
    let data = server.place.path("data");
    let expected =
        format!("a server is using {} (pid {}): stop it first", data.display(), server.id());
    let check = refused(&format!("store check --data {}", data.display()), 1);
    assert!(check.contains(&expected), "{check}");
    let same_port = format!("--listen {} --metrics-listen 127.0.0.1:0", server.place.grpc);
    for ports in [FREE_PORTS, &same_port] {
        let serve = refused(&format!("serve --data {} {ports}", data.display()), 1);
        assert!(serve.contains(&expected), "{serve}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_its_secrets_is_refused_and_gets_no_new_ones() {
    let place = Place::new().start(&[]).await.terminate();
    std::fs::remove_dir_all(place.secrets()).unwrap();
    let data = place.path("data");
    let error = refused(&format!("serve --data {} {FREE_PORTS}", data.display()), 1);
    assert!(error.contains("belongs to another site than these secrets"), "{error}");
    assert!(!place.secrets().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_the_sites_secrets_is_refused_and_gets_no_new_ones() {
    let peer = Peer::start().await;
    let etcd = format!("--store etcd --etcd-endpoints {}", peer.url());
    let words: Vec<_> = etcd.split(' ').collect();
    let _first = Place::new().start(&arguments(&words)).await;
    let other = Place::new();
    let data = other.path("data");
    let error = refused(&format!("serve --data {} {etcd} {FREE_PORTS}", data.display()), 1);
    assert!(error.contains("belongs to another site than these secrets"), "{error}");
    assert!(!other.secrets().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_a_revoked_certificate_says_which() {
    let server = Place::new().start(&[]).await;
    let folder = server.place.path("anna");
    std::fs::create_dir(&folder).unwrap();
    let url = format!("https://{}", server.place.grpc);
    let admin = format!("--server {url} --secrets {}", server.place.secrets().display());
    let issue = "identity issue --role viewer --subject person:anna --out";
    let issued = run(&format!("{issue} {}/anna {admin}", folder.display()));
    assert!(issued.status.success(), "{issued:?}");
    for (from, to) in [("anna-ca", "ca"), ("anna", "client"), ("anna-key", "client-key")] {
        let [from, to] = [from, to].map(|name| folder.join(format!("{name}.pem")));
        std::fs::rename(from, to).unwrap();
    }
    let list = format!("hardware list --server {url} --secrets {}", folder.display());
    assert!(run(&list).status.success());
    let refused = text(&run(&format!("identity revoke 1234 {admin}")).stderr);
    assert!(refused.contains("no serial number in `tinwright identity list` begins with 1234"));
    let whole = "1234567890abcdef1234567890abcdef";
    let unknown = text(&run(&format!("identity revoke {whole} {admin}")).stdout);
    let expected = format!("{whole} revoked; no certificate with this serial number is recorded");
    assert!(unknown.contains(&expected), "{unknown}");
    let certificates = text(&run(&format!("identity list -o json {admin}")).stdout);
    let certificates: serde_json::Value = serde_json::from_str(&certificates).unwrap();
    let is_annas = |it: &&serde_json::Value| it["subject"] == "person:anna";
    let annas = certificates.as_array().unwrap().iter().find(is_annas).unwrap();
    let serial = annas["serial"].as_str().unwrap();
    let revoked = text(&run(&format!("identity revoke {serial} {admin}")).stdout);
    assert_eq!(revoked, format!("certificate {serial} of person:anna revoked\n"));
    // The revocation reaches the connections of the server within seconds.
    let mut output = run(&list);
    for _ in 0..50 {
        if !output.status.success() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        output = run(&list);
    }
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let certificate = folder.join("client.pem");
    let expected = format!("closes connections with the certificate {}", certificate.display());
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_missing_capability_is_named_and_nothing_is_said_to_be_left_behind() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let data = tempfile::tempdir().unwrap();
        let words = format!(
            "serve --data {} {FREE_PORTS} --metadata-link-local br0",
            data.path().display()
        );
        // Root's programs have the capabilities of the bounding set (capabilities(7)).
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_admin", env!("CARGO_BIN_EXE_tinwright")]);
        let output = command.args(words.split(' ')).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let hint = "the process lacks CAP_NET_ADMIN; set AmbientCapabilities=CAP_NET_ADMIN";
        assert!(error.contains(hint), "{error}");
        assert!(!error.contains("WARN"), "{error}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_literal_names_changes_and_ends_in_order() {
    let server = Place::new().start(&[]).await;
    create(&server, "node-1").await;
    let metrics = async || get(server.place.vitals, "/metrics").await.unwrap();
    until(metrics, |it| it.contains("tinwright_hardware{state=\"provisionable\"} 1")).await;
    order(&server, "node-1", inst::Instance { reserve_only: true, ..Default::default() }).await;
    until(async || server.log(), |it| it.contains("instance changed state")).await;
    let mut client = HardwareServiceClient::new(server.channel().await);
    let absent =
        hw::DeleteHardwareRequest { id: uuid::Uuid::new_v4().to_string(), ..Default::default() };
    client.delete_hardware(absent).await.unwrap_err();
    drop(client);
    let place = server.terminate();
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    let line = |parts: &[&str]| {
        log.lines().filter(|line| parts.iter().all(|it| line.contains(it))).count()
    };
    let created = [
        " INFO tinwright: change requested caller=person:admin role=admin",
        " call=HardwareService/CreateHardware object=\"hardware node-1 ",
        " result=OK",
    ];
    assert_eq!(line(&created), 1, "{log}");
    let moved =
        [" INFO instance::reconcile: instance changed state", " machine=node-1 hardware.id="];
    assert!(line(&moved) > 0, "{log}");
    assert_eq!(line(&["call=HardwareService/DeleteHardware result=NOT_FOUND reason="]), 1, "{log}");
    for wrong in [" WARN ", "ERROR", "Some(", "all_in_one", "\u{1b}["] {
        assert!(!log.contains(wrong), "{wrong}: {log}");
    }
    assert_eq!(line(&["tinwright: listening api=127."]), 1, "{log}");
    assert!(log.contains(" INFO tinwright: stopping signal=SIGTERM\n"), "{log}");
    assert!(log.ends_with(" INFO tinwright: stopped\n"), "{log}");
}

#[test]
fn a_server_without_an_environment_says_so_until_it_is_built() {
    let network = Network::new(&[MAC]);
    network.set(0, "addr add 198.51.100.50/24 dev eth0");
    network.on_site(async || {
        let server = Place::new().start(&arguments(&["--netboot-interface", "br0"])).await;
        let osie = server.place.path("data/osie");
        let problem = format!(
            "no in-memory environment in {0}: machines cannot be provisioned; run `tinwright osie build --output {0}`",
            osie.display()
        );
        let log = server.log();
        assert!(log.contains(&format!(" WARN tinwright: {problem}\n")), "{log}");
        let node_problem = format!(
            "no in-memory environment of nodes in {0}: instances with an image stack cannot boot; run `tinwright osie build --output {0} --flavour node`",
            osie.display()
        );
        assert!(log.contains(&format!(" INFO tinwright: {node_problem}\n")), "{log}");
        let ready = async || {
            let text = get(server.place.vitals, "/readyz").await.unwrap();
            let is_problem = |line: &&str| !line.starts_with("sandbox of the builder: ");
            text.lines().filter(is_problem).map(|line| format!("{line}\n")).collect::<String>()
        };
        assert_eq!(ready().await, format!("ready\n{problem}\n"));
        create(&server, "node-1").await;
        until(async || explanation(&server).unwrap_or_default(), |it| !it.is_empty()).await;
        let missing = "missing: vmlinuz-x86_64, initramfs-x86_64; run `tinwright osie build`";
        let explained = explain(&server);
        assert!(explained.contains("environment") && explained.contains(missing), "{explained}");
        failed_fetch(&network, &server);
        build(&osie);
        assert_eq!(ready().await, "ready\n");
        assert!(!explain(&server).contains("missing:"));
        let stack = inst::ImageStack { stack_id: "web".into() };
        let os = Some(inst::instance::Os::ImageStack(stack));
        order(&server, "node-1", inst::Instance { os, ..Default::default() }).await;
        until(ready, |it| it == format!("ready\n{node_problem}\n")).await;
        let files = "vmlinuz-node-x86_64, initramfs-node-x86_64";
        until(async || explain(&server), |it| it.contains(files)).await;
    });
}

/// Creates `instance` on the machine `name`.
async fn order(server: &Process, name: &str, instance: inst::Instance) {
    let channel = server.channel().await;
    let by = Some(hw::get_hardware_request::By::Name(name.into()));
    let request = hw::GetHardwareRequest { by, ..Default::default() };
    let found = HardwareServiceClient::new(channel.clone()).get_hardware(request).await.unwrap();
    let hardware_id = found.into_inner().hardware.unwrap().id;
    let instance = Some(inst::Instance { hardware_id, ..instance });
    let request = inst::CreateInstanceRequest { instance, ..Default::default() };
    InstanceServiceClient::new(channel).create_instance(request).await.unwrap();
}

/// Waits until `found` finds something in what `read` returns.
async fn until(read: impl AsyncFn() -> String, found: impl Fn(&str) -> bool) {
    soon(async {
        while !found(&read().await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Returns the explanation of the next boot of node-1.
fn explain(server: &Process) -> String {
    explanation(server).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the explanation of the next boot of node-1, or why there is none: the boot server may not have read the machine yet.
fn explanation(server: &Process) -> Result<String, String> {
    let server_options = format!(
        "--server https://{} --secrets {}",
        server.place.grpc,
        server.place.secrets().display()
    );
    let output = run(&format!("boot explain node-1 {server_options}"));
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Fetches the kernel of the boot of node-1, which is not there, and looks for the line in the log.
fn failed_fetch(network: &Network, server: &Process) {
    let script = network.run(0, &format!("curl -s http://{OURS}:7080/auto.ipxe"));
    let base = script.lines().find_map(|line| line.strip_prefix("set base "));
    let base = base.unwrap_or_else(|| panic!("{script}: {}", server.log()));
    let kernel = format!("{base}/vmlinuz-x86_64");
    let status = network.run(0, &format!("curl -s -o /dev/null -w %{{http_code}} {kernel}"));
    assert_eq!(status, "404");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("boot file not served")).unwrap();
    for part in [" WARN netboot::http: ", "machine=node-1", "file=vmlinuz-x86_64", "status=404"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(line.contains("build=\"tinwright osie build --output "), "{line}");
}

/// Writes an environment as `tinwright osie build` does.
fn build(osie: &Path) {
    std::fs::create_dir_all(osie).unwrap();
    for name in ["vmlinuz-x86_64", "initramfs-x86_64"] {
        std::fs::write(osie.join(name), "built").unwrap();
    }
}
