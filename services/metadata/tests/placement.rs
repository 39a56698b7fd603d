//! Link-local addresses, neighbour checks and hop limits, on links of network namespaces.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

#[path = "fixture/lan.rs"]
mod lan;
#[path = "fixture/machines.rs"]
mod machines;

use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryFutureExt as _;
use hyper_util::rt::TokioIo;
use metadata::guard::Guard;
use metadata::machine::TokenPolicy;
use metadata::{Hegel, Index, Machine, Service, serve, serve_calls};
use runtime::Clock;
use runtime::neighbour::{NeighbourCheck, NeighbourTable, Neighbours as _, SourceCheck};
use tinwright::hegel::GetRequest;
use tinwright::hegel::hegel_client::HegelClient;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::{Endpoint, Uri};

use lan::{Lan, SERVICE};
use machines::{Discard, Feed as _, USER_DATA, node1};

const MAC: &str = "52:54:00:00:00:01";
const OTHER: &str = "52:54:00:00:00:99";
const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds: 60";

fn neighbour_table(lan: &Lan) -> NeighbourTable {
    lan.within(SERVICE, || NeighbourTable::open(Clock::system()).unwrap())
}

/// A service for `machine` in the service's namespace.
fn service(lan: &Lan, machine: Machine) -> Arc<Service> {
    let index = Arc::new(Index::default());
    index.replace([machine]);
    let mut service = machines::service(index, Arc::new(Discard));
    service.neighbours = Some(Arc::new(neighbour_table(lan)));
    Arc::new(service)
}

/// Serves `machine` at `address` of the link, until the token is dropped.
fn start(lan: &Lan, machine: Machine, address: &'static str) -> tokio_util::sync::DropGuard {
    let stop = CancellationToken::new();
    tokio::spawn(serve(lan.listen(address), service(lan, machine), stop.clone()));
    stop.drop_guard()
}

/// Does the same over Hegel's gRPC.
fn start_calls(lan: &Lan, machine: Machine, address: &'static str) -> tokio_util::sync::DropGuard {
    let service = service(lan, machine);
    let (stop, listener) = (CancellationToken::new(), lan.listen(address));
    let hegel = Hegel::new(service.clone(), stop.clone()).into_service();
    let (calls, until) = (Routes::new(hegel).into_axum_router(), stop.clone());
    tokio::spawn(async move { serve_calls(listener, &service, calls, until).await });
    stop.drop_guard()
}

/// Returns the response to a call from `host`.
async fn call(lan: &Lan, host: &str, address: &'static str) -> Result<String, Code> {
    let stream = lan.within(host, move || TcpStream::connect(address).unwrap());
    stream.set_nonblocking(true).unwrap();
    let mut stream = Some(tokio::net::TcpStream::from_std(stream).unwrap());
    let once = tower::service_fn(move |_: Uri| {
        let stream = stream.take().map(TokioIo::new);
        std::future::ready(stream.ok_or(std::io::ErrorKind::NotConnected))
            .map_err(std::io::Error::from)
    });
    let endpoint = Endpoint::from_static("http://hegel");
    let channel = endpoint.connect_with_connector(once).await.unwrap();
    let response = HegelClient::new(channel).get(GetRequest {}).await;
    response.map(|response| response.into_inner().json).map_err(|status| status.code())
}

const CALLS: &str = "198.51.100.1:42115";

#[tokio::test(flavor = "multi_thread")]
async fn calls_from_an_address_with_another_mac_are_refused() {
    let mut lan = Lan::new();
    lan.plug("a", MAC, "198.51.100.50/24");
    let _service = start_calls(&lan, node1(), CALLS);
    let document = call(&lan, "a", CALLS).await.unwrap();
    assert!(document.contains(&node1().id.to_string()), "{document}");
    lan.ip("-n a link set eth0 down");
    lan.plug("b", OTHER, "198.51.100.50/24");
    lan.ip("-n s neigh flush dev br0");
    assert_eq!(call(&lan, "b", CALLS).await, Err(Code::PermissionDenied));
}

