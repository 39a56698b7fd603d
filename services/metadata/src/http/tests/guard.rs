//! Source checks, the user data window, metrics, and explanations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;
use crate::guard::Guard;
use fleet::BoundLease;
use runtime::feed::FeedEvent;
use runtime::neighbour::{NeighbourCheck, Neighbours};
use tinwright::hardware::v1 as hw;
use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::metadata::v1::metadata_service_server::MetadataService as _;
use tonic::Code;

/// Every address has this owner.
#[derive(Debug)]
struct OneOwner(NeighbourCheck);

impl Neighbours for OneOwner {
    fn lookup_cached(&self, _: std::net::IpAddr) -> Option<NeighbourCheck> {
        None
    }

    fn lookup(&self, _: std::net::IpAddr) -> NeighbourCheck {
        self.0
    }
}

/// A service with metrics for node1 with this guard, whose address has the owner `neighbour`.
fn guarded(guard: Guard, neighbour: NeighbourCheck) -> (Site, Registry) {
    let machine = Machine { guard, ..node1() };
    let mut site = site_with(vec![machine], Reports::default(), Config::default());
    let mut registry = Registry::default();
    let service = Arc::get_mut(&mut site.service).unwrap();
    service.metrics = Metrics::new(&mut registry, site.index.clone(), Clock::system());
    service.neighbours = Some(Arc::new(OneOwner(neighbour)));
    (site, registry)
}

