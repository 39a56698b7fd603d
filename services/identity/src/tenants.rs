//! The tenants in the store.
//!
//! ```text
//! identity/tenant/<id>             the record
//! identity/tenant-name/<name>      ─▶ id
//! ```

use prost_types::Timestamp;
use runtime::Clock;
use store::records::requests::IdempotentRequest;
use store::records::{Change, Error, Index, Kind, Records};
use store::{ScopedStore, Store as _};
use tinwright::identity::v1 as pb;
use tinwright::status::Violations;
use tinwright::{Object as _, TenantId, TenantName, check, field_mask};

/// The index of credentials by tenant.
pub(crate) const CREDENTIAL_INDEX: &str = "credential-tenant";
/// The index of certificates by tenant.
pub(crate) const CERTIFICATE_INDEX: &str = "certificate-tenant";
/// The index of tenants by name.
pub const NAME_INDEX: &str = "tenant-name";

/// Attempts to create an identity of a tenant while others are created.
const MAX_ATTEMPTS: usize = 16;
const MAX_DESCRIPTION_BYTES: usize = 1024;

/// The kind of these records.
#[derive(Debug)]
pub enum TenantKind {}

impl Kind for TenantKind {
    type Record = pb::Tenant;
    type Id = TenantId;
    const NOUN: &'static str = "tenant";
    const KIND: &'static str = "tenant";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn id(tenant: &pb::Tenant) -> &str {
        &tenant.id
    }

    fn revision_mut(tenant: &mut pb::Tenant) -> &mut i64 {
        &mut tenant.revision
    }

    fn indexes(tenant: &pb::Tenant) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &tenant.name)]
    }

    const EVENTS: bool = true;

    fn tenant(tenant: &pb::Tenant) -> &str {
        &tenant.name
    }

    fn changed_fields(old: &pb::Tenant, new: &pb::Tenant) -> Vec<String> {
        field_mask::changed_fields(old, new)
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

    /// Returns the underlying records.
    pub fn records(&self) -> &Records<TenantKind> {
        &self.records
    }

    /// Stores a new tenant. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        tenant: pb::Tenant,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Tenant, Error> {
        let mut tenant = checked(tenant)?;
        tenant.initialize("tenant.id", self.clock.wall())?;
        self.records.create(&tenant, Change::default(), request.as_ref()).await
    }

    /// Replaces the fields of a tenant that `paths` name.
    pub async fn update(&self, update: pb::Tenant, paths: &[String]) -> Result<pb::Tenant, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let merged = checked(field_mask::merge(&old, &update, paths)?)?;
        if merged == old {
            return Ok(old);
        }
        let update_time = Some(Timestamp::from(self.clock.wall()));
        self.records.replace(&old, pb::Tenant { update_time, ..merged }).await
    }

    /// Deletes a tenant, unless there are identities of it.
    pub async fn delete(&self, id: TenantId, revision: i64) -> Result<(), crate::Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        for index in [CREDENTIAL_INDEX, CERTIFICATE_INDEX] {
            let prefix = format!("{index}/{}/", old.name);
            let found = self.records.store().list(&prefix, "", 1).await.map_err(Error::from)?;
            if !found.pairs.is_empty() {
                return Err(crate::Error::InUse(old.name));
            }
        }
        // An identity that was created since changed the tenant's revision.
        self.records.commit(self.records.to_delete(&old)).await?;
        Ok(())
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
        Ok(self.records.to_replace(&tenant, &tenant))
    }
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
mod tests;
