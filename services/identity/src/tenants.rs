//! The tenants in the store.
//!
//! ```text
//! identity/tenant/<id>             the record
//! identity/tenant-name/<name>      ─▶ id
//! ```

use prost_types::Timestamp;
use runtime::Clock;
use store::ScopedStore;
use store::records::requests::IdempotentRequest;
use store::records::{Change, Error, Index, Kind, Records};
use tinwright::identity::v1 as pb;
use tinwright::status::Violations;
use tinwright::{Object as _, TenantId, TenantName, check, field_mask};

/// The index of tenants by name.
pub const NAME_INDEX: &str = "tenant-name";

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

    /// Deletes a tenant.
    pub async fn delete(&self, id: TenantId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        self.records.commit(self.records.to_delete(&old)).await?;
        Ok(())
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