fn page(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[tokio::test]
async fn a_foreign_ethernet_address_is_refused_at_every_path() {
    let other = NeighbourCheck::Owner("52:54:00:00:00:99".parse().unwrap());
    let (site, registry) = guarded(Guard::default(), other);
    for path in ["/latest/", "/latest/user-data", "/latest/meta-data/mac"] {
        site.get(path).await.refused(403);
    }
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60")]).await.refused(403);
    site.call_home("").await.refused(403);
    let stolen = Tokens::new(&runtime::SiteKey::new([7; 32]))
        .unwrap()
        .mint("i-0001", 60, SystemTime::now())
        .unwrap();
    site.get_with(&stolen).await.refused(403);
    assert!(site.reports.calls.lock().unwrap().is_empty());
    let page = page(&registry);
    assert!(page.contains("metadata_denied_total{reason=\"foreign_neighbour\"} 6"), "{page}");
}

#[tokio::test]
async fn a_token_from_before_the_revocation_is_refused() {
    let site = site_of(TokenPolicy::Required);
    let token = site.token().await;
    site.get_with(&token).await.assert_body("i-0001");
    let tokens_revoked = Some(SystemTime::now() + Duration::from_secs(1));
    let guard = Guard { tokens_revoked, ..Guard::default() };
    let tokens = TokenPolicy::Required;
    site.index.put(Machine { tokens, guard, ..node1() });
    site.get_with(&token).await.refused(401);
}

/// User data is served for `seconds` after the first read by an instance that was installed at `installed`.
fn windowed(seconds: u64, installed: Option<u64>) -> Guard {
    let installed = installed.map(|at| SystemTime::UNIX_EPOCH + Duration::from_secs(at));
    let user_data_window = Some(Duration::from_secs(seconds));
    Guard { user_data_window, installed, ..Guard::default() }
}

impl Site {
    /// Changes the guard of node1.
    fn put(&self, guard: Guard) {
        self.index.put(Machine { guard, ..node1() });
    }
}

#[tokio::test]
async fn user_data_is_served_until_the_machine_has_phoned_home() {
    let guard = windowed(3600, Some(1));
    let (site, _) = guarded(guard, NeighbourCheck::Unchecked);
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    assert_eq!(site.call_home("").await.status, 200);
    site.get("/latest/user-data").await.refused(404);
    site.get("/latest/").await.assert_body("dynamic\nmeta-data");
    let (site, _) = guarded(Guard { called_home: true, ..guard }, NeighbourCheck::Unchecked);
    site.get("/latest/user-data").await.refused(404);
}

#[tokio::test]
async fn user_data_is_served_for_the_window_of_the_policy() {
    let guard = windowed(0, Some(1));
    let (site, _) = guarded(guard, NeighbourCheck::Unchecked);
    site.get("/latest/meta-data/instance-id").await.assert_body("i-0001");
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
    // The next instance has a window of its own.
    let mut next = Machine { guard, ..node1() };
    next.instance.as_mut().unwrap().id = "i-0002".into();
    site.index.put(next);
    site.get("/latest/user-data").await.assert_body(USER_DATA);
}

#[tokio::test]
async fn reads_of_the_installer_do_not_begin_the_window() {
    let (site, _) = guarded(windowed(0, None), NeighbourCheck::Unchecked);
    for path in ["/latest/user-data", "/userdata", "/latest/user-data"] {
        site.get(path).await.assert_body(USER_DATA);
    }
    site.put(Guard { called_home: true, ..windowed(0, None) });
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.put(windowed(0, Some(1)));
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
}

#[tokio::test]
async fn an_instance_that_is_installed_again_has_a_new_window() {
    let (site, _) = guarded(windowed(0, Some(1)), NeighbourCheck::Unchecked);
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
    site.put(windowed(0, None));
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    for installed in [2, 3] {
        site.put(windowed(0, Some(installed)));
        site.get("/latest/user-data").await.assert_body(USER_DATA);
        site.get("/latest/user-data").await.refused(404);
    }
}

#[tokio::test]
async fn a_phone_home_call_does_not_close_the_window_of_the_next_installation() {
    let (site, _) = guarded(windowed(3600, Some(1)), NeighbourCheck::Unchecked);
    assert_eq!(site.call_home("").await.status, 200);
    site.get("/latest/user-data").await.refused(404);
    for installed in [None, Some(2)] {
        site.put(windowed(3600, installed));
        site.get("/latest/user-data").await.assert_body(USER_DATA);
    }
}

#[tokio::test]
async fn reported_progress_changes_nothing() {
    let site = site();
    for path in ["/events", "/phone-home/events"] {
        let answer = site.send_body(NODE1, "POST", path, &[], r#"{"state":"running"}"#).await;
        answer.assert_body("{}");
        site.get(path).await.refused(405);
    }
    assert!(site.reports.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn every_metric_counts() {
    let (site, registry) = guarded(Guard::default(), NeighbourCheck::Unchecked);
    let token = site.token().await;
    site.get_with(&token).await.assert_body("i-0001");
    site.get_with(&token).await.assert_body("i-0001");
    site.get_with("bad").await.refused(401);
    site.get("/latest/user-data").await.assert_body(USER_DATA);
    site.call_home("").await.assert_body("{}");
    site.send(UNKNOWN, "GET", "/latest/", &[]).await.refused(404);
    let live = page(&registry);
    for line in [
        "metadata_requests_total{route=\"meta_data\",code=\"200\"} 2",
        "metadata_requests_total{route=\"meta_data\",code=\"401\"} 1",
        "metadata_requests_total{route=\"token\",code=\"200\"} 1",
        "metadata_lookup_misses_total{segment=\"\"} 1",
        "metadata_tokens_total{result=\"made\"} 1",
        "metadata_tokens_total{result=\"good\"} 2",
        "metadata_tokens_total{result=\"foreign\"} 1",
        "metadata_denied_total{reason=\"session\"} 1",
        "metadata_firsts_total{event=\"metadata_crawled\"} 1",
        "metadata_firsts_total{event=\"metadata_user_data_read\"} 1",
        "metadata_firsts_total{event=\"phone_home\"} 1",
        "metadata_reply_seconds_count 7",
        "metadata_feed_connected 1",
        "metadata_feed_age_seconds 0",
    ] {
        assert!(live.contains(line), "{line}\n{live}");
    }
    site.index.disconnect(Instant::now().checked_sub(Duration::from_secs(90)).unwrap());
    let cut = page(&registry);
    assert!(cut.contains("metadata_feed_connected 0"), "{cut}");
    assert!(cut.contains("metadata_feed_age_seconds 9"), "{cut}");
}

/// node2 with an instance and the address of node1.
fn node2_at_node1() -> Machine {
    let mut machine = Machine { nics: node1().nics, ..node2() };
    machine.instance = node1().instance;
    let instance = machine.instance.as_mut().unwrap();
    (instance.id, instance.user_data.0) = ("i-0002".into(), "secret of node2".into());
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reassigned_address_never_serves_the_new_owners_data_to_the_old_one() {
    // The reader sends as many requests as it can while the writer works.
    let config = Config { rate_limits: false, ..Config::default() };
    let machine = Machine { tokens: TokenPolicy::Required, ..node1() };
    let site = site_with(vec![machine], Reports::default(), config);
    let token = site.token().await;
    let (index, done) = (site.index.clone(), Arc::new(AtomicBool::new(false)));
    let ended = done.clone();
    let writer = std::thread::spawn(move || {
        let old = Machine { tokens: TokenPolicy::Required, ..node1() };
        let new = Machine { tokens: TokenPolicy::Required, ..node2_at_node1() };
        for _ in 0..2000 {
            index.views.update(|snapshot| {
                snapshot.remove(old.id);
                snapshot.put(new.id, vec![new.clone()], &[]);
            });
            index.remove(new.id);
            index.put(old.clone());
        }
        ended.store(true, Ordering::Relaxed);
    });
    let mut answers = std::collections::BTreeMap::<u16, usize>::new();
    while !done.load(Ordering::Relaxed) {
        let answer = site.send(NODE1, "GET", "/latest/user-data", &[(TOKEN, &token)]).await;
        match answer.status {
            200 => answer.assert_body(USER_DATA),
            status => answer.refused(status),
        }
        *answers.entry(answer.status).or_default() += 1;
    }
    writer.join().unwrap();
    site.send(NODE1, "GET", "/latest/user-data", &[(TOKEN, &token)]).await.assert_body(USER_DATA);
    assert!(!answers.is_empty());
}

impl Site {
    /// Calls the API.
    async fn explain(&self, by: By) -> Result<pb::ExplainMetadataResponse, Code> {
        let request = tonic::Request::new(pb::ExplainMetadataRequest { by: Some(by) });
        let explained = crate::Api(self.service.clone()).explain_metadata(request).await;
        explained.map(tonic::Response::into_inner).map_err(|status| status.code())
    }
}

#[tokio::test]
async fn explanations_agree_with_responses() {
    let own = NeighbourCheck::Owner(node1().nics[0].mac);
    for (neighbour, answered) in
        [(own, true), (NeighbourCheck::NoOwner, false), (NeighbourCheck::Routed, true)]
    {
        let (site, _) = guarded(Guard::default(), neighbour);
        let explained = site.explain(By::Address(NODE1.into())).await.unwrap();
        assert_eq!(explained.sources[0].answered, answered, "{explained:?}");
        assert_eq!((explained.instance_id.as_str(), explained.sources.len()), ("i-0001", 1));
        assert_eq!(site.get("/latest/meta-data/mac").await.status == 200, answered);
    }
}

#[tokio::test]
async fn a_machine_is_explained_by_id_host_name_or_address() {
    let hop_limit = Some(1);
    let (site, _) = guarded(Guard { hop_limit, ..Guard::default() }, NeighbourCheck::Unchecked);
    for by in [By::HardwareId(node1().id.to_string()), By::Hostname("node1.lab".into())] {
        let explained = site.explain(by).await.unwrap();
        assert_eq!((explained.hardware_id, explained.sources.len()), (node1().id.to_string(), 4));
        let guard = explained.guard.unwrap();
        assert_eq!((guard.hop_limit, guard.user_data_served), (1, true));
        assert!(explained.feed.unwrap().live);
    }
    assert_eq!(site.explain(By::Hostname("x".into())).await, Err(Code::NotFound));
    assert_eq!(site.explain(By::HardwareId("x".into())).await, Err(Code::InvalidArgument));
    let explained = site.explain(By::Address(UNKNOWN.into())).await.unwrap();
    assert_eq!((explained.hardware_id.as_str(), explained.guard), ("", None));
    assert_eq!(explained.sources[0].fact, "no machine has this address: 404");
}

#[tokio::test]
async fn a_free_machine_is_explained_by_its_name_and_gets_no_answer() {
    let (site, _) = guarded(Guard::default(), NeighbourCheck::NoOwner);
    let free = hw::Address { address: "198.51.100.12".into(), ..hw::Address::default() };
    let dhcp = Some(hw::Dhcp { address: Some(free), ..hw::Dhcp::default() });
    let mac = "52:54:00:00:00:12".into();
    let id = tinwright::HardwareId::new();
    let mut machine = hw::Hardware {
        id: id.to_string(),
        name: "node-2".into(),
        interfaces: vec![hw::Interface { mac, dhcp, ..hw::Interface::default() }],
        ..hw::Hardware::default()
    };
    machine.set_state(hw::State::Provisionable);
    let fleet = fleet::Fleet::new(vec![site.index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![machine]));
    fleet.instance(FeedEvent::Snapshot(Vec::new()));
    for by in [
        By::HardwareId(id.to_string()),
        By::Hostname("node-2".into()),
        By::Address("198.51.100.12".into()),
    ] {
        let explained = site.explain(by).await.unwrap();
        assert_eq!((explained.hardware_id, explained.instance_id), (id.to_string(), String::new()));
        let source = &explained.sources[0];
        assert_eq!(source.fact, "node-2 has this address, and is free (no instance): 404");
        assert!(!source.answered && explained.guard.is_none());
    }
    fleet.hardware(FeedEvent::Deleted(id.to_string()));
    assert_eq!(site.explain(By::Hostname("node-2".into())).await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_refused_owner_is_described_in_words() {
    let other = "52:54:00:00:00:99";
    for (neighbour, words) in [
        (NeighbourCheck::NoOwner, "(nobody on our link has it)"),
        (NeighbourCheck::Owner(other.parse().unwrap()), "(52:54:00:00:00:99 has it)"),
    ] {
        let (site, _) = guarded(Guard::default(), neighbour);
        let explained = site.explain(By::Address(NODE1.into())).await.unwrap();
        let fact = &explained.sources[0].fact;
        assert!(fact.ends_with(&format!("{words}: 403")), "{fact}");
    }
}

/// A service for node1 without an address of its own, but with a lease of one, which has the owner `neighbour`.
fn leasing(guard: Guard, neighbour: NeighbourCheck, lease: BoundLease) -> Site {
    let (site, _) = guarded(guard, neighbour);
    let mut machine = Machine { guard, ..node1() };
    machine.nics[0].addresses.clear();
    machine.instance.as_mut().unwrap().addresses.clear();
    site.index.replace([machine]);
    site.index.replace_leases([(UNKNOWN.parse().unwrap(), lease)]);
    site
}

fn lease(at_port: bool) -> BoundLease {
    let until = Instant::now() + Duration::from_secs(3600);
    BoundLease { mac: node1().nics[0].mac, until, at_port }
}

#[tokio::test]
async fn a_leased_address_identifies_its_machine_and_not_its_neighbour() {
    let own = NeighbourCheck::Owner(node1().nics[0].mac);
    let site = leasing(Guard::default(), own, lease(false));
    let get = |path| site.send(UNKNOWN, "GET", path, &[]);
    get("/latest/meta-data/instance-id").await.assert_body("i-0001");
    get("/latest/user-data").await.assert_body(USER_DATA);
    get("/latest/meta-data/local-ipv4").await.assert_body(UNKNOWN);
    let macs = "/latest/meta-data/network/interfaces/macs/52:54:00:00:00:01/local-ipv4s";
    get(macs).await.assert_body(UNKNOWN);
    let other = NeighbourCheck::Owner("52:54:00:00:00:99".parse().unwrap());
    let site = leasing(Guard::default(), other, lease(false));
    site.send(UNKNOWN, "GET", "/latest/user-data", &[]).await.refused(403);
}

#[tokio::test]
async fn a_leased_address_is_configured_by_dhcp_only() {
    let site = leasing(Guard::default(), NeighbourCheck::Unchecked, lease(false));
    let answer = site.send(UNKNOWN, "GET", "/nocloud/network-config", &[]).await;
    assert!(
        answer.body.contains("dhcp4: true") && !answer.body.contains(UNKNOWN),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn the_port_check_requires_a_lease_from_the_relay_port() {
    let guard = Guard { source: Some(SourceCheck::Port), ..Guard::default() };
    let path = "/latest/meta-data/instance-id";
    let site = leasing(guard, NeighbourCheck::Routed, lease(true));
    site.send(UNKNOWN, "GET", path, &[]).await.assert_body("i-0001");
    let site = leasing(guard, NeighbourCheck::Routed, lease(false));
    site.send(UNKNOWN, "GET", path, &[]).await.refused(403);
    let (site, _) = guarded(guard, NeighbourCheck::Routed);
    site.get(path).await.refused(403);
}
