//! Deleted instances: their records, which are shown for 30 days, and the ids that are never used again.
//!
//! ```text
//! instance/deleted/<id>                               the record without secrets
//! instance/retired/id/<id>                            ─▶ tenant; in older stores the id
//! instance/retired/external_id/<tenant>/<id>          ─▶ id
//! ```
//!
//! A platform that believes that an instance still exists must not find another one in its place.

use std::time::Duration;

use runtime::address_claims;
use store::records::{self, Change, Kind, Listing, ListingBuilder, Records, Selector};
use store::{Commit, Expect, Store as _, Write};
use tinwright::instance::v1 as pb;
use tinwright::secret::Secrets as _;
use tinwright::status::AddressInUse;
use tinwright::{InstanceId, TenantName};

use super::{EXTERNAL_ID, Error, Instances, OCCUPANT};

/// Retention time of the record of a deleted instance.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

/// The kind of the records of deleted instances.
#[derive(Debug)]
pub enum DeletedKind {}

impl Kind for DeletedKind {
    type Record = pb::Instance;
    type Id = InstanceId;
    const KIND: &'static str = "deleted";
    /// The instance has the events.
    const EVENTS: bool = false;
}

/// Returns the tenant and the external id of `instance` as one text, if it has an external id.
pub(super) fn external_key(instance: &pb::Instance) -> Option<String> {
    let pb::Instance { tenant, external_id, .. } = instance;
    (!external_id.is_empty()).then(|| external_value(tenant, external_id))
}

/// Returns an external id of `tenant` as the index has it. No name of a tenant has a slash.
pub(crate) fn external_value(tenant: &str, external_id: &str) -> String {
    format!("{tenant}/{external_id}")
}

/// Returns the keys of the ids of `instance` that are not used again.
fn retired_keys(instance: &pb::Instance) -> impl Iterator<Item = String> {
    let external = external_key(instance).map(|key| format!("retired/{EXTERNAL_ID}/{key}"));
    [retired_key(&instance.id)].into_iter().chain(external)
}

fn retired_key(id: &str) -> String {
    format!("retired/id/{id}")
}

/// Changes nothing. Fails if an id of `instance` was that of a deleted one.
pub(super) fn expect_unused(instance: &pb::Instance) -> Change {
    let expect = retired_keys(instance).map(Expect::Absent).collect();
    Change::from(Commit { expect, writes: Vec::new() })
}

impl Instances {
    /// Removes `old` with its claims, and stores `new`, which is in the state deleted, as what remains of it.
    pub(super) async fn retire(
        &self,
        old: &pb::Instance,
        new: pb::Instance,
    ) -> Result<pb::Instance, Error> {
        let now = Some(self.now().into());
        let new = pb::Instance { delete_time: now, update_time: now, ..new.without_secrets() };
        let mut writes = vec![Write::Put(retired_key(&old.id), old.tenant.clone().into())];
        let external = external_key(old).map(|key| format!("retired/{EXTERNAL_ID}/{key}"));
        writes.extend(external.map(|key| Write::Put(key, old.id.clone().into())));
        let retired = Change::from(Commit { expect: Vec::new(), writes });
        let deleted = self.deleted.to_create(&new);
        self.records.commit(self.records.to_delete(old).and(deleted).and(retired)).await?;
        Ok(new)
    }

    /// Returns the reason why `instance` could not be created after another writer came first.
    pub(super) async fn reason_of_conflict(
        &self,
        instance: &pb::Instance,
    ) -> Result<Error, records::Error> {
        let (noun, id) = ("instance", instance.id.clone());
        let retired = self.retired(instance).await?;
        Ok(retired.unwrap_or_else(|| records::Error::Changed { noun, id }.into()))
    }

    /// Returns the error for `instance` if one of its ids was that of a deleted one.
    async fn retired(&self, instance: &pb::Instance) -> Result<Option<Error>, records::Error> {
        for key in retired_keys(instance) {
            if self.records.store().get(&key).await?.is_some() {
                let name = match key.starts_with("retired/id/") {
                    true => format!("instance id {}", instance.id),
                    false => format!("external_id {}", instance.external_id),
                };
                return Ok(Some(Error::Retired(name)));
            }
        }
        Ok(None)
    }

    /// Passes if `instance`, which is in its stored form but for a new id, could be created now: no instance has or had an id of it, or
    /// has its machine or an address of it.
    pub(crate) async fn check_unclaimed(&self, instance: &pb::Instance) -> Result<(), Error> {
        let addresses = instance.ips.iter().map(|ip| ("address", ip.address.clone()));
        let external = external_key(instance).map(|key| (EXTERNAL_ID, key));
        let machine = (OCCUPANT, instance.hardware_id.clone());
        for (index, value) in [machine].into_iter().chain(addresses).chain(external) {
            if let Some(other) = self.records.find(index, &value).await? {
                return Err(taken(index, value, other));
            }
        }
        if !instance.id.is_empty() && self.records.get(&instance.id).await?.is_some() {
            let (noun, id) = ("instance", instance.id.clone());
            return Err(records::Error::Exists { noun, id }.into());
        }
        self.retired(instance).await?.map_or(Ok(()), Err)
    }

