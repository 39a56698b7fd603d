//! Durable commits a second, beside what the disk and sled can do in the same minutes:
//! `cargo bench -p store --bench durability`.
//!
//! A disk shared with others changes its speed tenfold from one second to the next. So the disk and the store take
//! turns, and what counts are the ratios. Sled alone comes last: it is quick by putting off what it has to write.
#![allow(missing_docs)]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{Commit, Expect, Revision, Store, Write, limits, sled::Sled};
use tokio::task::JoinSet;

const TURNS: u32 = 12;
const TURN: Duration = Duration::from_millis(400);
const VALUE: usize = 1024;
const SMALL: usize = 1_000;
const LARGE: usize = 100_000;
const WRITERS: usize = 256;

type Keys = Vec<(usize, Revision)>;
type Filled = (Arc<Sled>, Vec<Revision>);

/// Never the same twice: sled writes an unchanged value nowhere.
fn value(n: u64) -> Vec<u8> {
    n.to_be_bytes().repeat(VALUE / 8)
}

fn key(n: usize) -> String {
    format!("key/{n:06}")
}

fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// Appends and syncs a second: the floor under every durable store.
fn floor(dir: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(dir.join("floor"))?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        file.write_all(&value(count))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(rate(count, start))
}

/// Sled's own transactions a second, none of them durable.
fn sled_alone(dir: &Path) -> anyhow::Result<f64> {
    let db = sled::Config::new().path(dir.join("alone")).cache_capacity(64 << 20).open()?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        let (key, value) = (key(count as usize % SMALL), value(count));
        db.transaction(|tree| {
            tree.get(key.as_bytes())?;
            tree.insert(key.as_bytes(), &value[..])?;
            Ok::<_, sled::transaction::ConflictableTransactionError>(())
        })?;
        count += 1;
    }
    Ok(rate(count, start))
}

/// The store with `keys` keys, and the revision of each.
async fn filled(dir: &Path, keys: usize) -> anyhow::Result<Filled> {
    let store = Arc::new(Sled::open(&dir.join(keys.to_string()))?);
    let mut revisions = Vec::with_capacity(keys);
    while revisions.len() < keys {
        let some = revisions.len()..keys.min(revisions.len() + limits::MAX_WRITES);
        let count = some.len();
        let writes = some.map(|n| Write::Put(key(n), value(n as u64).into())).collect();
        let at = store.commit(Commit { writes, ..Commit::default() }).await?;
        revisions.extend(std::iter::repeat_n(at, count));
    }
    Ok((store, revisions))
}

/// Commits a second by `writers`, each comparing and overwriting keys of its own in turn.
async fn commits(filled: &mut Filled, writers: usize) -> anyhow::Result<f64> {
    let (store, revisions) = filled;
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for writer in 0..writers {
        let mine = (writer..revisions.len()).step_by(writers);
        let mine: Vec<_> = mine.map(|n| (n, revisions[n])).collect();
        tasks.spawn(overwrite(store.clone(), mine, start));
    }
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        let (count, mine) = done??;
        total += count;
        mine.into_iter().for_each(|(n, at)| revisions[n] = at);
    }
    Ok(rate(total, start))
}

async fn overwrite(
    store: Arc<Sled>,
    mut mine: Keys,
    start: Instant,
) -> anyhow::Result<(u64, Keys)> {
    let mut count = 0;
    while start.elapsed() < TURN {
        let next = (count as usize).wrapping_mul(7919) % mine.len(); // prime, so that all get their turn
        let (n, at) = &mut mine[next];
        let write = Write::Put(key(*n), value(at.0).into());
        let commit = Commit { expect: vec![Expect::At(key(*n), *at)], writes: vec![write] };
        *at = store.commit(commit).await?;
        count += 1;
    }
    Ok((count, mine))
}

/// The disk and the store in turns: syncs and commits a second.
async fn beside_the_disk(
    dir: &Path,
    filled: &mut Filled,
    writers: usize,
) -> anyhow::Result<[f64; 2]> {
    let mut rates = [0.0, 0.0];
    for _ in 0..TURNS {
        rates[0] += floor(dir)? / f64::from(TURNS);
        rates[1] += commits(filled, writers).await? / f64::from(TURNS);
    }
    Ok(rates)
}

/// Two stores in turns: commits a second.
async fn beside_each_other(stores: [&mut Filled; 2]) -> anyhow::Result<[f64; 2]> {
    let (mut rates, [one, two]) = ([0.0, 0.0], stores);
    for _ in 0..TURNS {
        rates[0] += commits(one, WRITERS).await? / f64::from(TURNS);
        rates[1] += commits(two, WRITERS).await? / f64::from(TURNS);
    }
    Ok(rates)
}

/// Prints a row; the goal is a multiple of what it is compared with.
fn row(name: &str, rate: f64, (against, reference): (&str, f64), goal: f64) {
    let ratio = rate / reference;
    let verdict = if ratio >= goal { "met" } else { "MISSED" };
    println!(
        "{name:28}{rate:8.0} /s = {ratio:6.2} x {against:32}{reference:8.0} /s   goal {goal:.1} {verdict}"
    );
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let dir = dir.path();
    let mut small = filled(dir, SMALL).await?;
    let [synced, one] = beside_the_disk(dir, &mut small, 1).await?;
    row("1 writer", one, ("append + fdatasync", synced), 0.5);
    let [synced, some] = beside_the_disk(dir, &mut small, 16).await?;
    row("16 writers", some, ("append + fdatasync", synced), 0.5);
    let [synced, many] = beside_the_disk(dir, &mut small, WRITERS).await?;

    let mut large = filled(dir, LARGE).await?;
    let [few, grown] = beside_each_other([&mut small, &mut large]).await?;
    row("256 writers, 100,000 keys", grown, ("the same on 1,000 keys", few), 0.5);

    let (sled, disk) =
        (("sled, not durable", sled_alone(dir)?), ("128 x fdatasync", 128.0 * synced));
    row("256 writers", many, if sled.1 < disk.1 { sled } else { disk }, 0.4);
    Ok(())
}
