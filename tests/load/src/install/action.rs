//! The action image2disk in a process of its own.

use std::sync::Arc;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use worker::progress::Report;
use worker::{ActionOutcome, Builtin, Context, Environment, Progress, RetryPolicy};

use crate::process::own_peak_memory;

/// An image, and the disk to which it is written.
#[derive(Clone, Debug, clap::Args)]
pub struct WriteImage {
    /// URL of the stored image
    #[arg(long)]
    url: String,
    /// URL of its map
    #[arg(long)]
    map_url: String,
    /// SHA-256 of the map
    #[arg(long)]
    map_sha256: String,
    /// The disk
    #[arg(long)]
    disk: String,
}

/// Ignores all reports.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn report(&self, _: Report) {}
}

/// Writes the image, and prints the peak of this process's memory in KiB.
pub fn write_image(image: &WriteImage) -> anyhow::Result<()> {
    let variables = [
        ("IMG_URL", &*image.url),
        ("IMG_MAP", &image.map_url),
        ("IMG_MAP_SHA256", &image.map_sha256),
        ("DEST_DISK", &image.disk),
        ("IMG_ANY_CONTENT", "true"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment: Environment = variables.into_iter().collect();
    let context = Context {
        progress: Arc::new(Silent),
        stop: CancellationToken::new(),
        roots: Vec::new(),
        boot_server: None,
        image_keys: None,
        retry_policy: RetryPolicy::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(worker::run(Builtin::Image2Disk, &environment, &context));
    anyhow::ensure!(outcome == ActionOutcome::Success, "{outcome:?}");
    println!("{}", own_peak_memory().context("reading the memory")?.0);
    Ok(())
}
