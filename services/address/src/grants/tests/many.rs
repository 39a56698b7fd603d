//! Many writers, and a service that is killed in the middle: no address has two holders, and none is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use store::Store;
use store::memory::MemoryStore;
use store::sled::Sled;
use store::{Commit, Write};
use tinwright::address::v1 as pb;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::bench::Bench;
use crate::block::Block;

const WRITERS: usize = 64;

/// The grants that writers know of, by block.
type Known = Arc<Mutex<HashMap<Block, String>>>;

/// What a writer wants: IPv4 addresses, IPv6 prefixes, and wanted IPv6 addresses among these.
fn wanted(ranges: &[pb::Range; 2], random: &mut Xoshiro256PlusPlus, key: String) -> pb::Grant {
    let tenant = ["", "acme", "other"][random.random_range(0..3)].to_owned();
    let mut grant = pb::Grant { key, tenant, ..pb::Grant::default() };
    match random.random_range(0..4) {
        0 | 1 => grant.range_id.clone_from(&ranges[0].id),
        2 => grant.range_id.clone_from(&ranges[1].id),
        _ => grant.block = format!("2001:db8:0:{:x}::{:x}", random.random_range(0..0x1000u16), 1),
    }
    grant
}

/// Makes and releases grants until `left` is used up. Every answer that arrives is checked against what others hold.
async fn write(
    bench: Arc<Bench>,
    ranges: Arc<[pb::Range; 2]>,
    known: Known,
    left: Arc<AtomicUsize>,
    seed: u64,
) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut own: Vec<(Block, pb::Grant)> = Vec::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok() {
        if own.len() < 8 && random.random_bool(0.6) || own.is_empty() {
            let key = format!("{seed:x}-{:x}", random.random::<u64>());
            let wanted = wanted(&ranges, &mut random, key);
            let grant = match bench.grants.create(wanted.clone()).await {
                Ok(grant) => grant,
                Err(crate::Error::Exhausted { .. }) => continue,
                Err(crate::Error::Taken { .. }) if !wanted.block.is_empty() => continue,
                Err(error) => panic!("seed {seed}: {error:?}"),
            };
            let again = bench.grants.create(wanted).await.unwrap();
            assert_eq!(grant.id, again.id, "seed {seed}: repeated");
            let block: Block = grant.block.parse().unwrap();
            {
                let mut known = known.lock().await;
                let other = known.keys().find(|it| it.span().overlaps(block.span()));
                assert!(other.is_none(), "seed {seed}: {block} and {other:?}");
                known.insert(block, grant.id.clone());
            }
            let grant = bench.grants.confirm(grant.id.parse().unwrap(), false, None).await.unwrap();
            own.push((block, grant));
        } else {
            let (block, grant) = own.swap_remove(random.random_range(0..own.len()));
            // Others may get it as soon as it is released.
            known.lock().await.remove(&block);
            bench.release(&grant).await;
        }
    }
}

async fn site(bench: &Bench, hold: Duration) -> [pb::Range; 2] {
    let hold = Some(hold.try_into().unwrap());
    let subnet = |name: &str, cidr: &str| pb::Subnet {
        name: name.into(),
        cidr: cidr.into(),
        hold,
        ..pb::Subnet::default()
    };
    let v4 = bench.create_subnet(subnet("v4", "10.0.0.0/16")).await;
    let v6 = bench.create_subnet(subnet("v6", "2001:db8::/48")).await;
    let v4 = bench.range(&v4, "10.0.0.0-10.0.3.255", 0).await;
    let v6 = bench.range(&v6, "2001:db8::-2001:db8:0:fff:ffff:ffff:ffff:ffff", 60).await;
    [v4, v6]
}

/// Runs `operations` grants and releases, killing the service `kills` times: its tasks are aborted, and it begins again on the same store.
async fn run(store: Arc<dyn Store>, operations: usize, kills: usize, seed: u64) {
    let bench = Arc::new(Bench::over(store.clone()));
    let ranges = Arc::new(site(&bench, Duration::ZERO).await);
    for round in 0..=kills {
        let bench = Arc::new(Bench::over(store.clone()));
        let known = Known::default();
        for grant in live(&bench).await {
            known.lock().await.insert(grant.block.parse().unwrap(), grant.id);
        }
        let left = Arc::new(AtomicUsize::new(operations / (kills + 1)));
        let mut writers = JoinSet::new();
        for n in 0..WRITERS {
            let seed = seed + (round * WRITERS + n) as u64;
            writers.spawn(write(bench.clone(), ranges.clone(), known.clone(), left.clone(), seed));
        }
        if round < kills {
            // In the middle: aborted commits may have been applied or not.
            let middle = operations / (kills + 1) / 2;
            while left.load(Ordering::Relaxed) > middle {
                tokio::task::yield_now().await;
            }
            writers.abort_all();
        }
        while let Some(ended) = writers.join_next().await {
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
        }
        // Commits of killed tasks that still wait in the store are carried out before this one.
        let writes = vec![Write::Put("barrier".into(), "".into())];
        store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
        check(&bench).await;
    }
    // All is given back, and what was never confirmed is freed: nothing is left.
    for grant in live(&bench).await {
        if grant.state() == pb::GrantState::Active {
            bench.release(&grant).await;
        }
    }
    bench.after(10).await;
    let mut content = bench.content().await;
    for forever in ["key", "retired", "event", "subnets"] {
        content.remove(forever);
    }
    let names = ["range", "range-name", "range-subnet", "subnet", "subnet-name"];
    assert_eq!(content.into_keys().collect::<Vec<_>>(), names, "seed {seed}");
}

async fn live(bench: &Bench) -> Vec<pb::Grant> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (page, more) = bench.grants.records.page("", &after, 500).await.unwrap();
        after = page.last().map_or_else(String::new, |last| last.id.clone());
        all.extend(page);
        if !more {
            return all;
        }
    }
}

/// Checks that grants and claims agree, and that no two overlap.
async fn check(bench: &Bench) {
    let grants = live(bench).await;
    let mut blocks: Vec<Block> = grants.iter().map(|it| it.block.parse().unwrap()).collect();
    blocks.sort();
    for pair in blocks.windows(2) {
        assert!(!pair[0].span().overlaps(pair[1].span()), "{} and {}", pair[0], pair[1]);
    }
    for grant in &grants {
        let block: Block = grant.block.parse().unwrap();
        let claim = bench.grants.claims.find(block).await.unwrap().unwrap();
        assert_eq!((claim.block, claim.object_id), (grant.block.clone(), grant.id.clone()));
    }
    let content = bench.content().await;
    assert_eq!(content.get("claim").copied().unwrap_or_default(), grants.len());
    let report = bench.grants.records.check(false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_64_writers_and_kills_no_address_has_two_holders_and_none_is_lost() {
    run(Arc::new(MemoryStore::default()), 6000, 9, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: 10,000 grants and releases, each synced to the disk"]
async fn under_64_writers_and_kills_10000_grants_on_a_disk_have_one_holder_each() {
    let [.., a, b] = tinwright::GrantId::new().to_bytes();
    let seed = u64::from(u16::from_be_bytes([a, b])) << 32;
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let place = directory.path().join(round.to_string());
        let store: Arc<dyn Store> = Arc::new(Sled::open(&place).unwrap());
        run(store, 20_000, 20, seed).await;
    }
}
