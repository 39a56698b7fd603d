//! The site's keys and authority while one replaces another: their files are read again while the process runs. What the former key
//! encrypted is encrypted with the new one, and the certificates of this process are issued by the new authority.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use identity::rotation::Resealer;
use runtime::SiteKey;
use runtime::authority::SiteAuthority;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::certificates::Certificates;
use crate::services::Services;
use crate::site_identity;

/// The time between two looks at the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// The keys of the site, and the store whose records they encrypt.
#[derive(Clone)]
pub(crate) struct KeyRotation {
    site: Arc<SiteAuthority>,
    /// None if no service of this process owns records.
    store: Option<Arc<dyn Store>>,
}

impl fmt::Debug for KeyRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRotation").finish_non_exhaustive()
    }
}

impl KeyRotation {
    /// Keys of `site`, for the records in `store` if services of this process own them.
    pub(crate) fn new(site: Arc<SiteAuthority>, store: Option<Arc<dyn Store>>) -> Self {
        Self { site, store }
    }

    /// Takes keys that another process, or a person, puts into the directory of secrets, until `stop`.
    pub(crate) async fn run(
        self,
        certificates: Certificates,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let (mut resealed, mut authorities) = (None, self.site.fingerprints());
        loop {
            let followed = async {
                self.follow(&mut resealed).await?;
                self.follow_authority(&certificates, &mut authorities).await
            };
            if let Err(error) = followed.await {
                let error = AsRef::<dyn std::error::Error>::as_ref(&error);
                tracing::warn!(target: "tinwright", error, "the site's keys are not followed; trying again");
            }
            let pause = tokio::time::sleep(RELOAD_INTERVAL);
            if stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the files, and encrypts records if a former key is there and that was not done with the newest one.
    async fn follow(&self, resealed: &mut Option<SiteKey>) -> anyhow::Result<()> {
        let site = self.site.clone();
        let (changed, old) = tokio::task::spawn_blocking(move || {
            Ok::<_, runtime::authority::Error>((site.reload_keys()?, site.old_key()?))
        })
        .await??;
        if changed {
            tracing::info!(target: "tinwright", accepted = self.site.keys().get().all().count(), "site keys changed");
        }
        let newest = self.site.keys().get().newest.clone();
        if old.is_none() || resealed.as_ref() == Some(&newest) {
            return Ok(());
        }
        self.reseal().await?;
        *resealed = Some(newest);
        Ok(())
    }

    /// Reads the authority's files, and renews the certificates of this process if other authorities are trusted than `before`.
    async fn follow_authority(
        &self,
        certificates: &Certificates,
        before: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let site = self.site.clone();
        tokio::task::spawn_blocking(move || site.reload_authority()).await??;
        let trusted = self.site.fingerprints();
        if trusted == *before {
            return Ok(());
        }
        tracing::info!(target: "tinwright", issuer = trusted.first(), trusted = trusted.len(), "authority changed");
        if let Some(store) = &self.store {
            site_identity::mark_again(&**store, &self.site).await?;
        }
        let own = certificates.clone();
        tokio::task::spawn_blocking(move || own.renew()).await??;
        *before = trusted;
        Ok(())
    }

    /// Encrypts all records with the newest key, and marks the store with it. Returns the number of changed records.
    pub(crate) async fn reseal(&self) -> anyhow::Result<usize> {
        let Some(store) = &self.store else { return Ok(0) };
        site_identity::mark_again(&**store, &self.site).await?;
        // Of all services: processes of others may share the store.
        let records = Services::offline(store, &self.site)?.reseal().await?;
        tracing::info!(target: "tinwright", records, "records are encrypted with the newest site key");
        Ok(records)
    }
}

#[tonic::async_trait]
impl Resealer for KeyRotation {
    async fn reseal(&self) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.reseal().await?)
    }
}

#[cfg(test)]
mod tests {
    use hardware::HardwareRecords;
    use power::stored::Job;
    use runtime::Clock;
    use store::ScopedStore;
    use store::memory::MemoryStore;
    use store::records::Records;
    use tinwright::hardware::v1::{Hardware, Interface};
    use tinwright::power::v1::operation::{InsertMedia, What};
    use tinwright::power::v1::{Operation, PowerJob};
    use tinwright::{HardwareId, PowerJobId};

    use super::*;

    const SECRET: &str = r#"{"password":"hunter2"}"#;

    /// A process with the secrets in a folder.
    struct Process {
        site: Arc<SiteAuthority>,
        store: Arc<dyn Store>,
        rotation: KeyRotation,
    }

