//! The boots that are kept: of each machine the last 20, for a week; of machines that nobody knows the last 100 in all.
//!
//! ```text
//! netboot/boot/<hardware id>.<UUID by time>
//! netboot/boot/unknown-<MAC>.<UUID by time>
//! ```
//!
//! So one machine's are found side by side, in order of time, without an index.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use store::records::{Change, CheckReport, Error, Index, Kind, Listing, Records};
use store::{Commit, ScopedStore, Write};
use tinwright::netboot::v1::Boot;

use super::BootOwner;
use super::open_boots::PendingBoot;

/// What ids begin with of boots of machines that nobody knows.
pub const UNKNOWN: &str = "unknown-";
/// How many boots of a machine are kept.
const KEPT: usize = 20;
/// How many are kept of all machines together that nobody knows.
const KEPT_UNKNOWN: usize = 100;
/// How long a boot is kept.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many are looked at in one go.
const PAGE: usize = 200;
/// How many are deleted in one commit.
const DELETED: usize = 50;

/// What ids begin with of the boots that are counted together with those of `owner`: its own, or those of all machines that
/// nobody knows.
pub(super) fn group(owner: BootOwner) -> String {
    match owner {
        BootOwner::Machine(_) => owner.to_string(),
        BootOwner::UnknownClient(_) => UNKNOWN.to_owned(),
    }
}

/// Boots as records.
#[derive(Debug)]
pub struct BootKind;

impl Kind for BootKind {
    type Record = Boot;
    const NOUN: &'static str = "boot";
    const KIND: &'static str = "boot";
    const INDEXES: &'static [&'static str] = &[];

    fn id(record: &Boot) -> &str {
        &record.id
    }

    fn revision_mut(record: &mut Boot) -> &mut i64 {
        &mut record.revision
    }

    fn indexes(_: &Boot) -> Vec<Index> {
        Vec::new()
    }
}

/// The boots in a store.
#[derive(Clone, Debug)]
pub struct BootStore(Records<BootKind>);

impl BootStore {
    /// Those in `store`, under netboot's own keys.
    pub fn new(store: ScopedStore) -> Self {
        Self(Records::new(store))
    }

    /// The boot that goes by `id`.
    pub async fn require(&self, id: &str) -> Result<Boot, Error> {
        self.0.require(id).await
    }

    /// At most `limit` boots of `owner` (a machine's id or [`UNKNOWN`]; empty: of all), beginning after the id `after`.
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
        // A token of another machine's listing begins this one's before or after all of its own.
        let after = if after < prefix.as_str() { "" } else { after };
        let (records, more) = self.0.page(&prefix, after, limit).await?;
        let next = records.last().filter(|_| more).map(|boot| boot.id.clone());
        Ok(Listing { records, next })
    }

    /// Whether they can all be read; with `mend`, as for every noun.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, Error> {
        self.0.check(mend).await
    }

    /// Keeps `boots` as they are. Only the process that made a boot writes it, so nothing is compared.
    pub(super) async fn keep(&self, boots: &[PendingBoot]) -> Result<(), Error> {
        let put = |PendingBoot { growing, .. }: &PendingBoot| {
            let boot = growing.boot();
            Write::Put(format!("{}/{}", BootKind::KIND, boot.id), boot.encode_to_vec().into())
        };
        let commit = Commit { expect: Vec::new(), writes: boots.iter().map(put).collect() };
        self.0.commit(Change::from(commit)).await?;
        Ok(())
    }

    /// Deletes the oldest boots of a [`group`] above what is kept of it.
    pub(super) async fn trim(&self, group: &str) -> Result<(), Error> {
        let kept = if group == UNKNOWN { KEPT_UNKNOWN } else { KEPT };
        let mut boots = self.list(group, "", PAGE).await?.records;
        if boots.len() <= kept {
            return Ok(());
        }
        boots.sort_by_key(|boot| boot.create_time.map(|time| (time.seconds, time.nanos)));
        boots.truncate(boots.len() - kept);
        self.delete(boots).await
    }

    /// Deletes those that ended more than a week before `now`.
    pub(super) async fn forget(&self, now: SystemTime) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let Listing { records, next } = self.0.list(&after, PAGE, |_| true).await?;
            let old = |boot: &Boot| {
                let last = boot.update_time.and_then(|time| SystemTime::try_from(time).ok());
                last.is_none_or(|last| now.duration_since(last).is_ok_and(|since| since > WEEK))
            };
            self.delete(records.into_iter().filter(old).collect()).await?;
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    async fn delete(&self, boots: Vec<Boot>) -> Result<(), Error> {
        for some in boots.chunks(DELETED) {
            let key = |boot: &Boot| Write::Delete(format!("{}/{}", BootKind::KIND, boot.id));
            let commit = Commit { expect: Vec::new(), writes: some.iter().map(key).collect() };
            self.0.commit(Change::from(commit)).await?;
        }
        Ok(())
    }
}
