//! The tenants in the store.
//!
//! ```text
//! identity/tenant/<id>             the record
//! identity/tenant-name/<name>      ─▶ id
//! identity/retired/tenant/<name>   ─▶ id: the names of deleted tenants, for ever
//! ```
//!
//! The records and events of a deleted tenant stay, and name it: a later tenant of the name would see them. So no name is used twice.
//!
//! A tenant is deleted in steps ([`Tenants::delete`]): it is marked, its objects are looked for, and then it is deleted or the mark is removed.
//! `runtime::tenants` shows why nothing is created for it meanwhile.

pub mod objects;

use nouns::{Edit, Noun, Served};
use runtime::Clock;
use store::records::requests::IdempotentRequest;
use store::records::{Change, Error, Index, Kind, Records};
use store::{Commit, Expect, ScopedStore, Store as _, Write};
use tinwright::identity::v1 as pb;
use tinwright::status::Violations;
use tinwright::{TenantId, TenantName, check};

use self::objects::{ObjectCount, TenantObjects};

/// The index of credentials by tenant.
pub(crate) const CREDENTIAL_INDEX: &str = "credential-tenant";
/// The index of certificates by tenant.
pub(crate) const CERTIFICATE_INDEX: &str = "certificate-tenant";
/// The index of tenants by name.
pub const NAME_INDEX: &str = "tenant-name";

/// Attempts to create an identity of a tenant while others are created.
const MAX_ATTEMPTS: usize = 16;
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// Identities of one kind that are counted.
const MAX_COUNTED_IDENTITIES: usize = 200;

/// The kind of these records.
#[derive(Debug)]
pub enum TenantKind {}

impl Kind for TenantKind {
    type Record = pb::Tenant;
    type Id = TenantId;
    const KIND: &'static str = "tenant";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn indexes(tenant: &pb::Tenant) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &tenant.name)]
    }

    fn tenant(tenant: &pb::Tenant) -> &str {
        &tenant.name
    }

    /// The mark of a deletion is not: its end is. Neither is the same record, which is written as a lock.
    fn is_event(old: &pb::Tenant, new: &pb::Tenant) -> bool {
        !Self::changed_fields(old, new).is_empty()
    }
}

impl Served for TenantKind {
    const NAME_INDEX: &'static str = NAME_INDEX;

    fn indexed_name(name: String) -> Result<String, String> {
        Ok(name)
    }
}

/// The tenants.
#[derive(Clone, Debug)]
pub struct Tenants {
    records: Records<TenantKind>,
    clock: Clock,
}

