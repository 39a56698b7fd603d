//! Random interleavings of reads, evictions, starts, power failures and faults.
//!
//! A reader gets the origin's bytes, or an error if the origin has faults. Ranges never have more
//! than the limit. If no file makes room for another and the disk does not fail, each byte is
//! fetched once.

use tokio::task::JoinSet;

use super::random::Random;
use super::sim_disk::SimDisk;
use super::sim_origin::{ALL_FAULTS, OriginFault, SimOrigin, size};
use super::site::{RANGE, Site, open, turns};
use crate::Freshness;
use crate::entry::DATA_SUFFIX;

const NAMES: [&str; 5] = ["a-75", "b-32", "c-3", "d-100", "e-17"];
/// Number of runs.
const SEEDS: u64 = 200;
/// Number of starts of a run.
const LIVES: u64 = 4;
/// Number of steps between two starts.
const STEPS: u64 = 60;

/// Conditions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Weather {
    seed: u64,
    max_bytes: u64,
    capacity: u64,
    disk_fail_percent: u64,
    origin_faults: Vec<OriginFault>,
    power_fails: bool,
    refetches: bool,
}

/// Nothing fails, and there is room for everything.
const FAIR: Weather = Weather {
    seed: 0,
    max_bytes: u64::MAX,
    capacity: u64::MAX,
    disk_fail_percent: 0,
    origin_faults: Vec::new(),
    power_fails: false,
    refetches: false,
};

impl Weather {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        if random.chance(20) {
            return Self { seed, ..FAIR };
        }
        Self {
            seed,
            max_bytes: random.pick(&[u64::MAX, 2, 5, 9, 14]).saturating_mul(RANGE),
            capacity: random.pick(&[u64::MAX, u64::MAX, 3 * RANGE, 11 * RANGE]),
            disk_fail_percent: random.pick(&[0, 0, 1, 5]),
            origin_faults: random.pick(&[
                Vec::new(),
                vec![OriginFault::Broken],
                ALL_FAULTS.to_vec(),
            ]),
            power_fails: random.chance(60),
            refetches: random.chance(60),
        }
    }

    /// True if nothing is a reason to fetch a byte twice.
    fn is_fair(&self) -> bool {
        *self == Self { seed: self.seed, ..FAIR }
    }
}

#[test]
fn readers_get_the_bytes_of_the_origin_in_any_weather() {
    for weather in (0..SEEDS).map(Weather::new) {
        let disk = SimDisk::new(Random(weather.seed + 1));
        let origin = SimOrigin::new(Random(weather.seed + 2));
        let mut random = Random(weather.seed + 3);
        for _ in 0..LIVES {
            live(&weather, &disk, &origin, &mut random);
            if weather.power_fails {
                disk.cut_power();
            }
        }
        let most = NAMES.map(|name| origin.times(name).1);
        assert!(!weather.is_fair() || most == [1; 5], "{most:?} {weather:?}");
    }
}

/// Runs a cache from its start to its end.
fn live(weather: &Weather, disk: &SimDisk, origin: &SimOrigin, random: &mut Random) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        (disk.state().fail_percent, disk.state().capacity) = (0, weather.capacity);
        let cache = open(disk, weather.max_bytes);
        let site = Site { disk: disk.clone(), origin: origin.clone(), cache };
        disk.state().fail_percent = weather.disk_fail_percent;
        origin.state().faults = (weather.origin_faults.clone(), 15);
        // What a power failure left is read before it is replaced.
        let mut readers = JoinSet::new();
        for name in NAMES {
            let site = site.clone();
            readers.spawn(async move { site.read_all(name).await.is_ok() });
        }
        for _ in 0..STEPS {
            step(weather, &site, random, &mut readers).await;
            let allocated = disk.state().allocated(DATA_SUFFIX);
            assert!(allocated <= weather.max_bytes, "{allocated} {weather:?}");
        }
        if random.chance(50) {
            while let Some(read) = readers.join_next().await {
                check(weather, read);
            }
        }
        if !weather.power_fails {
            site.idle().await;
        }
    });
}

/// Starts a reader, drops all, or lets those that are there go on.
async fn step(weather: &Weather, site: &Site, random: &mut Random, readers: &mut JoinSet<bool>) {
    match random.below(10) {
        0..5 => {
            let name = random.pick(&NAMES);
            let start = random.below(size(name));
            let end = start + random.pick(&[1, 200, RANGE, 3 * RANGE, u64::MAX / 2]);
            let is_bad = weather.refetches && random.chance(10);
            let freshness = if is_bad { Freshness::Refetched } else { Freshness::Cached };
            let site = site.clone();
            readers.spawn(async move { site.read(name, start..end, freshness).await.is_ok() });
        }
        5 => readers.abort_all(),
        _ => turns(random.below(60)).await,
    }
    while let Some(read) = readers.try_join_next() {
        check(weather, read);
    }
}

/// Only an origin with faults is a reason for an error.
fn check(weather: &Weather, read: Result<bool, tokio::task::JoinError>) {
    match read {
        Ok(is_read) => assert!(is_read || !weather.origin_faults.is_empty(), "{weather:?}"),
        Err(error) => assert!(error.is_cancelled(), "{error} {weather:?}"),
    }
}
