//! Runs concurrent TFTP downloads.

use std::time::{Duration, Instant};

use rack::SERVER;
use tokio::task::{JoinSet, LocalSet};

use crate::process::{KiB, Measured};
use crate::tftp::{Fetch, TransferOptions};
use crate::{api, fleet};

/// The result of concurrent downloads. Each client received the whole file.
#[derive(Clone, Copy, Debug)]
pub struct TftpResult {
    /// Bytes received by all clients.
    pub bytes: u64,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Packets that clients sent again after a timeout.
    pub retries: u32,
    /// The server's processor time.
    pub cpu: Duration,
}

/// Downloads the file `name` of `size` bytes with `clients` clients at once.
pub fn download(
    server: Measured<'_>,
    name: &str,
    size: u64,
    clients: usize,
    options: TransferOptions,
) -> anyhow::Result<TftpResult> {
    server.network.enter()?;
    let runtime = api::runtime()?;
    let (before, start) = (server.process.cpu_time()?, Instant::now());
    let (mut bytes, mut retries) = (0, 0);
    runtime.block_on(LocalSet::new().run_until(async {
        let mut downloads = JoinSet::new();
        for n in 0..clients {
            let name = name.to_owned();
            downloads.spawn_local(async move {
                let fetch = Fetch::begin(fleet::address(n), SERVER, &name, options).await?;
                fetch.finish(|_| {}).await
            });
        }
        while let Some(ended) = downloads.join_next().await {
            let fetched = ended??;
            anyhow::ensure!(fetched.bytes == size, "{} of {size} bytes", fetched.bytes);
            (bytes, retries) = (bytes + fetched.bytes, retries + fetched.retries);
        }
        anyhow::Ok(())
    }))?;
    let elapsed = start.elapsed();
    // A child process of the server counts only after it has ended, shortly after its client.
    std::thread::sleep(Duration::from_millis(50));
    let cpu = server.process.cpu_time()? - before;
    Ok(TftpResult { bytes, elapsed, retries, cpu })
}

/// Returns the server's resident memory before, and during, `clients` downloads of `name` that have received one window.
pub fn memory_of_open_transfers(
    server: Measured<'_>,
    name: &str,
    clients: usize,
) -> anyhow::Result<[KiB; 2]> {
    server.network.enter()?;
    let before = server.process.resident_memory()?;
    let options = TransferOptions { block: Some(1468), window: Some(16) };
    let during = api::runtime()?.block_on(async {
        let mut open = Vec::with_capacity(clients);
        for n in 0..clients {
            let mut fetch = Fetch::begin(fleet::address(n), SERVER, name, options).await?;
            fetch.stall().await?;
            open.push(fetch);
        }
        let during = server.process.resident_memory()?;
        for fetch in open {
            fetch.abort().await?;
        }
        anyhow::Ok(during)
    })?;
    Ok([before, during])
}