impl Tenants {
    /// The tenants in `store`, whose keys are the identity service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store), clock }
    }

    /// Deletes a tenant for good, unless there are identities of it, or `objects` of other services. It must not be cancelled, which would leave
    /// the mark: a caller that may go away spawns it.
    pub async fn delete(
        &self,
        id: TenantId,
        revision: i64,
        objects: &TenantObjects,
    ) -> Result<(), crate::Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let marked = self.records.replace(&old, pb::Tenant { deleting: true, ..old.clone() });
        let marked = marked.await?;
        let refused = match self.check_unused(&marked, objects).await {
            // Another deletion may have removed the mark, and something may have been created since: that changed the revision.
            Ok(()) => match self.records.commit(self.to_retire(&marked)).await {
                Ok(_) => return Ok(()),
                Err(error) => error.into(),
            },
            Err(refused) => refused,
        };
        if let Err(error) = self.remove_mark(&marked.id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, tenant = marked.name, "deletion not taken back; repeat it");
        }
        Err(refused)
    }

    /// Removes `tenant`. Its name is not used again.
    fn to_retire(&self, tenant: &pb::Tenant) -> Change {
        let writes = vec![Write::Put(retired_key(tenant), tenant.id.clone().into())];
        let retired = Change::from(Commit { expect: Vec::new(), writes });
        self.records.to_delete(tenant).and(retired)
    }

    /// Removes the mark of the tenant `id`, if it is still there and has one.
    async fn remove_mark(&self, id: &str) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let Some(tenant) = self.records.get(id).await? else { return Ok(()) };
            let unmarked = pb::Tenant { deleting: false, ..tenant.clone() };
            match self.records.replace(&tenant, unmarked).await {
                Err(Error::Changed { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Passes if `tenant`, which is marked, has neither identities nor objects of other services.
    async fn check_unused(
        &self,
        tenant: &pb::Tenant,
        objects: &TenantObjects,
    ) -> Result<(), crate::Error> {
        let name: TenantName = Violations::parse("name", &tenant.name)?;
        let mut found = objects.of(&name).await?;
        for (noun, index) in [("credential", CREDENTIAL_INDEX), ("certificate", CERTIFICATE_INDEX)]
        {
            found.extend(self.identities(noun, index, &name).await?);
        }
        match found.is_empty() {
            true => Ok(()),
            false => Err(crate::Error::InUse { tenant: name, found }),
        }
    }

    /// Returns the identities of the tenant `name` in `index`, if there are any.
    async fn identities(
        &self,
        noun: &'static str,
        index: &str,
        name: &TenantName,
    ) -> Result<Option<ObjectCount>, crate::Error> {
        let prefix = format!("{index}/{name}/");
        let page = self.records.store().list(&prefix, "", MAX_COUNTED_IDENTITIES).await;
        let page = page.map_err(Error::from)?;
        let ids =
            page.pairs.into_iter().filter_map(|(key, _)| Some(key.rsplit_once('/')?.1.to_owned()));
        let mut found = ObjectCount::new(noun);
        found.add(ids, page.more);
        Ok((found.count > 0).then_some(found))
    }

    /// Checks that there is a tenant `name`, unless it is empty. An error names it `field`.
    pub(crate) async fn require(&self, field: &str, name: &str) -> Result<(), crate::Error> {
        self.to_reference(field, name).await.map(drop)
    }

    /// Creates `record`, an identity of the tenant `name`, which has to exist unless it is empty. An error names it `field`.
    pub(crate) async fn create_identity<K: Kind>(
        &self,
        records: &Records<K>,
        record: &K::Record,
        (field, name): (&str, &str),
        request: Option<&IdempotentRequest>,
    ) -> Result<K::Record, crate::Error> {
        let mut attempt = 1;
        loop {
            let reference = self.to_reference(field, name).await?;
            match records.create(record, reference, request).await {
                // The tenant's record was changed meanwhile.
                Err(Error::Changed { .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Returns the change that is committed with a new identity of the tenant `name`. It writes the tenant's record again, so that a
    /// deletion at the same time fails.
    async fn to_reference(&self, field: &str, name: &str) -> Result<Change, crate::Error> {
        if name.is_empty() {
            return Ok(Change::default());
        }
        let name: TenantName = Violations::parse(field, name)?;
        let Some(tenant) = self.records.find(NAME_INDEX, name.as_str()).await? else {
            return Err(Violations::single(field, format!("there is no tenant {name}")).into());
        };
        if tenant.deleting {
            return Err(Violations::single(field, format!("tenant {name} is being deleted")).into());
        }
        Ok(self.records.to_replace(&tenant, &tenant))
    }
}

impl Noun for Tenants {
    type Kind = TenantKind;
    type Error = crate::Error;

    fn records(&self) -> &Records<TenantKind> {
        &self.records
    }
}

impl Edit for Tenants {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(
        &self,
        tenant: pb::Tenant,
        old: Option<&pb::Tenant>,
    ) -> Result<pb::Tenant, Violations> {
        let deleting = old.is_some_and(|old| old.deleting);
        Ok(pb::Tenant { deleting, ..checked(tenant)? })
    }

    /// Expects that no deleted tenant had the name.
    async fn before_create(&self, tenant: &mut pb::Tenant) -> Result<Change, crate::Error> {
        let retired = retired_key(tenant);
        if self.records.store().get(&retired).await.map_err(Error::from)?.is_some() {
            return Err(crate::Error::Retired(tenant.name.clone()));
        }
        Ok(Commit { expect: vec![Expect::Absent(retired)], writes: Vec::new() }.into())
    }
}

/// Returns the key by which the name of `tenant`, once it is deleted, is not used again.
fn retired_key(tenant: &pb::Tenant) -> String {
    format!("retired/tenant/{}", tenant.name)
}

/// Returns `tenant` if its fields are valid.
fn checked(tenant: pb::Tenant) -> Result<pb::Tenant, Violations> {
    let mut wrong = Violations::default();
    wrong.take("tenant.name", tenant.name.parse::<TenantName>());
    wrong.take("tenant.labels", check::labels(&tenant.labels));
    wrong.take("tenant.description", check::length(&tenant.description, MAX_DESCRIPTION_BYTES));
    wrong.into_result(tenant)
}

#[cfg(test)]
pub(crate) mod tests;
