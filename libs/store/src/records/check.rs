//! Whether records and their indexes agree, and making them.
//!
//! Nobody may write meanwhile: run it while no service has the store open.

use std::collections::BTreeMap;

use super::{Error, Kind, Records, decode, key};
use crate::{Commit, Store, Write};

/// How many entries are looked at, or mended, at a time.
const STEP: usize = 100;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records read.
    pub records: usize,
    /// Index entries read.
    pub entries: usize,
    /// Records that cannot be read; these cannot be mended.
    pub corrupt: Vec<String>,
    /// Index entries that should be there and are not, or lead elsewhere.
    pub missing: Vec<String>,
    /// Index entries whose record does not claim them.
    pub stray: Vec<String>,
    /// Values that are unique and claimed twice; these cannot be mended.
    pub contested: Vec<String>,
}

impl CheckReport {
    /// Whether there is nothing to say.
    pub fn is_clean(&self) -> bool {
        let Self { records: _, entries: _, corrupt, missing, stray, contested } = self;
        [corrupt, missing, stray, contested].into_iter().all(Vec::is_empty)
    }

    /// Whether mending is all that it takes.
    pub fn is_repairable(&self) -> bool {
        self.corrupt.is_empty() && self.contested.is_empty()
    }

    /// Both in one.
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
    /// Compares every record with every index entry; with `mend`, adds what is missing and removes what is stray.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, Error> {
        let mut report = CheckReport::default();
        let claimed = self.claims(&mut report).await?;
        let found = self.entries(&mut report).await?;
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
            for step in writes.chunks(STEP) {
                let commit = Commit { writes: step.to_vec(), ..Commit::default() };
                self.store.commit(commit).await?;
            }
        }
        Ok(report)
    }

    /// The index entries that the records call for.
    async fn claims(&self, report: &mut CheckReport) -> Result<BTreeMap<String, String>, Error> {
        let (mut claimed, mut after) = (BTreeMap::new(), String::new());
        loop {
            let page = self.store.list(&key::<K>(""), &after, STEP).await?;
            for (key, found) in &page.pairs {
                report.records += 1;
                let Ok(record) = decode::<K>(key, found) else {
                    report.corrupt.push(key.clone());
                    continue;
                };
                for index in K::indexes(&record) {
                    let entry = index.key(K::id(&record));
                    if claimed.insert(entry.clone(), K::id(&record).to_owned()).is_some() {
                        report.contested.push(entry);
                    }
                }
            }
            after = page.pairs.last().map_or(after, |(key, _)| key.clone());
            if !page.more {
                return Ok(claimed);
            }
        }
    }

    /// The index entries that are there.
    async fn entries(&self, report: &mut CheckReport) -> Result<BTreeMap<String, String>, Error> {
        let mut found = BTreeMap::new();
        for index in K::INDEXES {
            let (prefix, mut after) = (format!("{index}/"), String::new());
            loop {
                let page = self.store.list(&prefix, &after, STEP).await?;
                after = page.pairs.last().map_or(after, |(key, _)| key.clone());
                let entries = page.pairs.into_iter();
                found.extend(
                    entries.map(|(key, at)| (key, String::from_utf8_lossy(&at.value).into_owned())),
                );
                if !page.more {
                    break;
                }
            }
        }
        report.entries = found.len();
        Ok(found)
    }
}
