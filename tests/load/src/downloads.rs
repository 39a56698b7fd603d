//! TFTP downloads, some at a time.

use std::time::{Duration, Instant};

use rack::SERVER;
use tokio::task::{JoinSet, LocalSet};

use crate::process::{KiB, Measured};
use crate::tftp::{Fetch, Wishes};
use crate::{api, fleet};

/// What came of them: each got the whole file.
#[derive(Clone, Copy, Debug)]
pub struct Downloaded {
    /// Octets of all.
    pub octets: u64,
    /// For how long.
    pub took: Duration,
    /// How often a client had to ask again.
    pub again: u32,
    /// The server's processor time.
    pub processor: Duration,
}

/// `clients` machines download the file `name` of `size` octets at once.
pub fn download(
    server: Measured<'_>,
    name: &str,
    size: u64,
    clients: usize,
    wishes: Wishes,
) -> anyhow::Result<Downloaded> {
    server.network.enter()?;
    let runtime = api::runtime()?;
    let (before, start) = (server.process.processor()?, Instant::now());
    let (mut octets, mut again) = (0, 0);
    runtime.block_on(LocalSet::new().run_until(async {
        let mut downloads = JoinSet::new();
        for n in 0..clients {
            let name = name.to_owned();
            downloads.spawn_local(async move {
                let fetch = Fetch::begin(fleet::address(n), SERVER, &name, wishes).await?;
                fetch.finish(|_| {}).await
            });
        }
        while let Some(ended) = downloads.join_next().await {
            let fetched = ended??;
            anyhow::ensure!(fetched.octets == size, "{} of {size} octets", fetched.octets);
            (octets, again) = (octets + fetched.octets, again + fetched.again);
        }
        anyhow::Ok(())
    }))?;
    let took = start.elapsed();
    // A child of the server's counts once it has ended, which it does a moment after its client has.
    std::thread::sleep(Duration::from_millis(50));
    let processor = server.process.processor()? - before;
    Ok(Downloaded { octets, took, again, processor })
}

/// The memory the server has before, and with, `clients` downloads of `name` that have a window under way.
pub fn stalled(server: Measured<'_>, name: &str, clients: usize) -> anyhow::Result<[KiB; 2]> {
    server.network.enter()?;
    let before = server.process.resident()?;
    let wishes = Wishes { block: Some(1468), window: Some(16) };
    let with = api::runtime()?.block_on(async {
        let mut open = Vec::with_capacity(clients);
        for n in 0..clients {
            let mut fetch = Fetch::begin(fleet::address(n), SERVER, name, wishes).await?;
            fetch.stall().await?;
            open.push(fetch);
        }
        let with = server.process.resident()?;
        for fetch in open {
            fetch.refuse().await?;
        }
        anyhow::Ok(with)
    })?;
    Ok([before, with])
}
