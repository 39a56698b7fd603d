//! A server that is killed with SIGKILL at random moments and started again, while its callers repeat what was interrupted.

use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use runtime::{Channel, Role};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};

use super::process::Process;

/// The variable with the seed of a run that is to be repeated.
const SEED_VARIABLE: &str = "KILL_SEED";
/// The pause before an interrupted call is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The time limit of the work beside the kills.
const WORK_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Returns the seed of this run, and prints it.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var(SEED_VARIABLE).map_or(now.as_secs(), |text| text.parse().unwrap());
    println!("{SEED_VARIABLE}={seed}");
    seed
}

/// Does `work` while the process is killed and started again, at most so many times, and each time at a random number of milliseconds in
/// `uptime_ms` after it was ready. Returns the result, the last process and the number
/// of kills.
pub(crate) async fn with_kills<T>(
    mut process: Process,
    seed: u64,
    (max_kills, uptime_ms): (usize, Range<u64>),
    work: impl Future<Output = T>,
) -> (T, Process, usize) {
    let done = CancellationToken::new();
    let work = async {
        let _done = done.clone().drop_guard();
        tokio::time::timeout(WORK_TIMEOUT, work).await.expect("done in a quarter of an hour")
    };
    let kills = async {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for count in 0..max_kills {
            let uptime = Duration::from_millis(random.random_range(uptime_ms.clone()));
            if done.run_until_cancelled(tokio::time::sleep(uptime)).await.is_none() {
                return (process, count);
            }
            process = process.kill().start(&[]).await;
        }
        done.cancelled().await;
        (process, max_kills)
    };
    let (result, (process, count)) = tokio::join!(work, kills);
    (result, process, count)
}

/// An admin whose calls are repeated until they have a response.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) channel: Channel,
    interrupted: Arc<AtomicUsize>,
}

impl Caller {
    /// Returns a caller of `process`, and of each one that is started in its place.
    pub(crate) fn of(process: &Process) -> Self {
        let channel = process.lasting_channel(&Role::Admin.into());
        Self { channel, interrupted: Arc::default() }
    }

    /// Makes `call` until it has a response.
    pub(crate) async fn repeat<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<Response<T>, Status>,
    ) -> Result<T, Status> {
        loop {
            match call().await {
                Err(status) if is_interrupted(&status) => {
                    self.interrupted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                response => return response.map(Response::into_inner),
            }
        }
    }

    /// Returns the number of calls without a response so far.
    pub(crate) fn interrupted(&self) -> usize {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// True if `status` does not say what became of the call. A status that has a source was made here, not by the server.
fn is_interrupted(status: &Status) -> bool {
    status.source().is_some() || status.code() == Code::Unavailable
}
