//! Leases over stores: durable, failing, and shared with other processes.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use store::memory::MemoryStore;
use store::{Changes, Commit, Error, Page, Revision, Versioned};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::*;
use crate::pool::Subnet;
use ipnet::Ipv4Net;

const X: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const HOUR: Duration = Duration::from_secs(3600);

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

fn claim(n: u8) -> Claim {
    Claim { address: X, mac: mac(n), duration: HOUR, at_port: None }
}

fn returned(n: u8, event: Event, at: SystemTime) -> ReturnedAddress {
    ReturnedAddress { address: X, mac: mac(n), event, at }
}

fn new(store: Arc<dyn Store>) -> Leases {
    Leases::new(store, Clock::system())
}

async fn get(leases: &Leases) -> Result<pb::Lease, records::Error> {
    leases.records.require(&X.to_string()).await
}

/// Deletes the lease as the API does.
async fn delete(leases: &Leases, revision: i64) -> Result<(), records::Error> {
    let old = leases.records.at(&X.to_string(), revision).await?;
    leases.remove(X, &old).await
}

/// A store that can be unavailable, and in which `together` commits wait for each other.
struct FlakyStore {
    inner: MemoryStore,
    unavailable: AtomicBool,
    together: Barrier,
}

impl FlakyStore {
    fn new(together: usize) -> Arc<Self> {
        let (inner, unavailable) = (MemoryStore::default(), AtomicBool::new(false));
        Arc::new(Self { inner, unavailable, together: Barrier::new(together) })
    }

    fn set_unavailable(&self, unavailable: bool) {
        self.unavailable.store(unavailable, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for FlakyStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.inner.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        if self.unavailable.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("unavailable".into()));
        }
        self.together.wait().await;
        self.inner.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.inner.changed(prefix, after).await
    }
}

#[tokio::test]
async fn while_the_store_is_unavailable_only_the_rest_of_a_committed_lease_is_granted() {
    let (store, now) = (FlakyStore::new(1), SystemTime::now());
    let leases = new(store.clone());
    store.set_unavailable(true);
    assert_eq!(leases.claim(claim(1), now).await, ClaimResult::StoreUnavailable);
    assert_eq!(leases.holder(X.into(), now), None);
    store.set_unavailable(false);
    assert_eq!(leases.claim(claim(1), now).await, ClaimResult::Granted(HOUR));
    store.set_unavailable(true);
    let later = now + HOUR / 2;
    assert_eq!(leases.claim(claim(1), later).await, ClaimResult::Granted(HOUR / 2));
    assert_eq!(leases.claim(claim(2), later).await, ClaimResult::Lost);
    assert_eq!(
        leases.claim(claim(1), now + HOUR).await,
        ClaimResult::StoreUnavailable,
        "nothing remains"
    );
    store.set_unavailable(false);
    assert_eq!(leases.claim(claim(1), later).await, ClaimResult::Granted(HOUR));
}

#[tokio::test]
async fn two_processes_over_one_store_never_lease_one_address_to_two_clients() {
    let (store, now): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::default()), SystemTime::now());
    let (one, other) = (new(store.clone()), new(store));
    assert_eq!(one.claim(claim(1), now).await, ClaimResult::Granted(HOUR));
    // The other process learns of the lease when its own commit fails.
    assert_eq!(other.at(X, now), None);
    assert_eq!(other.claim(claim(2), now).await, ClaimResult::Lost);
    assert_eq!(other.holder(X.into(), now), Some(mac(1)));
    // A client that renews at the other process keeps the address.
    assert_eq!(other.claim(claim(1), now + HOUR / 2).await, ClaimResult::Granted(HOUR));
    assert_eq!(
        one.claim(claim(2), now + HOUR).await,
        ClaimResult::Lost,
        "it was renewed elsewhere"
    );
}

#[tokio::test]
async fn a_hundred_leases_wait_for_the_store_together() {
    let (leases, now) = (new(FlakyStore::new(100)), SystemTime::now());
    let mut all = JoinSet::new();
    for n in 0..100 {
        let leases = leases.clone();
        let claim = Claim { address: Ipv4Addr::new(192, 0, 2, n), ..claim(n) };
        all.spawn(async move { leases.claim(claim, now).await });
    }
    assert!(all.join_all().await.iter().all(|granted| *granted == ClaimResult::Granted(HOUR)));
}