/// Waits until the owner of `address` is cached.
fn wait_until_cached(table: &NeighbourTable, address: IpAddr) {
    let began = Instant::now();
    loop {
        table.lookup(address);
        if table.cached(address).is_some() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{address} is not cached");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_owner_is_cached_until_it_changes() {
    let mut lan = Lan::new();
    lan.plug("a", MAC, "198.51.100.50/24");
    let table = neighbour_table(&lan);
    let address = "198.51.100.50".parse().unwrap();
    let holds = |mac: &str| NeighbourCheck::Owner(mac.parse().unwrap());
    let replace = format!("-n s neigh replace 198.51.100.50 lladdr {OTHER} dev br0 nud reachable");
    for (change, owner) in [
        (replace.as_str(), holds(OTHER)),
        ("-n s neigh del 198.51.100.50 dev br0", holds(MAC)),
        ("-n s neigh flush dev br0", holds(MAC)),
        ("-n s route add 198.51.100.50/32 via 198.51.100.2", NeighbourCheck::Routed),
        ("-n s route del 198.51.100.50/32", holds(MAC)),
        ("-n s addr add 198.51.100.50/32 dev br0", NeighbourCheck::OwnHost),
    ] {
        wait_until_cached(&table, address);
        lan.ip(change);
        assert_eq!(table.cached(address), None, "{change}");
        assert_eq!(table.lookup(address), owner, "{change}");
    }
}

#[test]
fn a_notification_queue_that_overflows_clears_the_cache() {
    let mut lan = Lan::new();
    lan.plug("a", MAC, "198.51.100.50/24");
    let table = neighbour_table(&lan);
    let address = "198.51.100.50".parse().unwrap();
    wait_until_cached(&table, address);
    // Notifications about other addresses fill the queue before the one that counts.
    let (folder, mut others) = (tempfile::tempdir().unwrap(), String::new());
    for host in 0..1000 {
        let (third, fourth) = (host / 250, host % 250);
        others += &format!("neigh replace 10.9.{third}.{fourth} lladdr {OTHER} dev br0\n");
    }
    others += &format!("neigh replace {address} lladdr {OTHER} dev br0\n");
    let file = folder.path().join("batch");
    std::fs::write(&file, others).unwrap();
    lan.ip(&format!("-n s -batch {}", file.to_str().unwrap()));
    assert_eq!(table.cached(address), None);
    assert_eq!(table.lookup(address), NeighbourCheck::Owner(OTHER.parse().unwrap()));
}

const ON_LINK: &str = "198.51.100.1:50061";
const INSTANCE_ID: &str = "http://198.51.100.1:50061/latest/meta-data/instance-id";
const USER: &str = "http://198.51.100.1:50061/latest/user-data";

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_an_address_with_another_mac_are_refused() {
    let mut lan = Lan::new();
    lan.plug("a", MAC, "198.51.100.50/24");
    let _service = start(&lan, node1(), ON_LINK);
    assert_eq!(lan.curl("a", &[USER]).as_deref(), Ok(USER_DATA));
    lan.ip("-n a link set eth0 down");
    lan.plug("b", OTHER, "198.51.100.50/24");
    lan.ip("-n s neigh flush dev br0");
    for path in [USER, INSTANCE_ID] {
        assert_eq!(lan.status("b", &[path]).as_deref(), Ok("403 0"), "{path}");
    }
    let put = ["-X", "PUT", "-H", TTL, "http://198.51.100.1:50061/latest/api/token"];
    assert_eq!(lan.status("b", &put).as_deref(), Ok("403 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_accept_an_address_alone() {
    let mut lan = Lan::new();
    lan.plug("b", OTHER, "198.51.100.50/24");
    let source = Some(SourceCheck::Address);
    let guard = Guard { source, ..Guard::default() };
    let _service = start(&lan, Machine { guard, ..node1() }, ON_LINK);
    assert_eq!(lan.curl("b", &[INSTANCE_ID]).as_deref(), Ok("i-0001"));
}

/// A machine behind a router.
fn behind_a_router() -> Lan {
    let mut lan = Lan::new();
    lan.plug("r", "52:54:00:00:00:fe", "198.51.100.2/24");
    lan.add("a");
    lan.ip(&format!("-n r link add eth1 type veth peer name eth0 netns {}", lan.full("a")));
    lan.ip("-n r addr add 192.0.2.1/24 dev eth1");
    lan.ip("-n r link set eth1 up");
    lan.ip(&format!("-n a link set eth0 address {MAC} up"));
    lan.ip("-n a addr add 192.0.2.9/24 dev eth0");
    lan.ip("-n a route add default via 192.0.2.1");
    lan.ip("-n s route add 192.0.2.0/24 via 198.51.100.2");
    let forward = ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"];
    assert!(lan.run("r", &forward).status.success());
    lan
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_a_hop_limit_of_one_does_not_pass_a_router() {
    let put = ["-X", "PUT", "-H", TTL, "http://198.51.100.1:50061/latest/api/token"];
    let put_briefly = [&["--max-time", "4"], &put[..]].concat();
    for (hop_limit, arrives) in [(Some(1), false), (Some(2), true), (None, true)] {
        let lan = behind_a_router();
        let guard = Guard { hop_limit, ..Guard::default() };
        let _service = start(&lan, Machine { guard, ..node1() }, ON_LINK);
        assert_eq!(lan.curl("a", &[INSTANCE_ID]).as_deref(), Ok("i-0001"));
        let token = lan.curl("a", if arrives { &put[..] } else { &put_briefly[..] });
        // 28: curl timed out.
        assert_eq!(token.is_ok(), arrives, "{hop_limit:?}: {token:?}");
        assert!(arrives || token == Err(28), "{token:?}");
        assert_eq!(lan.curl("a", &[INSTANCE_ID]).as_deref(), Ok("i-0001"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_check_refuses_machines_behind_a_router() {
    let lan = behind_a_router();
    let guard = Guard { source: Some(SourceCheck::Neighbour), ..Guard::default() };
    let machine = Machine { guard, tokens: TokenPolicy::Optional, ..node1() };
    let _service = start(&lan, machine, ON_LINK);
    assert_eq!(lan.status("a", &[INSTANCE_ID]).as_deref(), Ok("403 0"));
}

const LINK_LOCAL: &str = "169.254.169.254:80";

/// Adds the metadata addresses to `interface` of the service's namespace, recorded in `file`.
fn add_link_local(
    lan: &Lan,
    interface: &'static str,
    file: &std::path::Path,
) -> Result<metadata::link_local::LinkLocal, String> {
    let file = file.to_owned();
    lan.within(SERVICE, move || {
        let added = metadata::link_local::LinkLocal::add(interface, &file);
        added.map_err(|error| error.to_string())
    })
}

fn addresses(lan: &Lan, interface: &str) -> Vec<bool> {
    let shown = lan.ip(&format!("-n s addr show dev {interface}"));
    ["169.254.169.254/32", "fd00:ec2::254/128"].map(|one| shown.contains(one)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_are_removed_when_they_are_dropped() {
    let (lan, folder) = (Lan::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("added.json");
    let held = add_link_local(&lan, "br0", &file).unwrap();
    assert_eq!((addresses(&lan, "br0"), held.addresses().len()), (vec![true, true], 2));
    drop(held);
    assert_eq!((addresses(&lan, "br0"), file.exists()), (vec![false, false], false));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_a_killed_process_are_removed_by_the_next() {
    let (lan, folder) = (Lan::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("added.json");
    lan.ip("-n s link add other type bridge");
    lan.ip("-n s link set other up");
    // A killed process runs no destructor.
    std::mem::forget(add_link_local(&lan, "other", &file).unwrap());
    assert_eq!(addresses(&lan, "other"), [true, true]);
    let held = add_link_local(&lan, "br0", &file).unwrap();
    assert_eq!((addresses(&lan, "other"), addresses(&lan, "br0")), (vec![false; 2], vec![true; 2]));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_was_there_before_stays() {
    let (lan, folder) = (Lan::new(), tempfile::tempdir().unwrap());
    lan.ip("-n s addr add 169.254.169.254/32 dev br0");
    drop(add_link_local(&lan, "br0", &folder.path().join("added.json")).unwrap());
    assert_eq!(addresses(&lan, "br0"), [true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_other_interface_and_a_missing_one() {
    let (lan, folder) = (Lan::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("added.json");
    lan.ip("-n s addr add 169.254.169.254/32 dev lo");
    let error = add_link_local(&lan, "br0", &file).unwrap_err();
    assert_eq!(error, "169.254.169.254 is on interface lo already, not on br0");
    assert_eq!(add_link_local(&lan, "nic9", &file).unwrap_err(), "interface nic9");
}

/// Routes of the machine to the address: its default route, a host route, and a route of the link-local network.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_to_the_address_identifies_the_machine() {
    for (name, route) in [
        ("default", None),
        ("host", Some("-n a route add 169.254.169.254/32 via 198.51.100.1")),
        ("link-local", Some("-n a route add 169.254.0.0/16 dev eth0 src 198.51.100.50")),
    ] {
        let (mut lan, folder) = (Lan::new(), tempfile::tempdir().unwrap());
        lan.plug("a", MAC, "198.51.100.50/24");
        let held = add_link_local(&lan, "br0", &folder.path().join("added.json")).unwrap();
        route.map(|route| lan.ip(route));
        let _service = start(&lan, node1(), LINK_LOCAL);
        let path = "http://169.254.169.254/latest/meta-data/instance-id";
        assert_eq!(lan.curl("a", &[path]).as_deref(), Ok("i-0001"), "{name}");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_in_the_gateway_identifies_the_machine() {
    let mut lan = Lan::new();
    lan.plug("a", MAC, "198.51.100.50/24");
    let rules = "table ip imds {\n chain pre {\n  type nat hook prerouting priority dstnat; policy accept;\n  \
                 ip daddr 169.254.169.254 tcp dport 80 dnat to 198.51.100.1:50061\n }\n}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("imds.nft");
    std::fs::write(&file, rules).unwrap();
    let loaded = lan.run(SERVICE, &["nft", "-f", file.to_str().unwrap()]);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let _service = start(&lan, node1(), ON_LINK);
    let path = "http://169.254.169.254/latest/meta-data/instance-id";
    assert_eq!(lan.curl("a", &[path]).as_deref(), Ok("i-0001"));
}
