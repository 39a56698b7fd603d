//! The limits of a tenant's images: those in its record, else the contract's.

use async_trait::async_trait;
use runtime::tenants::TenantDirectory;
use store::records::TenantQuotas;
use tinwright::object::Quota;
use tonic::Status;

/// The limits in the records of tenants.
#[derive(Clone, Debug)]
pub(crate) struct ImageQuotas(pub(crate) TenantDirectory);

#[async_trait]
impl TenantQuotas for ImageQuotas {
    async fn of(&self, tenant: &str, default: Quota) -> Result<Quota, Status> {
        let Ok(name) = tenant.parse() else { return Ok(default) };
        let limits = self.0.find(&name).await?.and_then(|found| found.image_quota);
        let limits = limits.unwrap_or_default();
        let or = |limit: u64, default: u64| if limit == 0 { default } else { limit };
        Ok(Quota {
            max_objects: or(limits.max_images, default.max_objects),
            max_bytes: or(limits.max_bytes, default.max_bytes),
            ..default
        })
    }
}
