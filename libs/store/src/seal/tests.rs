//! Records with secrets: sealed in the store, read as they were, bound to their keys, and sealed anew.

use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tinwright::hardware::v1::{Hardware, Interface, Ipxe, Netboot};

use super::*;
use crate::memory::MemoryStore;
use crate::mirror::Mirror;
use crate::records::requests::{self, IdempotentRequest, RequestState};
use crate::records::{self, Index, Kind, Records};
use crate::schema::{self, Migration};
use crate::{ScopedStore, Write};

const SECRET: &str = "hunter2";

#[derive(Debug)]
enum Machines {}

impl Kind for Machines {
    type Record = Hardware;
    type Id = String;
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["name"];

    fn indexes(machine: &Hardware) -> Vec<Index> {
        vec![Index::unique("name", &machine.name)]
    }
}

/// Encrypts with a byte, as `key ‖ owner ‖ 0 ‖ plain`.
#[derive(Debug)]
struct Turned {
    key: u8,
    older: u8,
}

impl Turned {
    fn turn(key: u8, plain: &[u8]) -> Vec<u8> {
        plain.iter().map(|byte| byte ^ key).collect()
    }
}

impl Sealer for Turned {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let text = [owner.as_bytes(), &[0], plain].concat();
        Some([vec![self.key], Self::turn(self.key, &text)].concat())
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (key, text) = sealed.split_first()?;
        let plain = Self::turn(*key, text);
        let known = [self.key, self.older].contains(key);
        known.then(|| plain.strip_prefix(&[owner.as_bytes(), &[0]].concat()[..]))?.map(Into::into)
    }

    fn is_current(&self, sealed: &[u8]) -> bool {
        sealed.first() == Some(&self.key)
    }
}

fn machine(id: &str) -> Hardware {
    let ipxe = Ipxe { contents: SECRET.into(), ..Ipxe::default() };
    let netboot = Netboot { boot_once: Some(ipxe), ..Netboot::default() };
    let interface = Interface { netboot: Some(netboot), ..Interface::default() };
    Hardware {
        id: id.into(),
        name: format!("name-{id}"),
        interfaces: vec![Interface::default(), interface],
        extra: SECRET.into(),
        ..Hardware::default()
    }
}

fn sealed(below: &Arc<dyn Store>, key: u8, older: u8) -> Arc<dyn Store> {
    Arc::new(SealedStore::new(below.clone(), Arc::new(Turned { key, older })))
}

fn machines(store: &Arc<dyn Store>) -> Records<Machines> {
    Records::new(ScopedStore::new(store.clone(), "hardware"))
}

async fn create(store: &Arc<dyn Store>, machine: &Hardware) -> Hardware {
    machines(store).create(machine, Default::default(), None).await.unwrap()
}

async fn shows_secret(below: &Arc<dyn Store>) -> bool {
    let page = below.list("", "", 100).await.unwrap();
    let found = |value: &Bytes| value.windows(SECRET.len()).any(|at| at == SECRET.as_bytes());
    page.pairs.iter().any(|(_, at)| found(&at.value))
}

#[tokio::test]
async fn secrets_are_sealed_in_the_store_and_read_as_they_were() {
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let store = sealed(&below, 1, 1);
    let made = create(&store, &machine("a")).await;
    assert_eq!(made, Hardware { revision: made.revision, ..machine("a") });
    assert!(!shows_secret(&below).await);
    assert_eq!(machines(&store).find("name", "name-a").await.unwrap(), Some(made.clone()));
    assert!(machines(&store).check(false).await.unwrap().is_clean());
    let changed = Hardware { extra: "hunter2hunter2".into(), ..made.clone() };
    let changed = machines(&store).replace(&made, changed).await.unwrap();
    assert_eq!(machines(&store).get("a").await.unwrap(), Some(changed.clone()));
    assert!(!shows_secret(&below).await);
    let mirror = Mirror::new(machines(&store));
    let stop = tokio_util::sync::CancellationToken::new();
    let (following, until) = (mirror.clone(), stop.clone());
    let following = tokio::spawn(async move { following.run(until).await });
    mirror.ready().await;
    assert_eq!(mirror.get("a"), Some(changed));
    stop.cancel();
    following.await.unwrap();
    // The other fields are in clear.
    let raw = below.get("hardware/record/a").await.unwrap().unwrap().value;
    assert_eq!(Hardware::decode(raw).unwrap().name, "name-a");
}

