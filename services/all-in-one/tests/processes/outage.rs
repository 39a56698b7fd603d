//! An edge that is restarted while the control plane is unreachable: it uses its feed cache. A server whose store does not answer: it opens no boot.

use tinwright::netboot::v1 as nb;
use tinwright::netboot::v1::netboot_service_client::NetbootServiceClient;

use super::network::{Network, OURS};
use super::peer::{Peer, free_port};
use super::process::{Place, arguments, soon};
use super::scripts::{get, occupied};

const MAC: &str = "52:54:00:00:00:01";
const MACHINE: &str = "198.51.100.50";

/// Returns the line of the DHCP client with the leased address.
fn lease(network: &Network) -> String {
    let output = network.run(0, "busybox udhcpc -i eth0 -n -q -f -t 20 -T 2 -s /bin/true");
    let lease = output.lines().find(|line| line.contains("obtained"));
    lease.unwrap_or_else(|| panic!("no lease: {output}")).to_owned()
}

/// Returns the arguments of a process that serves only machines, with the control plane at `api`.
fn edge(api: &str) -> Vec<String> {
    let (peers, metadata) = (format!("https://{api}"), format!("{OURS}:8080"));
    let served = ["--only", "netboot,metadata", "--netboot-interface", "br0"];
    arguments(&[&served[..], &["--metadata-listen", &metadata, "--peers", &peers]].concat())
}

#[test]
fn an_edge_started_without_the_control_plane_leases_tells_and_opens_no_boot() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let api = format!("{OURS}:{}", free_port());
        let control = Place::new().start(&arguments(&["--listen", &api])).await;
        let (flags, metadata) = (edge(&api), format!("{OURS}:8080"));
        let edge = Place::new().with_secrets_of(&control.place, &["ca-key.pem"]);
        let edge = edge.start(&flags).await;
        let instance = occupied(&control, MAC, MACHINE, true).await;

        let script = format!("http://{OURS}:7080/52-54-00-00-00-01/auto.ipxe");
        let name = format!("http://{metadata}/latest/meta-data/instance-id");
        network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
        let known = async {
            while get(&network, &script).0 != "200" || get(&network, &name).1 != instance.id {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(known).await;
        let leased = lease(&network);
        assert!(leased.contains(MACHINE), "{leased}");

        control.kill();
        let place = edge.terminate();
        assert!(!get(&network, &script).0.starts_with('2'), "nobody answers");
        let _edge = place.start(&flags).await;
        assert_eq!(lease(&network), leased);
        assert_eq!(get(&network, &script), ("503".into(), String::new()));
        assert_eq!(get(&network, &name), ("200".into(), instance.id));
        let userdata = get(&network, &format!("http://{metadata}/latest/user-data"));
        assert_eq!(userdata, ("200".into(), "#cloud-config".into()), "for a quarter of an hour");
    });
}

#[test]
fn an_edge_started_without_its_etcd_leases_tells_and_records_boots_later() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let mut etcd = Peer::start().await;
        let api = format!("{OURS}:{}", free_port());
        let control = Place::new().start(&arguments(&["--listen", &api])).await;
        let store = arguments(&["--store", "etcd", "--etcd-endpoints", &etcd.url()]);
        let flags = [edge(&api), store].concat();
        let edge = Place::new().with_secrets_of(&control.place, &["ca-key.pem"]);
        let edge = edge.start(&flags).await;
        let instance = occupied(&control, MAC, MACHINE, true).await;
        network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
        let name = format!("http://{OURS}:8080/latest/meta-data/instance-id");
        let known = async {
            while get(&network, &name).1 != instance.id {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(known).await;

        etcd.kill();
        let edge = edge.terminate().start(&flags).await;
        assert!(lease(&network).contains(MACHINE));
        assert_eq!(get(&network, &name), ("200".into(), instance.id));
        let mut boots = NetbootServiceClient::new(edge.channel_of(&control).await);
        let away = boots.list_boots(nb::ListBootsRequest::default()).await.unwrap_err();
        assert_eq!(away.code(), tonic::Code::Unavailable, "{away}");

        let script = format!("http://{OURS}:7080/52-54-00-00-00-01/auto.ipxe");
        assert_eq!(get(&network, &script).0, "200", "the control plane is there");
        etcd.start_again().await;
        let kept = async {
            loop {
                let listed = boots.list_boots(nb::ListBootsRequest::default()).await;
                if listed.is_ok_and(|listed| !listed.into_inner().boots.is_empty()) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(kept).await;
    });
}

#[test]
fn a_server_whose_etcd_does_not_answer_opens_no_boot_until_it_has_read_everything_again() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let mut etcd = Peer::start().await;
        let listen = format!("{OURS}:{}", free_port());
        let served = ["--netboot-interface", "br0", "--listen", &listen];
        let store = ["--store", "etcd", "--etcd-endpoints", &etcd.url()];
        let control = Place::new().start(&arguments(&[&served[..], &store].concat())).await;
        occupied(&control, MAC, MACHINE, true).await;
        network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
        let script = format!("http://{OURS}:7080/52-54-00-00-00-01/auto.ipxe");
        let answers = async |status: &str| {
            while get(&network, &script).0 != status {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        soon(answers("200")).await;
        etcd.pause();
        soon(answers("503")).await;
        assert_eq!(get(&network, &script), ("503".into(), String::new()));
        assert!(lease(&network).contains(MACHINE), "the addresses of machines do not change");
        etcd.resume();
        soon(answers("200")).await;
        etcd.kill();
        soon(answers("503")).await;
        etcd.start_again().await;
        soon(answers("200")).await;
    });
}
