//! The tenants of the site, for services whose objects name one.
//!
//! An object of a tenant is created between two checks, and a tenant is deleted between a mark and a look at all owners:
//!
//! ```text
//! creation     find the tenant ── store the object ── find the tenant again, or take the object back
//! deletion     mark the tenant ── look for objects ── delete the tenant, or remove the mark
//! ```
//!
//! A tenant with the mark counts as missing. So in whatever order these steps happen, the deletion finds the object, or the creation
//! finds the mark.

use crate::Channel;
use tinwright::TenantName;
use tinwright::identity::v1::get_tenant_request::By;
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tinwright::identity::v1::{GetTenantRequest, Tenant};
use tinwright::status::Violations;
use tonic::Status;

/// A client of the identity service, which has the tenants.
#[derive(Clone, Debug)]
pub struct TenantDirectory {
    identity: TenantServiceClient<Channel>,
}

/// Handling of a new object if the identity service does not answer the second look for its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfUnanswered {
    /// Keeps the object. Its service has to look for the tenant before it uses the object.
    Keep,
    /// Takes the object back.
    TakeBack,
}

/// Nothing can be created for a tenant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no name of a tenant.
    #[error("{0}")]
    Invalid(Violations),
    /// There is no such tenant.
    #[error("{field}: there is no tenant {tenant}")]
    Missing {
        /// The field that names it.
        field: String,
        /// The tenant.
        tenant: TenantName,
    },
    /// The tenant is being deleted. It is there again if that is refused.
    #[error("{field}: tenant {tenant} is being deleted")]
    BeingDeleted {
        /// The field that names it.
        field: String,
        /// The tenant.
        tenant: TenantName,
    },
    /// The identity service did not answer.
    #[error("the identity service did not answer whether there is a tenant {tenant}")]
    Unavailable {
        /// The tenant.
        tenant: TenantName,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
}

impl TenantDirectory {
    /// A client for the channel `identity`.
    pub fn new(identity: Channel) -> Self {
        Self { identity: TenantServiceClient::new(identity) }
    }

    /// Passes if objects of `tenant` may be created: it exists, or is empty, for the site. An error names it `field`.
    pub async fn require(&self, field: &str, tenant: &str) -> Result<(), Error> {
        if tenant.is_empty() {
            return Ok(());
        }
        let tenant: TenantName = Violations::parse(field, tenant).map_err(Error::Invalid)?;
        let field = field.to_owned();
        match self.find(&tenant).await? {
            Some(found) if found.deleting => Err(Error::BeingDeleted { field, tenant }),
            Some(_) => Ok(()),
            None => Err(Error::Missing { field, tenant }),
        }
    }

    /// Returns the tenant `name`, if there is one.
    pub async fn find(&self, name: &TenantName) -> Result<Option<Tenant>, Error> {
        let by = Some(By::Name(name.to_string()));
        let found = crate::find(self.identity.clone().get_tenant(GetTenantRequest { by })).await;
        match found {
            Ok(found) => Ok(found.and_then(|it| it.tenant)),
            Err(status) => {
                Err(Error::Unavailable { tenant: name.clone(), status: Box::new(status) })
            }
        }
    }

    /// Stores a new object of `tenant` by `create`. If the tenant is deleted at the same time, `take_back` removes the object, unless
    /// it returns it because it is in use already. `if_unanswered` applies if the second look has no answer. The call must not be
    /// cancelled: a caller that may go away spawns it.
    pub async fn create<T, E: From<Error>, R: Future<Output = Result<Option<T>, E>>>(
        &self,
        field: &str,
        tenant: &str,
        if_unanswered: IfUnanswered,
        create: impl Future<Output = Result<T, E>>,
        take_back: impl FnOnce(T) -> R,
    ) -> Result<T, E> {
        self.require(field, tenant).await?;
        let created = create.await?;
        match self.require(field, tenant).await {
            Ok(()) => Ok(created),
            Err(Error::Unavailable { .. }) if if_unanswered == IfUnanswered::Keep => Ok(created),
            Err(error) => take_back(created).await?.ok_or_else(|| error.into()),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Missing { field, tenant } => {
                Violations::single(field, format!("there is no tenant {tenant}")).into()
            }
            Error::BeingDeleted { field, tenant } => {
                Violations::single(field, format!("tenant {tenant} is being deleted")).into()
            }
            Error::Unavailable { ref status, .. } => {
                Self::unavailable(format!("{error}: {}", status.message()))
            }
        }
    }
}
