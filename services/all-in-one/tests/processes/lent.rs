//! The calls of operators about leased addresses: leases, machines without a record, and explanations of both.

use std::process::{Command, Output};

use runtime::Channel;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::unknown_machine_service_client::UnknownMachineServiceClient;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;
use tinwright::metadata::v1::{self as md, explain_metadata_request as md_by};
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::get_lease_request::By as LeaseBy;
use tinwright::netboot::v1::lease::State;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tinwright::netboot::v1::netboot_service_client::NetbootServiceClient;
use tinwright::netboot::v1::{self as pb, Lease};
use tonic::{Code, Status};

use super::network::{Network, OURS};
use super::peer::free_port;
use super::process::{Place, arguments, machine, soon};

const MACS: [&str; 2] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
const POOL: &str = "[[subnets]]
network = \"198.51.100.0/24\"
ranges = [\"198.51.100.100-198.51.100.109\"]
unknown = \"enrol\"
";

/// The clients of the called services, and the arguments with which the `tinwright` command calls them.
struct Asked(Channel, [String; 4]);

impl Asked {
    /// Runs the `tinwright` command. Returns its output, or its standard error if it failed.
    fn tinwright(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
        let Output { status, stdout, stderr } = command.args(words).args(&self.1).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
    }

    async fn list(&self, page_size: i32, page_token: &str) -> pb::ListLeasesResponse {
        let request = pb::ListLeasesRequest { page_size, page_token: page_token.into() };
        self.leases().list_leases(request).await.unwrap().into_inner()
    }

    async fn lease(&self, by: LeaseBy) -> Result<Lease, Status> {
        let request = pb::GetLeaseRequest { by: Some(by) };
        Ok(self.leases().get_lease(request).await?.into_inner().lease.unwrap())
    }

    async fn take_back(&self, address: &str, revision: i64) -> Result<(), Status> {
        let request = pb::DeleteLeaseRequest { address: address.into(), revision };
        self.leases().delete_lease(request).await.map(drop)
    }

    async fn boot(
        &self,
        by: By,
        relay: Option<pb::RelayAgent>,
    ) -> Result<pb::ExplainBootResponse, Status> {
        let mut netboot = NetbootServiceClient::new(self.0.clone());
        let request = pb::ExplainBootRequest { by: Some(by), relay, ..Default::default() };
        Ok(netboot.explain_boot(request).await?.into_inner())
    }

    async fn metadata(&self, by: md_by::By) -> Result<md::ExplainMetadataResponse, Status> {
        let mut metadata = MetadataServiceClient::new(self.0.clone());
        let request = md::ExplainMetadataRequest { by: Some(by) };
        Ok(metadata.explain_metadata(request).await?.into_inner())
    }

    fn leases(&self) -> LeaseServiceClient<Channel> {
        LeaseServiceClient::new(self.0.clone())
    }
}

/// Returns the address that udhcpc gets on a machine.
fn udhcpc(network: &Network, machine: usize) -> String {
    leased_after(network, machine).0
}

/// Returns the address that udhcpc gets on a machine, and the number of its DISCOVERs and REQUESTs.
fn leased_after(network: &Network, machine: usize) -> (String, i64) {
    let output = network.run(machine, "busybox udhcpc -i eth0 -n -q -f -t 20 -T 2 -s /bin/true");
    let lease = output.split_once("lease of ").and_then(|(_, rest)| rest.split([' ', ',']).next());
    let lease = lease.unwrap_or_else(|| panic!("no lease: {output}")).to_owned();
    // A DISCOVER and a REQUEST, and repeated ones if the server is slow.
    let sent = output.matches("broadcasting ").count();
    (lease, i64::try_from(sent).unwrap())
}

/// Runs `work` with a server that leases addresses, also to machines without a record.
fn lending(work: impl AsyncFnOnce(&Network, Asked) + Send) {
    let network = Network::new(&MACS);
    network.on_site(async || {
        let (api, metadata) = (format!("{OURS}:{}", free_port()), format!("{OURS}:8080"));
        let place = Place::new();
        let config = place.path("config.toml");
        std::fs::write(&config, POOL).unwrap();
        let config = config.display().to_string();
        let flags = ["--config", &config, "--netboot-interface", "br0", "--listen", &api];
        let flags = [&flags[..], &["--metadata-listen", &metadata]].concat();
        let server = place.start(&arguments(&flags)).await;
        let (to, secrets) = (format!("https://{}", server.place.grpc), server.place.secrets());
        let connection = ["--server".into(), to, "--secrets".into(), secrets.display().to_string()];
        work(&network, Asked(server.channel().await, connection)).await;
    });
}

#[test]
fn leases_are_shown_and_taken_back_by_their_revision() {
    lending(async |network, asked| {
        assert!(asked.list(0, "").await.leases.is_empty());
        let own = [0, 1].map(|machine| udhcpc(network, machine));
        let first = asked.list(1, "").await;
        let second = asked.list(1, &first.next_page_token).await;
        let listed = [&first.leases[..], &second.leases].concat();
        let mut addresses = own.clone();
        addresses.sort();
        assert_eq!(
            listed.iter().map(|lease| &lease.address).collect::<Vec<_>>(),
            [&addresses[0], &addresses[1]]
        );
        assert_eq!(second.next_page_token, "");

        let lease = asked.lease(LeaseBy::Mac("52-54-00-00-00-01".into())).await.unwrap();
        assert_eq!((&lease.address, lease.mac.as_str()), (&own[0], MACS[0]));
        assert_eq!((lease.state(), lease.hardware_id.as_str()), (State::Bound, ""));
        let by_address = asked.lease(LeaseBy::Address(own[0].clone())).await;
        assert_eq!(by_address.unwrap(), lease);

        let stale = asked.take_back(&own[0], lease.revision + 1000).await.unwrap_err();
        assert_eq!(stale.code(), Code::Aborted, "{stale}");
        asked.take_back(&own[0], lease.revision).await.unwrap();
        for gone in [
            asked.take_back(&own[0], 0).await.unwrap_err(),
            asked.lease(LeaseBy::Address(own[0].clone())).await.unwrap_err(),
            asked.lease(LeaseBy::Mac(MACS[0].into())).await.unwrap_err(),
        ] {
            assert_eq!(gone.code(), Code::NotFound, "{gone}");
        }
        let wrong = asked.lease(LeaseBy::Address("here".into())).await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
        assert!(wrong.message().contains("address: is not an IPv4 address"), "{wrong}");
    });
}

#[test]
fn the_command_line_lists_leases_and_deletes_present_ones_with_force_only() {
    lending(async |network, asked| {
        let own = udhcpc(network, 0);
        let listed = asked.tinwright(&["lease", "list"]).unwrap();
        let row = listed.lines().find(|line| line.starts_with(&own)).unwrap_or_default();
        assert!(row.contains("bound") && row.contains(MACS[0]), "{listed}");
        let refused = asked.tinwright(&["lease", "delete", &own]).unwrap_err();
        assert!(refused.contains("--force") && refused.contains(MACS[0]), "{refused}");
        let deleted = asked.tinwright(&["lease", "delete", "--force", MACS[0]]).unwrap();
        assert!(deleted.contains(&own), "{deleted}");
        assert!(!asked.tinwright(&["lease", "list"]).unwrap().contains(&own));
    });
}

#[test]
fn machines_without_a_record_are_listed_until_they_have_one() {
    lending(async |network, asked| {
        let (own, sent) = leased_after(network, 1);
        let mut unknown = UnknownMachineServiceClient::new(asked.0.clone());
        let mut listed = async || {
            let request = hw::ListUnknownMachinesRequest::default();
            let listed = unknown.list_unknown_machines(request).await.unwrap();
            listed.into_inner().unknown_machines
        };
        let pause = || tokio::time::sleep(std::time::Duration::from_millis(50));
        let reported = async {
            loop {
                if let [stranger] = &listed().await[..] {
                    break stranger.clone();
                }
                pause().await;
            }
        };
        let stranger = soon(reported).await;
        assert_eq!((stranger.mac.as_str(), stranger.relay.as_str()), (MACS[1], ""));
        assert!((1..=sent).contains(&stranger.requests), "{sent} were sent: {stranger:?}");
        assert_eq!(stranger.reason(), hw::unknown_machine::Reason::NoReport);

        let made = HardwareServiceClient::new(asked.0.clone())
            .create_hardware(machine(MACS[1], "198.51.100.50"))
            .await;
        let id = made.unwrap().into_inner().hardware.unwrap().id;
        let known = async {
            while asked.lease(LeaseBy::Mac(MACS[1].into())).await.unwrap().hardware_id != id {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        soon(known).await;
        assert_eq!(asked.lease(LeaseBy::Address(own)).await.unwrap().hardware_id, id);
        let gone = async {
            while !listed().await.is_empty() {
                pause().await;
            }
        };
        soon(gone).await;
    });
}

#[test]
fn what_a_machine_in_a_pool_is_answered_is_explained_before_and_after() {
    lending(async |network, asked| {
        let explained = asked.boot(By::Mac(MACS[0].into()), None).await.unwrap();
        let would = explained.dhcp.clone().unwrap().address;
        assert_eq!(
            (explained.boot(), explained.script.clone().unwrap().status),
            (pb::BootTarget::Generic, 200)
        );
        let looked = explained.inputs.unwrap();
        assert_eq!(
            (looked.pool.as_str(), looked.pool_unknown()),
            ("198.51.100.0/24", pb::decision_inputs::UnknownClients::Enrol)
        );
        assert_eq!(looked.lease_address, "");

        assert_eq!(udhcpc(network, 0), would, "as it was explained");
        let explained = asked.boot(By::Address(would.clone()), None).await.unwrap();
        let looked = explained.inputs.unwrap();
        assert_eq!(
            (looked.mac.as_str(), looked.lease_state()),
            (MACS[0], pb::decision_inputs::LeaseState::Bound)
        );

        let circuit_id = "6".into();
        let relay = pb::RelayAgent { address: "here".into(), circuit_id, ..Default::default() };
        let wrong = asked.boot(By::Mac(MACS[0].into()), Some(relay)).await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
        for field in ["relay.address: is not an IPv4 address", "relay.circuit_id: is not hex"] {
            assert!(wrong.message().contains(field), "{wrong}");
        }
        // The network behind that relay has no leased addresses.
        let relay = pb::RelayAgent { address: "192.0.2.254".into(), ..Default::default() };
        let explained = asked.boot(By::Mac(MACS[0].into()), Some(relay)).await.unwrap();
        assert_eq!(
            (explained.dhcp.as_ref().unwrap().drop_reason.as_str(), explained.boot()),
            ("no record of this machine", pb::BootTarget::Unknown)
        );
    });
}

#[test]
fn whom_an_address_is_taken_for_is_explained() {
    lending(async |network, asked| {
        let made = HardwareServiceClient::new(asked.0.clone())
            .create_hardware(machine(MACS[0], "198.51.100.50"))
            .await;
        let id = made.unwrap().into_inner().hardware.unwrap().id;
        network.set(0, "addr add 198.51.100.50/24 dev eth0");
        let at = |address: &str| asked.metadata(md_by::By::Address(address.into()));
        let known = async {
            while at("198.51.100.50").await.unwrap().hardware_id != id {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        soon(known).await;
        let explained = asked.metadata(md_by::By::HardwareId(id.clone())).await.unwrap();
        assert_eq!(
            (explained.hardware_id.as_str(), explained.instance_id.as_str()),
            (id.as_str(), "")
        );
        let [source] = &explained.sources[..] else { panic!("{explained:?}") };
        assert_eq!(
            (source.address.as_str(), source.answered),
            ("198.51.100.50", true),
            "{source:?}"
        );
        assert!(explained.feed.unwrap().live && explained.guard.unwrap().source_check == "on_link");

        let nobody = at("198.51.100.51").await.unwrap();
        assert_eq!((nobody.hardware_id.as_str(), nobody.sources[0].answered), ("", false));
        assert_eq!(nobody.sources[0].fact, "no machine has this address: 404");
        let wrong = at("here").await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
        let unknown = asked.metadata(md_by::By::Hostname("nowhere".into())).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
    });
}
