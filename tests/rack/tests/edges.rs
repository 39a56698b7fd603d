//! DHCP, TFTP, boot HTTP, enrolment and metadata on the machines' network, each answered only for the right client.
#![allow(clippy::unwrap_used, missing_docs)]

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rack::client::Client;
use rack::lab::{Lab, wait};
use rack::server::Server;
use rcgen::KeyPair;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tonic::Code;

const NODE: (&str, &str) = ("52:54:00:00:02:01", "198.51.100.51");
const INSTALLED: (&str, &str) = ("52:54:00:00:02:02", "198.51.100.52");
const SERVER: &str = "http://198.51.100.1:7080";

struct Site {
    lab: Lab,
    server: Server,
    ids: Vec<String>,
}

/// Starts a server with two hardware records: one machine may boot from the network, the other may not.
async fn site() -> Site {
    assert!(
        rustix::process::geteuid().is_root(),
        "run this as root: it creates network namespaces"
    );
    let mut lab = Lab::new().unwrap();
    let osie = lab.path("osie");
    std::fs::create_dir(&osie).unwrap();
    std::fs::write(osie.join("vmlinuz-x86_64"), "a kernel").unwrap();
    let server = Server::new(&lab, &osie, &osie).unwrap();
    server.start(&mut lab).unwrap();
    let mut hardware = HardwareServiceClient::new(server.channel().await.unwrap());
    let mut ids = Vec::new();
    for ((mac, address), allow_pxe) in [(NODE, true), (INSTALLED, false)] {
        let address = hw::Address {
            address: address.into(),
            prefix_length: 24,
            gateway: "198.51.100.1".into(),
        };
        let interface = hw::Interface {
            mac: mac.into(),
            dhcp: Some(hw::Dhcp { address: Some(address), ..Default::default() }),
            netboot: Some(hw::Netboot { allow_pxe, ..Default::default() }),
            ..Default::default()
        };
        let hardware_record = hw::Hardware {
            interfaces: vec![interface],
            facility: "lab1".into(),
            ..Default::default()
        };
        let request =
            hw::CreateHardwareRequest { hardware: Some(hardware_record), ..Default::default() };
        let created = hardware.create_hardware(request).await.unwrap().into_inner();
        ids.push(created.hardware.unwrap().id);
        wait("the edges to know the machine", Duration::from_secs(60), || {
            (script_status(&lab, mac) == "403").then_some(())
        })
        .unwrap();
    }
    Site { lab, server, ids }
}

/// Returns the status of the boot script of `mac`, requested by the server's host: 404 if the machine is unknown, else 403.
fn script_status(lab: &Lab, mac: &str) -> String {
    let url = format!("{SERVER}/{}/auto.ipxe", mac.replace(':', "-"));
    let mut curl = lab.command("curl");
    let output =
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", &url]);
    String::from_utf8(output.output().unwrap().stdout).unwrap()
}

