//! A model of many processes over one store and one object store. In each run, operations are
//! interleaved at random: each one stops before and after each access to a store, and a random one
//! goes on. Operations are dropped as by a crash, commits fail, time passes, bits of objects flip, and
//! the store is restored from a copy. After that no content is collected, until an operator says so.
//!
//! No run may lose content that an image has, leave objects behind, end a build twice, or exceed a
//! quota.

mod contents;
mod gates;
mod invariants;
mod process;
mod world;

use tokio::runtime::Builder;
use tokio::task::unconstrained;

use self::world::World;

/// Number of runs.
const RUNS: u64 = 10_000;
/// Random events of a run.
const EVENTS: usize = 200;
/// Events between two checks of the invariants.
const EVENTS_BETWEEN_CHECKS: usize = 50;

/// Prints the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed of the failed run: {}", self.0);
        }
    }
}

/// Runs random events, and ends the run.
async fn run(seed: u64) {
    let mut world = World::new(seed).await;
    world.prepare().await;
    for number in 1..=EVENTS {
        world.event().await;
        if number % EVENTS_BETWEEN_CHECKS == 0 {
            world.check_invariants().await;
        }
    }
    world.end().await;
}

#[test]
fn interleaved_operations_lose_no_content_and_leave_none_behind() {
    let runtime = Builder::new_current_thread().build().unwrap();
    for seed in 0..RUNS {
        let _seed = Seed(seed);
        runtime.block_on(unconstrained(run(seed)));
    }
}
