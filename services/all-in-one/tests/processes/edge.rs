//! An edge: a process that serves machines with a certificate and a key of its own, without those of the site.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use runtime::Channel;
use runtime::authority::{SiteAuthority, request_certificate};
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::netboot::v1 as nb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::netboot_service_client::NetbootServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use super::network::{Network, OURS};
use super::process::{Place, Process, arguments, get, machine, soon};

const MAC: &str = "52:54:00:00:00:01";
const MACHINE: &str = "198.51.100.50";
const METADATA: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const CONTROL: &str = "address,hardware,identity,instance,power,workflow";

/// Runs the client with `words` as an admin of the site at `control`.
pub(super) fn client(control: &Process, words: &[&str]) -> Output {
    let (server, secrets) = (format!("https://{}", control.place.grpc), control.place.secrets());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(words).args(["--server", &server]).arg("--secrets").arg(secrets);
    command.output().unwrap()
}

/// Does the same, and returns the output of the client, which has to succeed.
pub(super) fn client_output(control: &Process, words: &[&str]) -> String {
    let done = client(control, words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Issues an edge into the secrets of `place`. Returns the serial number of its certificate.
pub(super) fn issue(control: &Process, place: &Place) -> String {
    let (address, secrets) = (place.grpc.ip().to_string(), place.secrets());
    let words = ["identity", "issue", "--role", "edge", "--subject", "service:rack-7"];
    let words = [&words[..], &["--server-name", &address, "--out", secrets.to_str().unwrap()]];
    let table = client_output(control, &words.concat());
    table.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Connects to `to` with the certificate in the secrets of the edge.
fn as_edge(to: &Process, edge: &Process) -> Channel {
    let read = |name: &str| std::fs::read_to_string(edge.place.secrets().join(name)).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")))
        .identity(Identity::from_pem(read("edge.pem"), read("edge-key.pem")));
    let endpoint = Endpoint::from_shared(format!("https://{}", to.place.grpc)).unwrap();
    endpoint.tls_config(tls).unwrap().connect_lazy().into()
}

/// Returns all files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The processes of a site, and a machine that boots by the edge.
struct Site<'a> {
    network: &'a Network,
    control: Process,
    edge: Process,
    /// The serial number of the edge's certificate.
    serial: String,
    /// The machine's id.
    machine: String,
}

impl<'a> Site<'a> {
    async fn new(network: &'a Network) -> Self {
        network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
        let listen = format!("{OURS}:42113");
        let control = Place::new();
        let control = control.start(&arguments(&["--only", CONTROL, "--listen", &listen])).await;
        let place = Place::new();
        let serial = issue(&control, &place);
        let edge = place.start(&Self::edge_flags()).await;
        let mut site = Self { network, control, edge, serial, machine: String::new() };
        site.machine = site.create_machine().await;
        site
    }

    fn edge_flags() -> Vec<String> {
        let (peers, metadata) = (format!("https://{OURS}:42113"), METADATA.to_string());
        let flags = ["--only", "netboot,metadata", "--netboot-interface", "br0", "--peers", &peers];
        arguments(&[&flags[..], &["--metadata-listen", &metadata]].concat())
    }

    async fn create_machine(&self) -> String {
        let address =
            hw::Address { address: MACHINE.into(), prefix_length: 24, ..Default::default() };
        let script = hw::Ipxe { url: "http://192.0.2.1/once".into(), ..Default::default() };
        let netboot =
            hw::Netboot { allow_pxe: true, boot_once: Some(script), ..Default::default() };
        let interface = hw::Interface {
            mac: MAC.into(),
            dhcp: Some(hw::Dhcp { address: Some(address), ..Default::default() }),
            netboot: Some(netboot),
            ..Default::default()
        };
        let hardware = hw::Hardware {
            interfaces: vec![interface],
            state: hw::State::Provisionable.into(),
            ..Default::default()
        };
        let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
        let mut machines = HardwareServiceClient::new(self.control.channel().await);
        machines.create_hardware(request).await.unwrap().into_inner().hardware.unwrap().id
    }

    /// Waits until the boot script of the machine has a word that `find` finds.
    async fn script_word(&self, find: impl Fn(&str) -> Option<String>) -> String {
        let fetch = format!("curl -s http://{OURS}:7080/52-54-00-00-00-01/auto.ipxe");
        let found = async {
            loop {
                let script = self.network.run(0, &fetch);
                match script.split_whitespace().find_map(&find) {
                    Some(word) => return word,
                    None => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        soon(found).await
    }

    /// Waits until the metadata service of the edge answers the system of another machine, at 127.0.0.1.
    async fn metadata_is_served(&self) {
        let mut machines = HardwareServiceClient::new(self.control.channel().await);
        let made = machines.create_hardware(machine("02:00:00:00:00:02", "127.0.0.1")).await;
        let id = made.unwrap().into_inner().hardware.unwrap().id;
        let served = async {
            while get(METADATA, "/latest/meta-data/instance-id").await.as_ref() != Some(&id) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(served).await;
    }

    async fn boot_token(&self) -> String {
        self.script_word(|word| Some(word.strip_prefix("boot_token=")?.to_owned())).await
    }

    /// Redeems `token` at the control plane, as the machine.
    fn redeem(&self, token: &str) -> Result<(), Status> {
        let mut redeemed = None;
        let authority =
            SiteAuthority::open(&self.control.place.secrets()).unwrap().authority().to_owned();
        self.network.on(0, async || {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            let endpoint = Endpoint::from_shared(format!("https://{OURS}:42113")).unwrap();
            let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
            let (csr, _) = request_certificate().unwrap();
            let request = wf::RedeemRequest { boot_token: token.into(), csr, ..Default::default() };
            redeemed = Some(WorkerServiceClient::new(channel).redeem(request).await.map(drop));
        });
        redeemed.unwrap()
    }

    fn hardware_as_edge(&self) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(as_edge(&self.control, &self.edge))
    }

    /// Fails unless the edge may make its calls, and no other.
    async fn check_calls(&self) {
        let mut machines = self.hardware_as_edge();
        let watch = hw::WatchHardwareRequest { view: View::Full.into(), ..Default::default() };
        assert!(machines.watch_hardware(watch).await.is_ok());
        let listed = machines.list_hardware(hw::ListHardwareRequest::default()).await;
        assert_eq!(listed.unwrap_err().code(), Code::PermissionDenied);
        let channel = as_edge(&self.control, &self.edge);
        let role = id::Role::Admin.into();
        let request = id::IssueCertificateRequest { role, ..Default::default() };
        let issued = IdentityServiceClient::new(channel).issue_certificate(request).await;
        assert_eq!(issued.unwrap_err().code(), Code::PermissionDenied);

        let by = Some(hw::get_hardware_request::By::Id(self.machine.clone()));
        let request = hw::GetHardwareRequest { by, view: View::Full.into() };
        let found = machines.get_hardware(request).await.unwrap().into_inner().hardware;
        let mut changed = found.unwrap();
        changed.interfaces[0].mac = "52:54:00:00:00:02".into();
        let update_mask = Some(prost_types::FieldMask { paths: vec!["interfaces".into()] });
        let update =
            hw::UpdateHardwareRequest { hardware: Some(changed), update_mask, force: true };
        let refused = machines.update_hardware(update).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }

    /// Revokes the edge, and waits until its calls are refused.
    async fn revoke(&self) {
        client_output(&self.control, &["identity", "revoke", &self.serial]);
        let refused = async {
            loop {
                let watch = hw::WatchHardwareRequest::default();
                let watched = self.hardware_as_edge().watch_hardware(watch).await;
                let Ok(stream) = watched else { return };
                drop(stream);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        soon(refused).await;
    }
}

#[test]
fn an_edge_boots_a_machine_without_the_keys_of_the_site_until_it_is_revoked() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let site = Site::new(&network).await;
        // The machine runs its one-shot script, and the edge has it removed from the record.
        let started = |word: &str| word.ends_with("/once.started").then(|| word.to_owned());
        let started = site.script_word(started).await;
        site.network.run(0, &format!("curl -s {started}"));
        let token = site.boot_token().await;
        assert!(token.starts_with(&format!("{}-", site.serial)), "{token}");
        site.redeem(&token).unwrap();
        site.metadata_is_served().await;

        let mut netboot = NetbootServiceClient::new(site.edge.channel_of(&site.control).await);
        let by = Some(By::HardwareId(site.machine.clone()));
        let explain = nb::ExplainBootRequest { by, ..Default::default() };
        assert!(netboot.explain_boot(explain).await.is_ok(), "operators call the edge");
        site.check_calls().await;

        let key = std::fs::read(site.control.place.secrets().join("site.key")).unwrap();
        for path in files(&site.edge.place.path("data")) {
            let content = std::fs::read(&path).unwrap();
            assert!(!content.windows(key.len()).any(|part| part == key), "{}", path.display());
        }

        let another = site.boot_token().await;
        site.revoke().await;
        let refused = site.redeem(&another).unwrap_err();
        assert_eq!(refused.message(), "invalid boot token: the edge that made it is revoked");
    });
}

#[test]
fn an_edge_serves_nothing_else_and_its_key_keeps_the_former_site_key() {
    let network = Network::new(&[]);
    network.on_site(async || {
        let control = Place::new().start(&arguments(&["--only", CONTROL])).await;
        let place = Place::new();
        let serial = issue(&control, &place);
        let why = place.refused(&arguments(&["--only", CONTROL])).await;
        let expected = "has the secrets of an edge, which serves metadata and netboot only: address, hardware, identity, instance, workflow, power is refused";
        assert!(why.contains(expected), "{why}");

        client_output(&control, &["identity", "rotate", "site-key"]);
        let finish = ["identity", "rotate", "site-key", "--finish"];
        let refused = String::from_utf8(client(&control, &finish).stderr).unwrap();
        assert!(refused.contains("may be in use for another"), "{refused}");
        // Six hours ago the key was replaced.
        let old = std::fs::File::open(control.place.secrets().join("site.key.old")).unwrap();
        let replaced = std::time::SystemTime::now() - Duration::from_secs(7 * 60 * 60);
        old.set_modified(replaced).unwrap();
        let refused = String::from_utf8(client(&control, &finish).stderr).unwrap();
        let expected = format!("edges have keys of the former site key: service:rack-7 ({serial})");
        assert!(refused.contains(&expected), "{refused}");
        client_output(&control, &["identity", "revoke", &serial]);
        client_output(&control, &finish);
    });
}
