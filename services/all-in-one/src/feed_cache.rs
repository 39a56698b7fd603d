//! The cache of the feeds of services in other processes: a small store of the edges, encrypted with the site's key.
//!
//! There is no cache if those services are in this process, because their store is then on the same host.

use std::sync::Arc;

use anyhow::Context as _;
use fleet::{CacheContents, FleetCache};
use runtime::authority::SiteAuthority;
use runtime::seal::Seal;
use store::sled::Sled;
use store::{Sealer, Store};

use crate::config::{Config, Service, Storage};

/// Opens the cache and its store if `config` has edges that follow other processes, and a store on disk. It holds secrets only
/// if this process serves metadata.
pub(crate) async fn open(
    config: &Config,
    site: &SiteAuthority,
    has_metadata: bool,
) -> anyhow::Result<Option<(FleetCache, Arc<dyn Store>)>> {
    let edges = config.netboot.is_some() || !config.metadata_listen.is_empty();
    let followed = [Service::Hardware, Service::Instance, Service::Workflow];
    let is_remote = followed.into_iter().any(|service| !config.split.peers(service).is_empty());
    if !edges || !is_remote || matches!(config.store, Storage::Memory) {
        return Ok(None);
    }
    let path = config.data.join("feeds");
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Sled::open(&path)).await?;
    let opening = || format!("opening the feed cache in {shown}: it may be removed");
    let store: Arc<dyn Store> = Arc::new(opened.with_context(opening)?);
    store::schema::migrate(&store, &[]).await.with_context(opening)?;
    let seal: Arc<dyn Sealer> = Arc::new(SiteSealer(Seal::new(site.keys(), "feeds")?));
    let contents =
        if has_metadata { CacheContents::WHOLE } else { netboot::feed_cache::CACHE_CONTENTS };
    Ok(Some((FleetCache::new(store.clone(), &seal, contents), store)))
}

/// Encrypts with a key derived from the site's key.
#[derive(Debug)]
struct SiteSealer(Seal);

impl Sealer for SiteSealer {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(owner, plain).ok()
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(owner, sealed).ok()?.expose().clone())
    }
}
