//! One store, one site: what one replica seals, signs and issues, all have to open and trust.

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use store::{Commit, Error, Expect, Store, Write};

/// Beside the services' own keys, as the schema is.
const KEY: &str = "site";

/// Passes if `store` belongs to `site`; gives it to the first one that comes.
pub(crate) async fn settle(store: &dyn Store, site: &SiteAuthority) -> anyhow::Result<()> {
    let own = mark(site)?;
    let expect = vec![Expect::Absent(KEY.into())];
    let writes = vec![Write::Put(KEY.into(), own.clone().into())];
    match store.commit(Commit { expect, writes }).await {
        Ok(_) => return Ok(()),
        Err(Error::Conflict(_)) => {}
        Err(error) => return Err(error).context("to which site the store belongs"),
    }
    let found = store.get(KEY).await.context("to which site the store belongs")?;
    let same = found.is_some_and(|found| found.value == own);
    anyhow::ensure!(
        same,
        "the store belongs to another site than these secrets: copy the directory of secrets of a server that uses it"
    );
    Ok(())
}

/// What tells sites apart, and nothing of their secrets: the authority's certificate, and a key that opens nothing.
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
    async fn a_store_stays_with_the_site_that_came_first() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = MemoryStore::default();
        settle(&store, &SiteAuthority::open(ours.path()).unwrap()).await.unwrap();
        settle(&store, &SiteAuthority::open(ours.path()).unwrap()).await.unwrap();
        let other = settle(&store, &SiteAuthority::open(theirs.path()).unwrap()).await.unwrap_err();
        assert!(other.to_string().starts_with("the store belongs to another site"), "{other}");
        // The same authority with another key opens no password either.
        std::fs::copy(theirs.path().join("site.key"), ours.path().join("site.key")).unwrap();
        assert!(settle(&store, &SiteAuthority::open(ours.path()).unwrap()).await.is_err());
    }
}