    async fn process(folder: &std::path::Path, store: &Arc<MemoryStore>) -> Process {
        let site = Arc::new(SiteAuthority::open(folder).unwrap());
        site_identity::claim_store(&**store, &site).await.unwrap();
        let store = crate::sealing::sealed(store.clone(), &site).unwrap();
        let rotation = KeyRotation::new(site.clone(), Some(store.clone()));
        Process { site, store, rotation }
    }

    impl Process {
        /// Creates a machine at `mac` with a secret, and returns its id.
        async fn plant(&self, mac: &str) -> HardwareId {
            let interfaces = vec![Interface { mac: mac.into(), ..Interface::default() }];
            let hardware = Hardware { interfaces, extra: SECRET.into(), ..Hardware::default() };
            let records = HardwareRecords::new(self.store.clone(), Clock::system());
            records.create(hardware, None).await.unwrap().id.parse().unwrap()
        }

        async fn secret(&self, id: HardwareId) -> Option<Vec<u8>> {
            let records = HardwareRecords::new(self.store.clone(), Clock::system());
            records.records.require(&id.to_string()).await.ok().map(|it| it.extra)
        }
    }

    #[tokio::test]
    async fn records_are_encrypted_with_a_key_that_appears_and_the_former_one_opens_none_afterwards()
     {
        let [ours, before] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = Arc::new(MemoryStore::default());
        let first = process(ours.path(), &store).await;
        for file in ["site.key", "ca.pem"] {
            std::fs::copy(ours.path().join(file), before.path().join(file)).unwrap();
        }
        let former = process(before.path(), &store).await;
        let (id, mut resealed) = (first.plant("02:00:00:00:00:01").await, None);
        first.rotation.follow(&mut resealed).await.unwrap();
        assert_eq!((resealed.is_none(), former.secret(id).await.is_some()), (true, true));

        // Another process rotates the key in the files.
        SiteAuthority::open(ours.path()).unwrap().use_next_key().unwrap();
        first.rotation.follow(&mut resealed).await.unwrap();
        assert_eq!(resealed, Some(first.site.keys().get().newest.clone()));
        assert_eq!(former.secret(id).await, None);
        assert_eq!(first.secret(id).await.unwrap(), SECRET.as_bytes());
        SiteAuthority::open(ours.path()).unwrap().drop_old_key().unwrap();
        first.rotation.follow(&mut resealed).await.unwrap();
        assert_eq!(first.site.keys().get().others, []);
        assert_eq!(first.secret(id).await.unwrap(), SECRET.as_bytes());
        assert!(site_identity::claim_store(&*store, &former.site).await.is_err());
    }

    #[tokio::test]
    async fn power_jobs_with_the_url_of_an_image_are_encrypted_with_a_new_key() {
        let folder = tempfile::tempdir().unwrap();
        let process = process(folder.path(), &Arc::new(MemoryStore::default())).await;
        let jobs = Records::<Job>::new(ScopedStore::new(process.store.clone(), "power"));
        let media = InsertMedia { image_url: "https://images.test/?t=1".into(), drive: 0 };
        let operation = Operation { what: Some(What::InsertMedia(media)), ..Operation::default() };
        let id = PowerJobId::new().to_string();
        let job = PowerJob { id, operations: vec![operation], ..PowerJob::default() };
        jobs.commit(jobs.to_create(&job)).await.unwrap();
        process.site.prepare_key().unwrap();
        process.site.use_next_key().unwrap();
        process.rotation.reseal().await.unwrap();
        process.site.drop_old_key().unwrap();
        assert_eq!(jobs.require(&job.id).await.unwrap().operations, job.operations);
    }

    #[tokio::test]
    async fn a_replica_accepts_a_key_before_another_one_uses_it() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = Arc::new(MemoryStore::default());
        let first = process(here.path(), &store).await;
        for file in ["site.key", "ca.pem"] {
            std::fs::copy(here.path().join(file), there.path().join(file)).unwrap();
        }
        let second = process(there.path(), &store).await;
        first.site.prepare_key().unwrap();
        let next = "site.key.next";
        std::fs::copy(here.path().join(next), there.path().join(next)).unwrap();
        second.rotation.follow(&mut None).await.unwrap();
        first.site.use_next_key().unwrap();
        first.rotation.follow(&mut None).await.unwrap();
        for (writer, reader, mac) in
            [(&first, &second, "02:00:00:00:00:01"), (&second, &first, "02:00:00:00:00:02")]
        {
            let id = writer.plant(mac).await;
            assert_eq!(reader.secret(id).await.unwrap(), SECRET.as_bytes());
        }
        // It also starts with the mark of the newer key.
        site_identity::claim_store(&*store, &second.site).await.unwrap();
    }
}