#[tokio::test]
async fn after_a_restart_leases_are_read_before_any_is_granted() {
    let (directory, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let path = directory.path().join("store");
    let first = new(Arc::new(store::sled::Sled::open(&path).unwrap()));
    assert_eq!(first.claim(claim(1), now).await, ClaimResult::Granted(HOUR));
    drop(first);
    let again = new(Arc::new(store::sled::Sled::open(&path).unwrap()));
    assert!(!again.is_ready());
    let (stop, running) = (CancellationToken::new(), again.clone());
    let running = tokio::spawn(running.run(stop.clone()));
    again.ready().await;
    let network = Ipv4Net::new_assert(X, 24);
    let subnet = Subnet::new(network, vec!["192.0.2.10-192.0.2.11".parse().unwrap()]);
    let (own, state) = again.table(|table| table.of(&subnet, mac(1), now)).unwrap();
    assert_eq!(own, X);
    assert!(
        matches!(state, Lease { state: State::Bound, ends, .. } if ends == now + HOUR),
        "{state:?}"
    );
    assert_eq!(again.claim(claim(2), now).await, ClaimResult::Lost);
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_deleted_lease_frees_its_address_and_expired_records_are_deleted() {
    let (leases, now) = (new(Arc::new(MemoryStore::default())), SystemTime::now());
    leases.claim(claim(1), now).await;
    let stale = delete(&leases, 77).await.unwrap_err();
    assert!(matches!(stale, records::Error::Changed { .. }), "{stale}");
    delete(&leases, 0).await.unwrap();
    assert_eq!(leases.at(X, now), None);
    assert!(matches!(delete(&leases, 0).await, Err(records::Error::Missing { .. })));
    assert_eq!(leases.claim(claim(2), now).await, ClaimResult::Granted(HOUR));
    leases.sweep_at(now + HOUR + Duration::from_secs(60)).await;
    assert_eq!(get(&leases).await.unwrap().mac, mac(2).to_string(), "kept as preferred for a day");
    leases.sweep_at(now + HOUR + Duration::from_secs(24 * 3600)).await;
    assert!(get(&leases).await.is_err());
}

#[tokio::test]
async fn the_relay_port_of_a_lease_is_stored_until_a_relay_names_another() {
    let (leases, now) = (new(Arc::new(MemoryStore::default())), SystemTime::now());
    for (n, at_port, kept) in [
        (1, Some(true), true),
        (1, None, true),
        (1, Some(false), false),
        (1, None, false),
        (1, Some(true), true),
    ] {
        // The duration is unchanged: only the port is written.
        assert_eq!(
            leases.claim(Claim { at_port, ..claim(n) }, now).await,
            ClaimResult::Granted(HOUR)
        );
        assert_eq!(get(&leases).await.unwrap().at_port, kept, "{at_port:?}");
    }
    leases.claim(claim(2), now + HOUR).await;
    assert!(!get(&leases).await.unwrap().at_port, "that was another client");
}

#[tokio::test]
async fn a_declined_address_is_held_and_a_released_one_stays_preferred_after_a_restart() {
    let (store, now): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::default()), SystemTime::now());
    let leases = new(store.clone());
    leases.claim(claim(1), now).await;
    leases.give_back(returned(1, Event::Release, now)).await.unwrap();
    let record = get(&leases).await.unwrap();
    assert_eq!((record.state(), record.mac), (pb::lease::State::Released, mac(1).to_string()));
    leases.claim(claim(1), now).await;
    leases.give_back(returned(2, Event::Decline, now)).await.unwrap();
    assert_eq!(leases.holder(X.into(), now), Some(mac(1)), "declined by another client");
    leases.give_back(returned(1, Event::Decline, now)).await.unwrap();
    assert_eq!(leases.claim(claim(2), now).await, ClaimResult::Lost);
    assert_eq!(new(store).claim(claim(2), now).await, ClaimResult::Lost);
}

#[tokio::test]
async fn releases_are_stored_while_the_leases_run() {
    let store = Arc::new(MemoryStore::default());
    let (leases, now) = (new(store.clone()), SystemTime::now());
    assert_eq!(leases.claim(claim(1), now).await, ClaimResult::Granted(HOUR));
    leases.take_back(X, mac(1), Event::Release, now);
    assert_eq!(leases.holder(X.into(), now), Some(mac(1)), "not running yet");
    let stop = CancellationToken::new();
    let freed = async {
        while leases.holder(X.into(), now).is_some() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(leases.clone().run(stop.clone()), freed) };
    let (ran, ()) = tokio::time::timeout(HOUR / 60, both).await.expect("stored within a minute");
    ran.unwrap();
    let kept = get(&new(store)).await.unwrap();
    assert!(matches!(record::read(&kept), Some((X, Lease { state: State::Released, .. }))));
}

#[tokio::test]
async fn a_withheld_address_is_leased_to_nobody_until_its_time_is_over_and_a_leased_one_is_not_withheld()
 {
    let (clock, store) =
        (Clock::manual(SystemTime::UNIX_EPOCH + HOUR), Arc::new(MemoryStore::default()));
    let leases = Leases::new(store.clone(), clock.clone());
    leases.withhold(X, &[], "hardware m").await.unwrap();
    let stored = get(&leases).await.unwrap();
    assert_eq!((stored.state(), stored.mac.as_str()), (pb::lease::State::Withheld, ""));
    assert_eq!(stored.withheld_for, "hardware m");
    assert_eq!(leases.claim(claim(1), clock.wall()).await, ClaimResult::Lost);
    // Another process has the record from the store.
    let other = Leases::new(store, clock.clone());
    assert_eq!(other.claim(claim(1), clock.wall()).await, ClaimResult::Lost);
    clock.advance(crate::pool::WITHHOLD_TIME);
    assert_eq!(leases.claim(claim(1), clock.wall()).await, ClaimResult::Granted(HOUR));
    let refused = leases.withhold(X, &[mac(2)], "hardware m").await.unwrap_err().to_string();
    assert_eq!(refused, "192.0.2.10 is leased to 02:00:00:00:00:01 until 1970-01-01T02:10:00Z");
    // The machine's own lease is left to it.
    leases.withhold(X, &[mac(1)], "hardware m").await.unwrap();
    assert_eq!(get(&leases).await.unwrap().state(), pb::lease::State::Bound);
    clock.advance(HOUR);
    leases.withhold(X, &[], "hardware m").await.unwrap();
}

#[tokio::test]
async fn of_a_lease_and_a_claim_at_the_same_time_one_is_refused() {
    for _ in 0..20 {
        let store = Arc::new(MemoryStore::default());
        let (one, other) = (new(store.clone()), new(store));
        let now = one.clock.wall();
        let (withheld, leased) =
            tokio::join!(one.withhold(X, &[], "grant g"), other.claim(claim(1), now));
        assert_eq!(withheld.is_ok(), leased == ClaimResult::Lost);
    }
}
