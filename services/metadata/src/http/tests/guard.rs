//! Who is refused, for how long what is told, and what is counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;
use crate::guard::Guard;
use crate::neighbour::Neighbours;
use fleet::BoundLease;

/// Every address is here.
struct At(Place);

impl Neighbours for At {
    fn known(&self, _: std::net::IpAddr) -> Option<Place> {
        None
    }

    fn place(&self, _: std::net::IpAddr) -> Place {
        self.0
    }
}

/// A service that counts, for node1 as `guard` has it, whose address is at `place`.
fn counted(guard: Guard, place: Place) -> (Site, Registry) {
    let (index, told) = (Arc::new(Index::default()), Arc::new(Told::default()));
    index.replace([Machine { guard, ..node1() }]);
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry, index.clone());
    let tokens = Tokens::new(&[7; 32]);
    let service = Service::new(index.clone(), tokens, told.clone(), Config::default());
    let service = Arc::new(service.counted(metrics).watching(Arc::new(At(place))));
    (Site { index, told, service }, registry)
}

fn page(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[tokio::test]
async fn a_machine_with_another_ones_ethernet_address_gets_nothing_at_any_path() {
    let stranger = Place::Holds("52:54:00:00:00:99".parse().unwrap());
    let (site, registry) = counted(Guard::default(), stranger);
    for path in ["/latest/", "/latest/user-data", "/latest/meta-data/mac"] {
        site.get(path).await.refused(403);
    }
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60")]).await.refused(403);
    site.call_home("").await.refused(403);
    let stolen = Tokens::new(&[7; 32]).mint("i-0001", 60, SystemTime::now()).unwrap();
    site.get_with(&stolen).await.refused(403);
    assert!(site.told.calls.lock().unwrap().is_empty());
    let page = page(&registry);
    assert!(page.contains("metadata_denied_total{reason=\"foreign_neighbour\"} 6"), "{page}");
}

#[tokio::test]
async fn a_token_made_before_the_revocation_opens_nothing() {
    let site = site_of(TokenPolicy::Required);
    let token = site.token().await;
    site.get_with(&token).await.says("i-0001");
    let tokens_revoked = Some(SystemTime::now() + Duration::from_secs(1));
    let guard = Guard { tokens_revoked, ..Guard::default() };
    let tokens = TokenPolicy::Required;
    site.index.put(Machine { tokens, guard, ..node1() });
    site.get_with(&token).await.refused(401);
}

/// User data is told for `seconds` after the first reading, by an instance that was installed at `installed`.
fn windowed(seconds: u64, installed: Option<u64>) -> Guard {
    let installed = installed.map(|at| SystemTime::UNIX_EPOCH + Duration::from_secs(at));
    let user_data_window = Some(Duration::from_secs(seconds));
    Guard { user_data_window, installed, ..Guard::default() }
}

impl Site {
    /// node1's record says this from now on.
    fn put(&self, guard: Guard) {
        self.index.put(Machine { guard, ..node1() });
    }
}

#[tokio::test]
async fn user_data_is_told_until_the_machine_has_called_home() {
    let guard = windowed(3600, Some(1));
    let (site, _) = counted(guard, Place::Unseen);
    site.get("/latest/user-data").await.says(USER_DATA);
    site.get("/latest/user-data").await.says(USER_DATA);
    assert_eq!(site.call_home("").await.status, 200);
    site.get("/latest/user-data").await.refused(404);
    site.get("/latest/").await.says("dynamic\nmeta-data");
    let (site, _) = counted(Guard { called_home: true, ..guard }, Place::Unseen);
    site.get("/latest/user-data").await.refused(404);
}

#[tokio::test]
async fn user_data_is_told_for_as_long_as_the_policy_says() {
    let guard = windowed(0, Some(1));
    let (site, _) = counted(guard, Place::Unseen);
    site.get("/latest/meta-data/instance-id").await.says("i-0001");
    site.get("/latest/user-data").await.says(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
    // The next instance has a time of its own.
    let mut next = Machine { guard, ..node1() };
    next.instance.as_mut().unwrap().id = "i-0002".into();
    site.index.put(next);
    site.get("/latest/user-data").await.says(USER_DATA);
}

#[tokio::test]
async fn what_the_installer_reads_is_not_taken_from_the_installed_system() {
    let (site, _) = counted(windowed(0, None), Place::Unseen);
    for path in ["/latest/user-data", "/userdata", "/latest/user-data"] {
        site.get(path).await.says(USER_DATA);
    }
    site.put(Guard { called_home: true, ..windowed(0, None) });
    site.get("/latest/user-data").await.says(USER_DATA);
    site.put(windowed(0, Some(1)));
    site.get("/latest/user-data").await.says(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
}

#[tokio::test]
async fn an_instance_that_is_installed_anew_has_a_time_of_its_own() {
    let (site, _) = counted(windowed(0, Some(1)), Place::Unseen);
    site.get("/latest/user-data").await.says(USER_DATA);
    site.get("/latest/user-data").await.refused(404);
    site.put(windowed(0, None));
    site.get("/latest/user-data").await.says(USER_DATA);
    for installed in [2, 3] {
        site.put(windowed(0, Some(installed)));
        site.get("/latest/user-data").await.says(USER_DATA);
        site.get("/latest/user-data").await.refused(404);
    }
}

#[tokio::test]
async fn a_call_home_takes_nothing_from_the_next_installation() {
    let (site, _) = counted(windowed(3600, Some(1)), Place::Unseen);
    assert_eq!(site.call_home("").await.status, 200);
    site.get("/latest/user-data").await.refused(404);
    for installed in [None, Some(2)] {
        site.put(windowed(3600, installed));
        site.get("/latest/user-data").await.says(USER_DATA);
    }
}

#[tokio::test]
async fn how_far_a_system_is_changes_nothing() {
    let site = site();
    for path in ["/events", "/phone-home/events"] {
        let said = site.send_body(NODE1, "POST", path, &[], r#"{"state":"running"}"#).await;
        said.says("{}");
        site.get(path).await.refused(405);
    }
    assert!(site.told.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn everything_that_is_counted_moves() {
    let (site, registry) = counted(Guard::default(), Place::Unseen);
    let token = site.token().await;
    site.get_with(&token).await.says("i-0001");
    site.get_with(&token).await.says("i-0001");
    site.get_with("bad").await.refused(401);
    site.get("/latest/user-data").await.says(USER_DATA);
    site.call_home("").await.says("{}");
    site.send(STRANGER, "GET", "/latest/", &[]).await.refused(404);
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
        "metadata_latency_seconds_count 7",
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

/// node2 with an instance and node1's address.
fn node2_at_node1s() -> Machine {
    let mut machine = Machine { nics: node1().nics, ..node2() };
    machine.instance = node1().instance;
    let instance = machine.instance.as_mut().unwrap();
    (instance.id, instance.user_data.0) = ("i-0002".into(), "secret of node2".into());
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_changes_hands_never_tells_the_old_owner_a_byte_of_the_new_ones() {
    let site = site_of(TokenPolicy::Required);
    let token = site.token().await;
    let (index, done) = (site.index.clone(), Arc::new(AtomicBool::new(false)));
    let ended = done.clone();
    let writer = std::thread::spawn(move || {
        let old = Machine { tokens: TokenPolicy::Required, ..node1() };
        let new = Machine { tokens: TokenPolicy::Required, ..node2_at_node1s() };
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
            200 => answer.says(USER_DATA),
            status => answer.refused(status),
        }
        *answers.entry(answer.status).or_default() += 1;
    }
    writer.join().unwrap();
    site.send(NODE1, "GET", "/latest/user-data", &[(TOKEN, &token)]).await.says(USER_DATA);
    assert!(!answers.is_empty());
}

/// A service for node1 as `guard` has it, whose address is at `place`.
fn explained(guard: Guard, place: Place) -> Service {
    let index = Arc::new(Index::default());
    index.replace([Machine { guard, ..node1() }]);
    let tokens = Tokens::new(&[7; 32]);
    let service = Service::new(index, tokens, Arc::new(Told::default()), Config::default());
    service.watching(Arc::new(At(place)))
}

#[tokio::test]
async fn what_is_explained_is_what_is_answered() {
    let own = Place::Holds(node1().nics[0].mac);
    for (place, answered) in [(own, true), (Place::Nobody, false), (Place::Beyond, true)] {
        let service = explained(Guard::default(), place);
        let subject = Subject::Address(NODE1.parse().unwrap());
        let told = service.explain(&subject, SystemTime::now()).await.unwrap();
        assert_eq!(told.sources[0].answered, answered, "{told:?}");
        assert_eq!((told.instance_id.as_str(), told.sources.len()), ("i-0001", 1));
        let peer = SocketAddr::new(NODE1.parse().unwrap(), 1);
        let request = Request::get("/latest/meta-data/mac").body(Body::empty()).unwrap();
        let asked = service.answer(peer, request).await;
        assert_eq!(asked.status() == StatusCode::OK, answered);
    }
}

#[tokio::test]
async fn a_machine_is_explained_by_any_of_its_names() {
    let hop_limit = Some(1);
    let service = explained(Guard { hop_limit, ..Guard::default() }, Place::Unseen);
    for subject in [Subject::Hardware(node1().id), Subject::Hostname("node1.lab".into())] {
        let told = service.explain(&subject, SystemTime::now()).await.unwrap();
        assert_eq!((told.hardware_id, told.sources.len()), (node1().id.to_string(), 4));
        let guard = told.guard.unwrap();
        assert_eq!((guard.hop_limit, guard.user_data_told), (1, true));
        assert!(told.feed.unwrap().live);
    }
    assert_eq!(service.explain(&Subject::Hostname("x".into()), SystemTime::now()).await, None);
    let stranger = Subject::Address(STRANGER.parse().unwrap());
    let told = service.explain(&stranger, SystemTime::now()).await.unwrap();
    assert_eq!((told.hardware_id.as_str(), told.guard), ("", None));
    assert_eq!(told.sources[0].fact, "no machine has this address: 404");
}

/// A service for node1 without an address of its own, which is lent one as `lease` says, and asks from `place`.
fn lending(guard: Guard, place: Place, lease: BoundLease) -> Site {
    let (site, _) = counted(guard, place);
    let mut machine = Machine { guard, ..node1() };
    machine.nics[0].addresses.clear();
    machine.instance.as_mut().unwrap().addresses.clear();
    site.index.replace([machine]);
    site.index.replace_leases([(STRANGER.parse().unwrap(), lease)]);
    site
}

fn lease(at_port: bool) -> BoundLease {
    let until = Instant::now() + Duration::from_secs(3600);
    BoundLease { mac: node1().nics[0].mac, until, at_port }
}

#[tokio::test]
async fn under_a_lent_address_a_machine_is_itself_and_its_neighbour_is_not() {
    let own = Place::Holds(node1().nics[0].mac);
    let site = lending(Guard::default(), own, lease(false));
    let get = |path| site.send(STRANGER, "GET", path, &[]);
    get("/latest/meta-data/instance-id").await.says("i-0001");
    get("/latest/user-data").await.says(USER_DATA);
    get("/latest/meta-data/local-ipv4").await.says(STRANGER);
    let macs = "/latest/meta-data/network/interfaces/macs/52:54:00:00:00:01/local-ipv4s";
    get(macs).await.says(STRANGER);
    let stranger = Place::Holds("52:54:00:00:00:99".parse().unwrap());
    let site = lending(Guard::default(), stranger, lease(false));
    site.send(STRANGER, "GET", "/latest/user-data", &[]).await.refused(403);
}

#[tokio::test]
async fn a_lent_address_is_set_up_by_dhcp_and_by_nothing_else() {
    let site = lending(Guard::default(), Place::Unseen, lease(false));
    let said = site.send(STRANGER, "GET", "/nocloud/network-config", &[]).await;
    assert!(
        said.body.contains(r#""dhcp4": true"#) && !said.body.contains(STRANGER),
        "{}",
        said.body
    );
}

#[tokio::test]
async fn where_the_relay_port_is_asked_for_the_lease_has_to_come_from_there() {
    let guard = Guard { source: Some(SourceCheck::Port), ..Guard::default() };
    let path = "/latest/meta-data/instance-id";
    let site = lending(guard, Place::Beyond, lease(true));
    site.send(STRANGER, "GET", path, &[]).await.says("i-0001");
    let site = lending(guard, Place::Beyond, lease(false));
    site.send(STRANGER, "GET", path, &[]).await.refused(403);
    let (site, _) = counted(guard, Place::Beyond);
    site.get(path).await.refused(403);
}
