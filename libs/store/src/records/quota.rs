//! The quotas of tenants, by the option `quota` of a noun.
//!
//! [`TenantQuotas`] may give a tenant other limits. The index of a kind with a quota has its records by tenant: they are counted when one is created, grows,
//! or gets another tenant. So that two changes at the same time do not both take the last place, each writes
//! the tenant's key `<index>-count/<tenant>`, and expects the version that it saw before it counted. The key
//! stays when the tenant is deleted.
//!
//! [`Records::create`] and [`Records::replace_with`] count. A change made by
//! [`to_create`](Records::to_create) and committed by itself is not counted.

use std::fmt::Debug;

use async_trait::async_trait;
use tinwright::Stored as _;
use tinwright::object::Quota;
use tonic::Status;

use super::{Change, Error, Index, Kind, Records};
use crate::{Commit, Expect, Revision, Store as _, Write};

/// Attempts to commit what was counted. Each that fails means that another change was counted first.
const MAX_ATTEMPTS: usize = 20;
/// Records that one part of a count reads.
const RECORDS_PER_PART: usize = 500;

/// Returns the index entries of `record`, with that of its quota.
pub(super) fn entries<K: Kind>(record: &K::Record) -> Vec<Index> {
    let mut entries = K::indexes(record);
    let by_tenant = K::QUOTA.map(|quota| Index::shared(quota.index, record.owning_tenant()));
    entries.extend(by_tenant.filter(|index| !K::indexes(record).contains(index)));
    entries
}

/// The limits of tenants.
#[async_trait]
pub trait TenantQuotas: Debug + Send + Sync {
    /// Returns the limits of `tenant`. `default` has those of the noun.
    async fn of(&self, tenant: &str, default: Quota) -> Result<Quota, Status>;
}

/// The objects of one tenant.
#[derive(Clone, Copy, Default)]
struct Usage {
    objects: u64,
    bytes: u64,
}

impl Usage {
    /// Returns what `new` adds in the place of `old`.
    fn added<K: Kind>(old: Option<&K::Record>, new: &K::Record) -> Self {
        let before = old.map_or(0, |old| old.counted_bytes());
        let bytes = new.counted_bytes().saturating_sub(before);
        Self { objects: u64::from(old.is_none()), bytes }
    }

    /// Passes if the objects and a `record` that adds to them are within `quota`.
    fn check(self, quota: &Quota, added: Self, tenant: &str) -> Result<(), Error> {
        let Quota { plural, max_objects, max_bytes, .. } = quota;
        let exceeds = |has: u64, added: u64, max: u64| {
            max > 0 && added > 0 && has.saturating_add(added) > max
        };
        let (limit, has) = if exceeds(self.objects, added.objects, *max_objects) {
            (format!("{max_objects} {plural}"), self.objects)
        } else if exceeds(self.bytes, added.bytes, *max_bytes) {
            (format!("{max_bytes} bytes in {plural}"), self.bytes)
        } else {
            return Ok(());
        };
        Err(Error::Quota { tenant: tenant.to_owned(), limit, has })
    }
}

impl<K: Kind> Records<K> {
    /// Commits `change`, which creates `new` or puts it in the place of `old`. Fails if its tenant
    /// has more than its quota then.
    pub(super) async fn commit_counted(
        &self,
        change: Change,
        old: Option<&K::Record>,
        new: &K::Record,
    ) -> Result<Revision, Error> {
        let tenant = new.owning_tenant();
        let old = old.filter(|old| old.owning_tenant() == tenant);
        let added = Usage::added::<K>(old, new);
        let adds = added.objects > 0 || added.bytes > 0;
        let Some(quota) = K::QUOTA.filter(|_| adds && !tenant.is_empty()) else {
            return self.commit(change).await;
        };
        let quota = self.limits(tenant, quota).await?;
        let key = format!("{}-count/{tenant}", quota.index);
        for _ in 0..MAX_ATTEMPTS {
            let seen = self.unchanged_key(&key).await?;
            self.usage(quota.index, tenant).await?.check(&quota, added, tenant)?;
            let write = Write::Put(key.clone(), Vec::new().into());
            let counted = Commit { expect: vec![seen.clone()], writes: vec![write] };
            match self.commit(change.clone().and(counted.into())).await {
                // Another creation was counted first.
                Err(Error::Changed { .. }) if self.unchanged_key(&key).await? != seen => {}
                result => return result,
            }
        }
        Err(Error::Changed { noun: K::NOUN, id: new.id().to_owned() })
    }

    /// Returns the limits of `tenant`.
    async fn limits(&self, tenant: &str, default: Quota) -> Result<Quota, Error> {
        let Some(quotas) = &self.quotas else { return Ok(default) };
        quotas.of(tenant, default).await.map_err(|status| Error::UnknownQuota {
            tenant: tenant.to_owned(),
            status: Box::new(status),
        })
    }

    /// Returns the expectation that `key` stays as it is.
    async fn unchanged_key(&self, key: &str) -> Result<Expect, Error> {
        let found = self.store.get(key).await?;
        Ok(match found {
            Some(found) => Expect::At(key.to_owned(), found.revision),
            None => Expect::Absent(key.to_owned()),
        })
    }

    /// Counts the records of `tenant`.
    async fn usage(&self, index: &str, tenant: &str) -> Result<Usage, Error> {
        let (mut usage, mut after) = (Usage::default(), String::new());
        loop {
            let part = self.list_indexed(index, tenant, &after, RECORDS_PER_PART, |_| true).await?;
            for record in &part.records {
                usage.objects += 1;
                usage.bytes = usage.bytes.saturating_add(record.counted_bytes());
            }
            match part.next {
                Some(next) => after = next,
                None => return Ok(usage),
            }
        }
    }
}

#[cfg(test)]
mod tests;
