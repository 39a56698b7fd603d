//! What edges keep of the feeds of services that are elsewhere: in a small store of their own, sealed with the site's key.
//!
//! Where those services are in this process, what they own is as near as a copy would be, and there is none.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use runtime::seal::Seal;
use store::Store;
use store::feed_cache::Sealer;
use store::sled::Sled;

use crate::config::{Config, Service, Storage};

/// Where the copies are.
pub(crate) struct Copies {
    store: Arc<dyn Store>,
    seal: Arc<dyn Sealer>,
}

impl Copies {
    /// Opens the store of copies, if `config` has edges that are told by other processes, and anything is to be kept.
    pub(crate) async fn open(
        config: &Config,
        site: &SiteAuthority,
    ) -> anyhow::Result<Option<Self>> {
        let edges = config.netboot.is_some() || !config.metadata_listen.is_empty();
        let told = [Service::Hardware, Service::Instance, Service::Workflow];
        let elsewhere = told.into_iter().any(|service| config.split.peer(service).is_some());
        if !edges || !elsewhere || matches!(config.store, Storage::Memory) {
            return Ok(None);
        }
        let path = config.data.join("feeds");
        let shown = path.display().to_string();
        let opened = tokio::task::spawn_blocking(move || Sled::open(&path)).await?;
        let opening = || format!("opening the copy of the feeds in {shown}: it may be removed");
        let store: Arc<dyn Store> = Arc::new(opened.with_context(opening)?);
        store::schema::check_or_create(&*store).await?;
        let seal = Arc::new(Sealed(Seal::new(site.key(), "feeds")?));
        Ok(Some(Self { store, seal }))
    }

    pub(crate) fn netboot(&self) -> netboot::Copies {
        netboot::Copies::new(self.store.clone(), &self.seal)
    }

    pub(crate) fn metadata(&self) -> metadata::Copies {
        metadata::Copies::new(self.store.clone(), &self.seal)
    }
}

/// The site's sealing, as the store asks for it.
#[derive(Debug)]
struct Sealed(Seal);

impl Sealer for Sealed {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(owner, plain).ok()
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(owner, sealed).ok()?.expose().clone())
    }
}
