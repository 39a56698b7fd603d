//! The site that a store belongs to. Other secrets cannot open what is sealed in it. All replicas need the same ones, because each
//! also trusts what another one signed. While one of the site's keys replaces another, the mark of both is accepted.

use anyhow::Context as _;
use runtime::SiteKey;
use runtime::authority::SiteAuthority;
use store::backup::SITE_KEY as KEY;
use store::{Commit, Error, Expect, Store, Write};

/// The error of a store whose secrets are not these.
pub(crate) const FOREIGN_STORE: &str = "the store belongs to another site than these secrets: copy the directory of secrets of a server that uses it";

/// Checks that `store` belongs to `site`. A store without a mark is marked as this site's.
pub(crate) async fn claim_store(store: &dyn Store, site: &SiteAuthority) -> anyhow::Result<()> {
    let keys = site.keys().get();
    let own = mark(&site.fingerprint(), &keys.newest)?;
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
    let found = read().await?.map(|found| found.value);
    anyhow::ensure!(
        found.map(|found| is_own(&found, site)).transpose()? == Some(true),
        FOREIGN_STORE
    );
    Ok(())
}

/// True if `store` belongs to a site.
pub(crate) async fn is_marked(store: &dyn Store) -> anyhow::Result<bool> {
    Ok(store.get(KEY).await.context("reading the site of the store")?.is_some())
}

/// True if `found` is the mark of a store that belongs to `site`. An edge has no key of the site, and compares the authority alone.
fn is_own(found: &[u8], site: &SiteAuthority) -> anyhow::Result<bool> {
    let authority = |mark: &[u8]| mark.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
    let is_equal = |mark: &String| match site.is_edge() {
        true => authority(mark.as_bytes()) == authority(found),
        false => mark.as_bytes() == found,
    };
    Ok(accepted_marks(site)?.iter().any(is_equal))
}

/// Returns the marks of the stores that belong to `site`, one for each authority and key that it has.
pub(crate) fn accepted_marks(site: &SiteAuthority) -> anyhow::Result<Vec<String>> {
    let (keys, authorities) = (site.keys().get(), site.fingerprints());
    let pairs =
        authorities.iter().flat_map(|authority| keys.all().map(move |key| (authority, key)));
    pairs.map(|(authority, key)| mark(authority, key)).collect()
}

/// Marks `store` with the newest secrets of `site`, which it belongs to. An edge has no key of the site, and replaces the authority alone.
pub(crate) async fn mark_again(store: &dyn Store, site: &SiteAuthority) -> anyhow::Result<()> {
    let found = store.get(KEY).await.context("reading the site of the store")?;
    let own = match &found {
        Some(found) if site.is_edge() => with_authority(&found.value, &site.fingerprint()),
        _ => mark(&site.fingerprint(), &site.keys().get().newest)?.into_bytes(),
    };
    if let Some(found) = found.filter(|found| found.value != own) {
        let expect = vec![Expect::At(KEY.into(), found.revision)];
        let writes = vec![Write::Put(KEY.into(), own.into())];
        match store.commit(Commit { expect, writes }).await {
            Ok(_) | Err(Error::Conflict(_)) => {} // a conflict: another process marked it meanwhile
            Err(error) => return Err(error).context("marking the store with the site"),
        }
    }
    Ok(())
}

/// Returns `mark` with the fingerprint `authority` in place of its own.
fn with_authority(mark: &[u8], authority: &str) -> Vec<u8> {
    let key = mark.iter().position(|byte| *byte == b' ').map_or(&[][..], |at| &mark[at..]);
    [authority.as_bytes(), key].concat()
}

/// Returns the text that identifies a site with `key` without its secrets: the fingerprint `authority` of its certificate, and a
/// derived key that is used for nothing else.
fn mark(authority: &str, key: &SiteKey) -> anyhow::Result<String> {
    let key = key.derive("mark of the site")?;
    let hex: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{authority} {hex}"))
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

    #[tokio::test]
    async fn a_store_is_opened_with_both_keys_of_a_rotation_and_only_with_the_new_one_after_it() {
        let [ours, before] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (store, site) = (MemoryStore::default(), SiteAuthority::open(ours.path()).unwrap());
        claim_store(&store, &site).await.unwrap();
        for file in ["site.key", "ca.pem"] {
            std::fs::copy(ours.path().join(file), before.path().join(file)).unwrap();
        }
        let former = SiteAuthority::open(before.path()).unwrap();
        site.use_next_key().unwrap();
        claim_store(&store, &site).await.unwrap();
        claim_store(&store, &former).await.unwrap();
        mark_again(&store, &site).await.unwrap();
        site.drop_old_key().unwrap();
        claim_store(&store, &site).await.unwrap();
        assert!(claim_store(&store, &former).await.is_err());
    }

    /// Puts the secrets of an edge of `site` into `folder`.
    fn issue_edge(site: &SiteAuthority, folder: &std::path::Path) {
        let (request, _) = runtime::authority::request_certificate().unwrap();
        let ends = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        let issued = site.certify_until(&runtime::Role::Edge.into(), &request, ends, &[]).unwrap();
        let key = site.edge_key(&issued).unwrap();
        std::fs::write(folder.join("edge.key"), key.expose()).unwrap();
        std::fs::write(folder.join("ca.pem"), site.authority()).unwrap();
    }

    #[tokio::test]
    async fn an_edge_opens_stores_of_its_site_also_after_it_was_issued_again() {
        let [ours, edge, theirs] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let site = SiteAuthority::open(ours.path()).unwrap();
        let (of_site, own) = (MemoryStore::default(), MemoryStore::default());
        claim_store(&of_site, &site).await.unwrap();
        for _ in 0..2 {
            issue_edge(&site, edge.path());
            let edge = SiteAuthority::open(edge.path()).unwrap();
            claim_store(&of_site, &edge).await.unwrap();
            claim_store(&own, &edge).await.unwrap();
        }
        assert!(claim_store(&own, &site).await.is_err(), "it was never opened with the site's key");
        let theirs = SiteAuthority::open(theirs.path()).unwrap();
        let other = MemoryStore::default();
        claim_store(&other, &theirs).await.unwrap();
        assert!(claim_store(&other, &SiteAuthority::open(edge.path()).unwrap()).await.is_err());
    }

    #[tokio::test]
    async fn a_store_of_an_edge_is_marked_with_the_new_authority() {
        let [ours, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (store, site) = (MemoryStore::default(), SiteAuthority::open(ours.path()).unwrap());
        issue_edge(&site, folder.path());
        claim_store(&store, &SiteAuthority::open(folder.path()).unwrap()).await.unwrap();
        site.prepare_authority().unwrap();
        site.use_next_authority().unwrap();
        issue_edge(&site, folder.path());
        let edge = SiteAuthority::open(folder.path()).unwrap();
        claim_store(&store, &edge).await.unwrap();
        mark_again(&store, &edge).await.unwrap();
        site.drop_old_authority().unwrap();
        std::fs::write(folder.path().join("ca.pem"), site.authority()).unwrap();
        claim_store(&store, &SiteAuthority::open(folder.path()).unwrap()).await.unwrap();
    }
}
