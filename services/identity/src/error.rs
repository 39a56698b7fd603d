//! Failed requests to this service, and their gRPC status.

use runtime::authority;
use runtime::secret::CryptoError;
use store::records;
use tinwright::TenantName;
use tinwright::status::{self, Violations};
use tonic::Status;

use crate::tenants::objects::ObjectCount;

/// A failed request about identities.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// Objects of this tenant exist.
    #[error("tenant {tenant} has {}: delete or revoke them first", found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    InUse {
        /// The tenant.
        tenant: TenantName,
        /// Its objects, by kind.
        found: Vec<ObjectCount>,
    },
    /// A tenant of this name was deleted.
    #[error("a tenant {0} was deleted: its name is not used again")]
    Retired(String),
    /// A call to another service failed.
    #[error("the {service} service did not answer")]
    Unavailable {
        /// The service.
        service: &'static str,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
    /// No credential has the fields of the request.
    #[error("unknown or deleted API key: no credential has these fields")]
    Unknown,
    /// Only credentials that have expired have the fields of the request.
    #[error("the credential has expired")]
    Expired,
    /// The certificate cannot be issued.
    #[error("issuing the certificate")]
    Authority(#[source] authority::Error),
    /// What was made with the former key may be in use for this time.
    #[error("what was made with the former key may be in use for another {}: try later, or use --force", in_words(*.0))]
    InUseFor(std::time::Duration),
    /// Edges have keys of the former site key.
    #[error("edges have keys of the former site key: {}: issue them again and revoke these certificates, or use --force", .0.join(", "))]
    EdgesOfFormerKey(Vec<String>),
    /// A step of replacing a key failed, and may be repeated.
    #[error("replacing the key")]
    Rotation(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The cryptographic library failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl From<authority::Error> for Error {
    fn from(error: authority::Error) -> Self {
        if matches!(error, authority::Error::Request(_)) {
            return Violations::single("certificate_request", error).into();
        }
        Self::Authority(error)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Unavailable { ref status, .. } => {
                Self::unavailable(format!("{text}: {}", status.message()))
            }
            Error::InUse { tenant, .. } => {
                status::failed_precondition("TENANT_IN_USE", &format!("tenant/{tenant}"), text)
            }
            Error::Retired(name) => {
                status::failed_precondition("TENANT_DELETED", &format!("tenant/{name}"), text)
            }
            Error::Unknown => status::unauthenticated("CREDENTIAL_UNKNOWN", text),
            Error::Expired => status::unauthenticated("CREDENTIAL_EXPIRED", text),
            Error::Authority(authority::Error::NoKey(path)) => {
                let text =
                    format!("this server cannot issue certificates: {} is missing", path.display());
                status::failed_precondition("NO_AUTHORITY_KEY", "certificate", text)
            }
            Error::Authority(
                cause @ (authority::Error::Rotating(_) | authority::Error::NotReplaced),
            ) => status::failed_precondition("ROTATION_NOT_FINISHED", "key", cause.to_string()),
            Error::EdgesOfFormerKey(_) => {
                status::failed_precondition("EDGES_OF_FORMER_KEY", "key", text)
            }
            Error::InUseFor(_) => status::failed_precondition("KEY_IN_USE", "key", text),
            Error::Rotation(cause) => {
                tracing::error!(error = &*cause as &dyn std::error::Error, "key not replaced");
                Self::unavailable(format!("{text}: {cause}; repeat the step"))
            }
            Error::Authority(cause) => {
                tracing::error!(error = &cause as &dyn std::error::Error, "certificate not issued");
                Self::internal(text)
            }
            Error::Crypto(_) => Self::internal(text),
            Error::Records(error) => error.into(),
        }
    }
}

/// Returns `duration` in whole minutes, or from two hours on in whole hours, rounded up.
fn in_words(duration: std::time::Duration) -> String {
    match duration.as_secs().div_ceil(60) {
        1 => "minute".into(),
        minutes @ 0..120 => format!("{minutes} minutes"),
        minutes => format!("{} hours", minutes.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_that_is_in_use_is_said_with_the_time_and_the_option() {
        let text = |seconds| Error::InUseFor(Duration::from_secs(seconds)).to_string();
        let wanted = "what was made with the former key may be in use for another 24 hours: try later, or use --force";
        assert_eq!(text(86_400), wanted);
        assert!(text(60).contains("another minute:") && text(119).contains("another 2 minutes:"));
        assert!(text(7201).contains("another 3 hours:"), "{}", text(7201));
    }
}
