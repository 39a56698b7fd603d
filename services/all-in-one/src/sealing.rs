//! The encryption of the secret fields of stored records with a key derived from the site's key.

use std::sync::Arc;

use runtime::authority::SiteAuthority;
use runtime::seal::SealRing;
use store::seal::SealedStore;
use store::{Sealer, Store};

/// Returns `store` with records whose secret fields are sealed for `site`.
pub(crate) fn sealed(
    store: Arc<dyn Store>,
    site: &SiteAuthority,
) -> anyhow::Result<Arc<dyn Store>> {
    let ring = SealRing::new(site.keys(), "record")?;
    Ok(Arc::new(SealedStore::new(store, Arc::new(RecordSealer(ring)))))
}

/// Seals the secret fields of records, each part for its store key.
#[derive(Debug)]
struct RecordSealer(SealRing);

impl Sealer for RecordSealer {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(owner, plain).ok()
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(owner, sealed).ok()?.expose().clone())
    }

    fn is_current(&self, sealed: &[u8]) -> bool {
        self.0.is_newest(sealed)
    }
}