#[tokio::test]
async fn a_sealed_part_opens_under_its_own_key_alone() {
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let store = sealed(&below, 1, 1);
    create(&store, &machine("a")).await;
    let value = below.get("hardware/record/a").await.unwrap().unwrap().value;
    let writes = vec![Write::Put("hardware/record/b".into(), value)];
    below.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    let corrupt = |outcome: Result<_, records::Error>| {
        matches!(outcome, Err(records::Error::Store(Error::Corrupt(_))))
    };
    assert!(corrupt(machines(&store).get("b").await));
    assert!(corrupt(machines(&sealed(&below, 2, 2)).get("a").await), "another site");
    assert!(corrupt(machines(&below).get("a").await), "no key");
}

#[tokio::test]
async fn clear_records_are_read_until_a_migration_seals_them_once() {
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    create(&below, &machine("a")).await;
    let plain = Hardware { id: "b".into(), name: "b".into(), ..Hardware::default() };
    let plain = create(&below, &plain).await;
    let writes = vec![Write::Put("schema".into(), "2".into())];
    below.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    let store = sealed(&below, 1, 1);
    assert_eq!(machines(&store).get("a").await.unwrap().unwrap().extra, SECRET.as_bytes());
    assert!(shows_secret(&below).await);
    schema::migrate(&store, &[Migration::reseal::<Machines>("seal", "hardware")]).await.unwrap();
    assert!(!shows_secret(&below).await);
    let found = machines(&store).get("a").await.unwrap().unwrap();
    assert_eq!(found, Hardware { revision: found.revision, ..machine("a") });
    assert_eq!(machines(&store).reseal().await.unwrap(), 0);
    assert_eq!(machines(&store).get("b").await.unwrap(), Some(plain), "it has no secrets");
}

#[tokio::test]
async fn records_are_sealed_anew_with_the_newest_key() {
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    create(&sealed(&below, 1, 1), &machine("a")).await;
    let both = sealed(&below, 2, 1);
    create(&both, &machine("b")).await;
    assert_eq!(machines(&both).reseal().await.unwrap(), 1);
    let new = sealed(&below, 2, 2);
    for id in ["a", "b"] {
        let found = machines(&new).get(id).await.unwrap().unwrap();
        assert_eq!(found, Hardware { revision: found.revision, ..machine(id) });
    }
}

#[tokio::test]
async fn nothing_is_stored_in_clear_if_sealing_fails() {
    #[derive(Debug)]
    struct Broken;
    impl Sealer for Broken {
        fn seal(&self, _: &str, _: &[u8]) -> Option<Vec<u8>> {
            None
        }

        fn unseal(&self, _: &str, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let store: Arc<dyn Store> = Arc::new(SealedStore::new(below.clone(), Arc::new(Broken)));
    assert!(machines(&store).create(&machine("a"), Default::default(), None).await.is_err());
    assert!(below.list("", "", 10).await.unwrap().pairs.is_empty());
}

#[tokio::test]
async fn the_results_of_requests_are_encrypted_and_encrypted_again() {
    let (memory, now) = (Arc::new(MemoryStore::default()), UNIX_EPOCH);
    let machines = |key, older| {
        let sealed = SealedStore::new(memory.clone(), Arc::new(Turned { key, older }));
        Records::<Machines>::new(ScopedStore::new(Arc::new(sealed), "hardware"))
    };
    let clear = Records::<Machines>::new(ScopedStore::new(memory.clone(), "hardware"));
    let request = |id: &str| IdempotentRequest::new(id, &machine("a")).unwrap();
    let digest = Sha256::digest(machine("a").encode_to_vec());
    let has_digest = || async {
        let stored = memory.list("hardware/request/", "", 9).await.unwrap().pairs;
        stored.iter().filter(|(_, it)| it.value.windows(32).any(|part| *part == *digest)).count()
    };
    clear.commit(request("old").done("a", now, clear.store())).await.unwrap();
    let ours = machines(7, 7);
    ours.commit(request("new").done("a", now, ours.store())).await.unwrap();
    assert_eq!(has_digest().await, 1, "the one that an older program wrote");
    assert_eq!(requests::reseal(ours.store()).await.unwrap(), 1);
    assert_eq!((has_digest().await, requests::reseal(ours.store()).await.unwrap()), (0, 0));
    let state = async |id, of: &Records<Machines>| request(id).state(of.store()).await.unwrap();
    for id in ["old", "new"] {
        assert_eq!(state(id, &ours).await, RequestState::Done("a".into()));
    }

    let next = machines(8, 7);
    assert_eq!(requests::reseal(next.store()).await.unwrap(), 2);
    for id in ["old", "new"] {
        assert_eq!(state(id, &next).await, RequestState::Done("a".into()));
        assert_eq!(state(id, &ours).await, RequestState::Reused, "with a key that is not accepted");
    }
    assert_eq!(requests::reseal(ours.store()).await.unwrap(), 0);
    let later = now + requests::RETENTION + Duration::from_secs(1);
    assert_eq!(requests::delete_expired(ours.store(), later).await.unwrap(), 2);
}