    /// The records of deleted instances.
    pub fn deleted_records(&self) -> &Records<DeletedKind> {
        &self.deleted
    }

    /// Returns the record of the deleted instance `id`, if it was deleted in the last 30 days.
    pub async fn deleted(&self, id: &str) -> Result<Option<pb::Instance>, records::Error> {
        self.deleted.get(id).await
    }

    /// True if the instance that is selected by its id or external id was deleted, however long ago, and was one that `tenant` may see.
    pub async fn was_deleted(
        &self,
        selector: &Selector,
        tenant: Option<&TenantName>,
    ) -> Result<bool, records::Error> {
        let retired = match selector {
            Selector::Id(id) => retired_key(id),
            Selector::Index(EXTERNAL_ID, key) => format!("retired/{EXTERNAL_ID}/{key}"),
            Selector::Index(..) => return Ok(false),
        };
        let Some(entry) = self.records.store().get(&retired).await? else { return Ok(false) };
        let of = match selector {
            Selector::Id(_) => String::from_utf8_lossy(&entry.value).into_owned(),
            Selector::Index(_, key) => key.split('/').next().unwrap_or_default().to_owned(),
        };
        Ok(tenant.is_none_or(|tenant| tenant.as_str() == of))
    }

    /// Returns the record of the selected deleted instance, if it is selected by its id or external id, and was deleted in the last 30
    /// days.
    pub async fn select_deleted(
        &self,
        selector: &Selector,
    ) -> Result<Option<pb::Instance>, records::Error> {
        match selector {
            Selector::Id(id) => self.deleted(id).await,
            Selector::Index(EXTERNAL_ID, key) => {
                let retired = format!("retired/{EXTERNAL_ID}/{key}");
                let Some(entry) = self.records.store().get(&retired).await? else {
                    return Ok(None);
                };
                self.deleted(&String::from_utf8_lossy(&entry.value)).await
            }
            Selector::Index(..) => Ok(None),
        }
    }

    /// Returns at most `limit` instances, and deleted ones, that pass the filter `keep`, after the id `after`.
    pub async fn list_with_deleted(
        &self,
        after: &str,
        limit: usize,
        keep: impl Fn(&pb::Instance) -> bool,
    ) -> Result<Listing<pb::Instance>, records::Error> {
        let live = self.records.list(after, limit, &keep).await?;
        let deleted = self.deleted.list(after, limit, &keep).await?;
        // Both lists are complete up to the lower of their ends.
        let end = [live.next, deleted.next].into_iter().flatten().min();
        let mut found: Vec<_> = live.records.into_iter().chain(deleted.records).collect();
        found.retain(|it| end.as_ref().is_none_or(|end| it.id <= *end));
        found.sort_by(|a, b| a.id.cmp(&b.id));
        // An instance that was deleted between the two reads is in both lists.
        found.dedup_by(|deleted, live| deleted.id == live.id);
        let (mut listing, mut last) = (ListingBuilder::new(limit), None);
        let mut found = found.into_iter();
        while !listing.is_full()
            && let Some(instance) = found.next()
        {
            last = Some(instance.id.clone());
            listing.push(instance);
        }
        Ok(listing.end(if found.len() > 0 { last } else { end }))
    }

    /// Deletes the records of instances that were deleted more than 30 days ago. Returns their number.
    pub async fn expire_deleted(&self) -> Result<usize, records::Error> {
        let oldest = self.now() - RETENTION;
        let (mut after, mut expired) = (String::new(), 0);
        loop {
            let (page, more) = self.deleted.page("", &after, PAGE_RECORDS).await?;
            for instance in &page {
                instance.id.clone_into(&mut after);
                let time = instance.delete_time.and_then(|time| time.try_into().ok());
                if time.is_none_or(|time: std::time::SystemTime| time < oldest) {
                    self.deleted.commit(self.deleted.to_delete(instance)).await?;
                    expired += 1;
                }
            }
            if !more {
                return Ok(expired);
            }
        }
    }
}

/// Returns the error for a `value` of the index `index` that the instance `other` has. That of an address is the one of the address service.
fn taken(index: &str, value: String, other: pb::Instance) -> Error {
    let (noun, by) = ("instance", other.id);
    if index == "address" {
        let text = format!("{value} is an address of {noun} {by}");
        let (noun, tenant) = (noun.to_owned(), other.tenant);
        let used = AddressInUse { address: value, noun, id: by, tenant, text };
        return address_claims::Error::InUse(Box::new(used)).into();
    }
    let (index, name) = (index.to_owned(), other.hostname);
    records::Error::Taken { noun, index, value, by, name }.into()
}

#[cfg(test)]
mod tests;