/// Runs udhcpc. Returns the environment of its script once an address is bound, `None` if it got no address.
fn lease(lab: &Lab, client: &Client, extra_arguments: &[&str]) -> Option<String> {
    let script = lab.path("lease.sh");
    std::fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || env\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let mut arguments =
        vec!["udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "3", "-T", "2", "-s", &script];
    arguments.extend(extra_arguments);
    let output = client.run("busybox", arguments).unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_machine_gets_its_address_and_an_unknown_one_gets_no_reply() {
    let site = site().await;
    let known = Client::new(&site.lab, 1, NODE.0).unwrap();
    let bound = lease(&site.lab, &known, &[]).unwrap();
    assert!(bound.contains("ip=198.51.100.51") && bound.contains("router=198.51.100.1"), "{bound}");
    let again = lease(&site.lab, &known, &["-r", "198.51.100.77"]).unwrap();
    assert!(again.contains("ip=198.51.100.51"), "{again}");
    let unknown = Client::new(&site.lab, 2, "52:54:00:00:02:99").unwrap();
    assert_eq!(lease(&site.lab, &unknown, &[]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_gets_a_loader_or_the_file_that_does_not_exist() {
    let site = site().await;
    let pxe = ["-V", "PXEClient:Arch:00007:UNDI:003016", "-x", "0x5d:0007", "-O", "67"];
    for (number, (mac, _), file) in
        [(1, NODE, "snponly.efi"), (2, INSTALLED, "netboot-not-allowed")]
    {
        let client = Client::new(&site.lab, number, mac).unwrap();
        let bound = lease(&site.lab, &client, &pxe).unwrap();
        assert!(
            bound.contains(&format!("bootfile={file}"))
                || bound.contains(&format!("boot_file={file}")),
            "{bound}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loader_is_downloaded_completely_over_tftp() {
    let site = site().await;
    let client = Client::new(&site.lab, 1, NODE.0).unwrap();
    client.configure(NODE.1).unwrap();
    let file = site.lab.path("loader");
    let target = file.display().to_string();
    let arguments = ["-s", "-m", "20", "-o", &target, "tftp://198.51.100.1/snponly.efi"];
    assert!(client.run("curl", arguments).unwrap().status.success());
    assert!(std::fs::read(&file).unwrap() == std::fs::read("/usr/lib/ipxe/snponly.efi").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_served_only_to_its_machine() {
    let site = site().await;
    let client = Client::new(&site.lab, 1, NODE.0).unwrap();
    client.configure(NODE.1).unwrap();
    client.ip("addr add 198.51.100.99/24 dev eth0").unwrap();
    let get = |source: &str, path: &str| client.get(source, &format!("{SERVER}{path}")).unwrap();
    let (status, script) = get(NODE.1, "/52-54-00-00-02-01/auto.ipxe");
    assert_eq!(status, 200);
    assert!(script.starts_with("#!ipxe") && script.contains(&format!("worker_id={}", site.ids[0])));
    let (refused, empty) = ((403, "not allowed\n".to_owned()), String::new());
    assert_eq!(get("198.51.100.99", "/52-54-00-00-02-01/auto.ipxe"), refused, "another address");
    assert_eq!(get(NODE.1, "/52-54-00-00-02-02/auto.ipxe"), refused, "another MAC");
    assert_eq!(get(NODE.1, "/52-54-00-00-02-99/auto.ipxe"), (404, empty.clone()), "unknown MAC");
    assert_eq!(get("198.51.100.99", "/auto.ipxe"), (404, empty), "unknown address");
    let base = script.lines().find_map(|line| line.strip_prefix("set base ")).unwrap().to_owned();
    let path = base.strip_prefix(SERVER).unwrap();
    assert_eq!(get(NODE.1, &format!("{path}/vmlinuz-x86_64")), (200, "a kernel".into()));
    assert_eq!(get("198.51.100.99", &format!("{path}/vmlinuz-x86_64")).0, 403);
    assert!(get(NODE.1, &format!("{path}/ca.pem")).1.contains("BEGIN CERTIFICATE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_token_is_bound_to_one_key_and_one_address() {
    let site = site().await;
    let client = Client::new(&site.lab, 1, NODE.0).unwrap();
    client.configure(NODE.1).unwrap();
    client.ip("addr add 198.51.100.99/24 dev eth0").unwrap();
    let script = client.get(NODE.1, &format!("{SERVER}/52-54-00-00-02-01/auto.ipxe")).unwrap().1;
    let words = script.split_whitespace();
    let token = words.filter_map(|word| word.strip_prefix("boot_token=")).next().unwrap();
    let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let request = |source: &str, key| client.redeem(&site.server, source, token, key).unwrap();

    let elsewhere = request("198.51.100.99", &own).unwrap_err();
    assert_eq!(elsewhere.code(), Code::PermissionDenied, "{elsewhere}");
    assert!(request(NODE.1, &own).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    let stolen = request(NODE.1, &other).unwrap_err();
    assert_eq!(stolen.code(), Code::PermissionDenied, "{stolen}");
    assert!(stolen.message().contains("another key"), "{stolen}");
    assert!(
        request(NODE.1, &own).is_ok(),
        "the first response may have been lost, so a repeated request succeeds"
    );
}

/// Waits until the server answers `client` at the address of the machine, and not the host that had the address before.
fn wait_until_reached(client: &Client) {
    let reached = wait("the new owner of the address", Duration::from_secs(120), || {
        let (status, _) = client.get(NODE.1, &format!("{SERVER}/healthz")).ok()?;
        (status == 200).then_some(())
    });
    reached.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_takes_the_address_of_a_machine_gets_no_script_and_no_certificate() {
    let site = site().await;
    let machine = Client::new(&site.lab, 1, NODE.0).unwrap();
    machine.configure(NODE.1).unwrap();
    let url = format!("{SERVER}/52-54-00-00-02-01/auto.ipxe");
    let script = machine.get(NODE.1, &url).unwrap().1;
    let words = script.split_whitespace();
    let token = words.filter_map(|word| word.strip_prefix("boot_token=")).next().unwrap();
    machine.ip("link set eth0 down").unwrap();

    let other = Client::new(&site.lab, 2, "52:54:00:00:02:99").unwrap();
    other.configure(NODE.1).unwrap();
    wait_until_reached(&other);
    for path in ["/52-54-00-00-02-01/auto.ipxe", "/auto.ipxe"] {
        let script = other.get(NODE.1, &format!("{SERVER}{path}")).unwrap();
        assert_eq!(script, (403, "not allowed\n".to_owned()), "{path}");
    }
    let arguments = ["-s", "-m", "20", "tftp://198.51.100.1/52-54-00-00-02-01/auto.ipxe"];
    let output = other.run("curl", arguments).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let key = KeyPair::generate().unwrap();
    let refused = other.redeem(&site.server, NODE.1, token, &key).unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("neighbour entry"), "{refused}");

    drop(other);
    machine.ip("link set eth0 up").unwrap();
    wait_until_reached(&machine);
    assert!(machine.redeem(&site.server, NODE.1, token, &key).unwrap().is_ok(), "not spent");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_identifies_a_machine_by_its_address() {
    let site = site().await;
    let client = Client::new(&site.lab, 1, NODE.0).unwrap();
    client.configure(NODE.1).unwrap();
    client.ip("addr add 198.51.100.99/24 dev eth0").unwrap();
    let get = |source: &str, path: &str| {
        client.get(source, &format!("http://169.254.169.254/latest/meta-data/{path}")).unwrap()
    };
    assert_eq!(get(NODE.1, "instance-id"), (200, site.ids[0].clone()));
    assert_eq!(get(NODE.1, "placement/availability-zone"), (200, "lab1a".into()));
    assert_eq!(get("198.51.100.99", "instance-id"), (404, String::new()));
}
