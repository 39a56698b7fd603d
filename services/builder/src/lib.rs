//! Builds images: leases builds, fetches their sources, converts them in a sandbox, and stores the
//! content.
//!
//! A builder has no store. It calls the builder service on one channel, and reads uploads and
//! writes blobs there over HTTP.
//!
//! - `slot`: the steps of a build, in order. [`run`] starts one slot or more.
//! - `calls`: leases, their renewal, and the ends of builds.
//! - `source`: fetching, with rules against requests to private addresses.
//! - `isolation`: the conversion in the sandbox. [`run_if_sandboxed`] is its other half.
//! - `store`: the stored form; `blobs`: sending it; `content`: the result in the contract's words.
//! - `scratch`: files of builds. `progress`: the present step. `failure`: reasons for people.
//! - `http`: plain HTTP on the channel of the calls. [`Settings`]: settings.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod blobs;
mod calls;
mod content;
mod failure;
mod http;
mod isolation;
mod progress;
mod scratch;
mod settings;
mod slot;
mod source;
mod store;

use std::sync::Arc;

use anyhow::Context as _;
use runtime::Channel;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::calls::Service;
use crate::scratch::Folder;
use crate::slot::Slot;
use crate::source::Fetcher;

pub use isolation::{readiness, run_if_sandboxed};
pub use settings::{Downloads, SandboxLimits, Settings, Timing};

/// Maximum length of a builder's name in bytes. Slots add their numbers to it.
const MAX_HOLDER_BYTES: usize = 100;

/// Builds until `stop`. The image service is on `channel`.
///
/// # Errors
/// If the scratch directory is in use or cannot be made, or a file of the settings cannot be read.
pub async fn run(
    channel: Channel,
    settings: Settings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Settings { scratch, slots, holder, downloads, sandbox, timing } = settings;
    let is_name = (1..=MAX_HOLDER_BYTES).contains(&holder.len());
    anyhow::ensure!(is_name, "holder: not 1 to {MAX_HOLDER_BYTES} bytes: {holder:?}");
    let folder = Arc::new(Folder::open(&scratch)?);
    let fetcher = Fetcher::new(channel.clone(), &downloads, timing)?;
    if let Err(reason) = readiness().await {
        tracing::error!(reason, "no sandbox: every build will fail");
    }
    let mut running = JoinSet::new();
    for number in 1..=slots.get() {
        let holder = format!("{holder}.{number}");
        let service = Service { channel: channel.clone(), holder, timing };
        let fetcher = fetcher.clone();
        let slot = Slot { service, fetcher, sandbox, folder: folder.clone() };
        running.spawn(slot.run(stop.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended.context("a slot of the builder")?;
    }
    Ok(())
}
