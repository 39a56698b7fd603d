//! The site that a store belongs to. Other secrets cannot open what is sealed in it. All replicas need the same ones, because each
//! also trusts what another one signed.

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use store::{Commit, Error, Expect, Store, Write};

/// The key of the site's mark, outside of the keys of services, as is that of the schema.
const KEY: &str = "site";

/// Checks that `store` belongs to `site`. A store without a mark is marked as this site's.
pub(crate) async fn claim_store(store: &dyn Store, site: &SiteAuthority) -> anyhow::Result<()> {
    let own = mark(site)?;
    let read = async || store.get(KEY).await.context("reading the site of the store");
    // Nothing is written to a marked store, which may be on a full disk.
    if read().await?.is_none() {
        let expect = vec![Expect::Absent(KEY.into())];
        let writes = vec![Write::Put(KEY.into(), own.clone().into())];
        match store.commit(Commit { expect, writes }).await {
            Ok(_) | Err(Error::Conflict(_)) => {} // a conflict: another process marked it meanwhile
            Err(error) => return Err(error).context("marking the store with the site"),
        }
    }
    let same = read().await?.is_some_and(|found| found.value == own);
    anyhow::ensure!(
        same,
        "the store belongs to another site than these secrets: copy the directory of secrets of a server that uses it"
    );
    Ok(())
}

/// Returns the text that identifies `site` without its secrets: the fingerprint of the authority's certificate, and a derived key
/// that is used for nothing else.
fn mark(site: &SiteAuthority) -> anyhow::Result<String> {
    let key = site.key().derive("mark of the site")?;
    let hex: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{} {hex}", site.fingerprint()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::memory::MemoryStore;

    #[tokio::test]
    async fn a_store_belongs_to_the_first_site_that_opens_it() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = MemoryStore::default();
        claim_store(&store, &SiteAuthority::open(ours.path()).unwrap()).await.unwrap();
        claim_store(&store, &SiteAuthority::open(ours.path()).unwrap()).await.unwrap();
        let other =
            claim_store(&store, &SiteAuthority::open(theirs.path()).unwrap()).await.unwrap_err();
        assert!(other.to_string().starts_with("the store belongs to another site"), "{other}");
        // The same authority with another site key cannot decrypt the stored passwords.
        std::fs::copy(theirs.path().join("site.key"), ours.path().join("site.key")).unwrap();
        assert!(claim_store(&store, &SiteAuthority::open(ours.path()).unwrap()).await.is_err());
    }
}
