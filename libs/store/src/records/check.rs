//! Compares records with their index entries, and repairs the entries.
//!
//! Run it while no service has the store open: nothing may write meanwhile.

use std::collections::BTreeMap;

use super::{AnyKind, Error, Kind, Records};
use crate::{ScopedStore, Versioned, Write};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records read.
    pub records: usize,
    /// Index entries read.
    pub entries: usize,
    /// Records that cannot be decoded; not repairable.
    pub corrupt: Vec<String>,
    /// Index entries that are missing or lead to another record.
    pub missing: Vec<String>,
    /// Index entries that their record does not claim.
    pub stray: Vec<String>,
    /// Unique values that two records have; not repairable.
    pub contested: Vec<String>,
}

impl CheckReport {
    /// True if nothing is wrong.
    pub fn is_clean(&self) -> bool {
        let Self { records: _, entries: _, corrupt, missing, stray, contested } = self;
        [corrupt, missing, stray, contested].into_iter().all(Vec::is_empty)
    }

    /// True if a repair leaves nothing wrong.
    pub fn is_repairable(&self) -> bool {
        self.corrupt.is_empty() && self.contested.is_empty()
    }

    /// Joins two reports.
    pub fn and(mut self, other: Self) -> Self {
        self.records += other.records;
        self.entries += other.entries;
        self.corrupt.extend(other.corrupt);
        self.missing.extend(other.missing);
        self.stray.extend(other.stray);
        self.contested.extend(other.contested);
        self
    }
}

impl<K: Kind> Records<K> {
    /// Compares every record with every index entry; with `mend`, adds missing entries and removes stray ones.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, Error> {
        AnyKind::of::<K>().check(&self.store, mend).await
    }
}

impl AnyKind {
    /// Compares the records in `store` with their index entries; with `mend`, corrects the entries.
    pub(crate) async fn check(
        &self,
        store: &ScopedStore,
        mend: bool,
    ) -> Result<CheckReport, Error> {
        let mut report = CheckReport::default();
        let claimed = self.claims(store, &mut report).await?;
        let found = self.entries(store, &mut report).await?;
        let mut writes = Vec::new();
        for (key, id) in &claimed {
            if found.get(key) != Some(id) {
                report.missing.push(key.clone());
                writes.push(Write::Put(key.clone(), id.clone().into()));
            }
        }
        for key in found.keys().filter(|key| !claimed.contains_key(*key)) {
            report.stray.push(key.clone());
            writes.push(Write::Delete(key.clone()));
        }
        if mend {
            store.write_all(&writes).await?;
        }
        Ok(report)
    }

    /// Returns the index entries that the records have to have.
    async fn claims(
        &self,
        store: &ScopedStore,
        report: &mut CheckReport,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut claimed = BTreeMap::new();
        let mut pages = store.pages(&self.key(""));
        while let Some(pairs) = pages.next().await? {
            report.records += pairs.len();
            for (key, found) in pairs {
                let Ok(record) = self.read(store, &key, &found) else {
                    report.corrupt.push(key);
                    continue;
                };
                for index in record.entries {
                    let entry = index.key(&record.id);
                    if claimed.insert(entry.clone(), record.id.clone()).is_some() {
                        report.contested.push(entry);
                    }
                }
            }
        }
        Ok(claimed)
    }

    /// Returns the stored index entries.
    async fn entries(
        &self,
        store: &ScopedStore,
        report: &mut CheckReport,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut found = BTreeMap::new();
        for index in self.indexes.iter().copied().chain(self.quota_index) {
            let mut pages = store.pages(&format!("{index}/"));
            while let Some(pairs) = pages.next().await? {
                let id = |at: &Versioned| String::from_utf8_lossy(&at.value).into_owned();
                found.extend(pairs.into_iter().map(|(key, at)| (key, id(&at))));
            }
        }
        report.entries = found.len();
        Ok(found)
    }
}
