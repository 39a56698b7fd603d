//! The caller's role, named by a URI in its certificate (roles: `docs/reference/access.md`).
//!
//! ```text
//! tinwright:admin   tinwright:operator   tinwright:viewer   tinwright:service   tinwright:machine:<hardware id>
//! ```
//!
//! A connection without a certificate has no role. Inside the process the caller is the service by construction.

use std::fmt;
use std::str::FromStr;

use tinwright::HardwareId;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

const SCHEME: &str = "tinwright:";

/// The role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// May do everything.
    Admin,
    /// May do everything but read secrets.
    Operator,
    /// May read everything but secrets.
    Viewer,
    /// A process of Tinwright.
    Service,
    /// The worker on a machine: may only call for that machine.
    Machine(HardwareId),
}

/// The role of a connection's peer, if it has one; in every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(pub Option<Role>);

/// The text names no role.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no role")]
pub struct UnknownRole(String);

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("tinwright:admin"),
            Self::Operator => f.write_str("tinwright:operator"),
            Self::Viewer => f.write_str("tinwright:viewer"),
            Self::Service => f.write_str("tinwright:service"),
            Self::Machine(id) => write!(f, "tinwright:machine:{id}"),
        }
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(uri: &str) -> Result<Self, Self::Err> {
        let no = || UnknownRole(uri.chars().take(80).collect());
        match uri.strip_prefix(SCHEME).ok_or_else(no)? {
            "admin" => Ok(Self::Admin),
            "operator" => Ok(Self::Operator),
            "viewer" => Ok(Self::Viewer),
            "service" => Ok(Self::Service),
            other => {
                let id = other.strip_prefix("machine:").and_then(|id| id.parse().ok());
                id.map(Self::Machine).ok_or_else(no)
            }
        }
    }
}

/// Returns the role in a certificate (DER) that TLS has already verified; none if it names none, or more than one.
pub fn role_in_certificate(certificate: &[u8]) -> Option<Role> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut roles = names.value.general_names.iter().filter_map(|name| {
        let GeneralName::URI(uri) = name else { return None };
        uri.parse().ok()
    });
    let role = roles.next()?;
    roles.next().is_none().then_some(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_read_back_from_its_name() {
        let machine = Role::Machine(HardwareId::new());
        for role in [Role::Admin, Role::Operator, Role::Viewer, Role::Service, machine] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        for wrong in ["", "admin", "tinwright:", "tinwright:root", "tinwright:machine:x"] {
            assert!(wrong.parse::<Role>().is_err(), "{wrong}");
        }
    }
}
