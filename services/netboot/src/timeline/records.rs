//! Stored boots: the last 20 of each machine, and the last 100 in all of clients without a record. Each is stored for a week.
//!
//! ```text
//! netboot/boot/<hardware id>.<UUID by time>
//! netboot/boot/unknown-<MAC>.<UUID by time>
//! ```
//!
//! With these keys the boots of one machine are adjacent, in order of time, without an index.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use store::records::{Change, CheckReport, Error, Kind as _, Listing, ListingBuilder, Records};
use store::{Commit, ScopedStore, Write};
use tinwright::netboot::v1::Boot;
use uuid::Uuid;

use super::BootOwner;
use super::merge::OpenBoot;

/// The prefix of the ids of boots of clients without a record.
pub const UNKNOWN: &str = "unknown-";
/// The number of boots that are stored of a machine.
const MAX_PER_MACHINE: usize = 20;
/// The number of boots that are stored of all clients without a record.
const MAX_UNKNOWN: usize = 100;
/// The age at which a boot is deleted.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The number of boots in a page.
const PAGE_BOOTS: usize = 200;
/// The number of boots that one commit deletes.
const DELETE_BATCH_BOOTS: usize = 50;

/// Returns the id prefix of the boots that share a limit with the boots of `owner`: all boots of a
/// machine, or of all clients without a record.
pub(super) fn group(owner: BootOwner) -> String {
    match owner {
        BootOwner::Machine(_) => owner.to_string(),
        BootOwner::UnknownClient(_) => UNKNOWN.to_owned(),
    }
}

store::kind!(
    /// Boots as records.
    pub BootKind: Boot, String, "boot"
);

/// Boots in a store.
#[derive(Clone, Debug)]
pub struct BootStore(Records<BootKind>);

impl BootStore {
    /// Creates a store of boots in `store`, which has netboot's own keys.
    pub fn new(store: ScopedStore) -> Self {
        Self(Records::new(store))
    }

    /// Returns the boot with the id `id`.
    pub async fn require(&self, id: &str) -> Result<Boot, Error> {
        self.0.require(id).await
    }

    /// Lists at most `limit` boots of `owner`, beginning after the id `after`. Long boots end a part early. `owner` is a machine's id, [`UNKNOWN`], or empty for
    /// all boots.
    pub async fn list(
        &self,
        owner: &str,
        after: &str,
        limit: usize,
    ) -> Result<Listing<Boot>, Error> {
        let prefix = match owner {
            "" | UNKNOWN => owner.to_owned(),
            one => format!("{one}."),
        };
        let uuid = after.rsplit_once('.').and_then(|(_, uuid)| Uuid::try_parse(uuid).ok());
        let ours = after.is_empty() || uuid.is_some() && after.starts_with(&prefix);
        if !ours {
            return Err(Error::PageToken(after.to_owned()));
        }
        let (boots, more) = self.0.page(&prefix, after, limit).await?;
        let (mut boots, mut last) = (boots.into_iter(), None);
        let mut listing = ListingBuilder::new(limit);
        while !listing.is_full()
            && let Some(boot) = boots.next()
        {
            last = Some(boot.id.clone());
            listing.push(boot);
        }
        Ok(listing.end(last.filter(|_| more || boots.len() > 0)))
    }

    /// Checks that all boots can be read; see [`Records::check`].
    pub async fn check(&self, mend: bool) -> Result<CheckReport, Error> {
        self.0.check(mend).await
    }

    /// Stores `boots`. Only the process that created a boot writes it, so the commit expects no revision.
    pub(super) async fn put(&self, boots: &[OpenBoot]) -> Result<(), Error> {
        let put = |OpenBoot { record: boot, .. }: &OpenBoot| {
            Write::Put(format!("{}/{}", BootKind::KIND, boot.id), boot.encode_to_vec().into())
        };
        let commit = Commit { expect: Vec::new(), writes: boots.iter().map(put).collect() };
        self.0.commit(Change::from(commit)).await?;
        Ok(())
    }

    /// Deletes the oldest boots of a [`group`] above its limit.
    pub(super) async fn trim(&self, group: &str) -> Result<(), Error> {
        let max = if group == UNKNOWN { MAX_UNKNOWN } else { MAX_PER_MACHINE };
        let (mut boots, _) = self.0.page(group, "", PAGE_BOOTS).await?;
        if boots.len() <= max {
            return Ok(());
        }
        boots.sort_by_key(|boot| boot.create_time.map(|time| (time.seconds, time.nanos)));
        boots.truncate(boots.len() - max);
        self.delete(boots).await
    }

    /// Deletes boots that ended more than a week before `now`.
    pub(super) async fn delete_old(&self, now: SystemTime) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let Listing { records, next } = self.0.list(&after, PAGE_BOOTS, |_| true).await?;
            let old = |boot: &Boot| {
                let last = boot.update_time.and_then(|time| SystemTime::try_from(time).ok());
                last.is_none_or(|last| now.duration_since(last).is_ok_and(|since| since > MAX_AGE))
            };
            self.delete(records.into_iter().filter(old).collect()).await?;
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    async fn delete(&self, boots: Vec<Boot>) -> Result<(), Error> {
        for some in boots.chunks(DELETE_BATCH_BOOTS) {
            let key = |boot: &Boot| Write::Delete(format!("{}/{}", BootKind::KIND, boot.id));
            let commit = Commit { expect: Vec::new(), writes: some.iter().map(key).collect() };
            self.0.commit(Change::from(commit)).await?;
        }
        Ok(())
    }
}
