//! The grant of the address from which the machine of a platform's system boots.

use tinwright::address::v1 as addr;
use tinwright::instance::v1::Instance;
use tinwright::status::AddressInUse;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{Error, Peers, classify, optional};

/// The key of the grant of an instance in its first generation. A grant that was released keeps its key, so that a later one has another.
const FIRST_GENERATION: i64 = 1;

/// The grant as it is now, or the refusal of one.
pub(super) type GrantAnswer = Result<Box<addr::Grant>, NoGrant>;

/// A refusal of the address service. The reasons name no object of others: tenants see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoGrant {
    /// It is refused now, and may not be later.
    Wait(String),
    /// The grant was released, or was pending for too long: it needs another one.
    Gone,
    /// It is refused until somebody changes something.
    Refused(String),
}

impl Peers {
    /// Grants `instance` an IPv4 address of a location. Safe to repeat: it is the same grant while the instance has the same generation.
    /// The grant is pending, and ends by itself unless it is attached.
    pub async fn create_primary_grant(
        &self,
        instance: &Instance,
        location_id: &str,
        group: &str,
    ) -> Result<GrantAnswer, Error> {
        let grant = addr::Grant {
            tenant: instance.tenant.clone(),
            key: primary_key(instance),
            location_id: location_id.to_owned(),
            group: group.to_owned(),
            family: addr::AddressFamily::Ipv4.into(),
            ..addr::Grant::default()
        };
        let request = addr::CreateGrantRequest { grant: Some(grant) };
        let response = self.address.clone().create_grant(request).await;
        match response.map(|response| response.into_inner().grant) {
            Ok(Some(grant)) => Ok(Ok(Box::new(grant))),
            Ok(None) => Err(no_grant()),
            Err(status) => {
                tracing::info!(instance.id, reason = status.message(), "no address granted");
                refusal(status)
            }
        }
    }

    /// Attaches the grant `id` to the interface `mac` of the instance's machine, as the address that DHCP gives it. Safe to repeat.
    pub async fn attach_primary_grant(
        &self,
        id: &str,
        instance: &Instance,
        mac: &str,
    ) -> Result<GrantAnswer, Error> {
        let (instance_id, mac) = (instance.id.clone(), mac.to_owned());
        let attachment = Some(addr::Attachment { instance_id, mac, primary: true });
        let request = addr::AttachGrantRequest { id: id.to_owned(), attachment };
        let response = self.address.clone().attach_grant(request).await;
        match response.map(|response| response.into_inner().grant) {
            Ok(Some(grant)) => Ok(Ok(Box::new(grant))),
            Ok(None) => Err(no_grant()),
            // It was pending for ten minutes. If the instance or the machine is gone instead, the next step finds that.
            Err(status) if status.code() == Code::NotFound => Ok(Err(NoGrant::Gone)),
            Err(status) if status.code() == Code::AlreadyExists => {
                tracing::warn!(instance.id, reason = status.message(), "address not attached");
                Ok(Err(NoGrant::Wait("the interface has another granted address".into())))
            }
            Err(status) => {
                tracing::info!(instance.id, reason = status.message(), "address not attached");
                refusal(status)
            }
        }
    }

    /// Detaches the grant `id` and releases it. Safe to repeat, for ever.
    pub async fn release_grant(&self, id: &str) -> Result<(), Error> {
        let request = addr::ReleaseGrantRequest { id: id.to_owned(), revision: 0 };
        optional("address", self.address.clone().release_grant(request).await).map(drop)
    }
}

/// Returns the key of the grant for `instance`.
fn primary_key(instance: &Instance) -> String {
    match instance.generation {
        FIRST_GENERATION => format!("instance/{}/primary", instance.id),
        later => format!("instance/{}/primary/{later}", instance.id),
    }
}

/// Returns the refusal that the error `status` stands for.
fn refusal(status: Status) -> Result<GrantAnswer, Error> {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    Ok(Err(match (status.code(), reason.as_str()) {
        (Code::ResourceExhausted, "ADDRESSES_EXHAUSTED") => {
            NoGrant::Wait("no IPv4 address of the location is free".into())
        }
        (Code::ResourceExhausted, "QUOTA") => {
            NoGrant::Wait("the tenant has as many addresses as it may have".into())
        }
        (Code::FailedPrecondition, "GRANT_RELEASED") => NoGrant::Gone,
        // Another process granted it at the same time; the step is repeated soon, and finds another one.
        (Code::AlreadyExists, AddressInUse::REASON) => return Err(classify("address", status)),
        (Code::NotFound | Code::InvalidArgument, _) => {
            NoGrant::Refused("no IPv4 addresses are bound to the location".into())
        }
        (Code::FailedPrecondition | Code::AlreadyExists, _) => {
            NoGrant::Refused("the address service refuses an address".into())
        }
        _ => return Err(classify("address", status)),
    }))
}

fn no_grant() -> Error {
    classify("address", Status::internal("the response has no grant"))
}
