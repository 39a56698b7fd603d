//! Callers of the API: their role, and their subject for logs (`docs/reference/access.md`). A URI in the client certificate names both.
//!
//! ```text
//! tinwright:<role>[?subject=<subject>]                         tinwright:viewer?subject=person:anna
//! tinwright:machine:<hardware id>[?purpose=<enrol or node>]    tinwright:machine:0192…
//! ```
//!
//! A request without a [`Caller`] in its extensions comes from a connection without a role. Inside the process the caller is the
//! service.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tinwright::HardwareId;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

const SCHEME: &str = "tinwright:";
/// The most bytes of a subject.
const MAX_SUBJECT_BYTES: usize = 128;
/// The kinds of subjects.
const SUBJECT_KINDS: [&str; 4] = ["person", "machine", "service", "credential"];

/// The role of a caller. It decides which calls the caller may make.
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
    /// A process that serves machines in a less trusted place.
    Edge,
    /// A process that translates another protocol.
    Door,
    /// A process that builds images.
    Builder,
    /// A machine: may only call for itself.
    Machine(HardwareId, MachinePurpose),
}

/// The purpose of a machine's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MachinePurpose {
    /// The worker executes the machine's workflows.
    Work,
    /// An unknown machine reports its inventory.
    Enrol,
    /// The machine runs images as a node.
    Node,
}

/// The caller of a request. It is in the extensions of each request of a caller with a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    role: Role,
    /// For logs. Rights depend on the role only.
    subject: Arc<str>,
}

/// The text does not name a caller.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCaller {
    /// There is no such role.
    #[error("{0:?} does not name a role")]
    Role(String),
    /// The subject has another form.
    #[error(
        "{0:?} is not a subject: person:, machine:, service: or credential:, then letters, digits and .@_-, at most {MAX_SUBJECT_BYTES} bytes"
    )]
    Subject(String),
}

impl Role {
    /// The role of the worker on a machine.
    pub fn worker(machine: HardwareId) -> Self {
        Self::Machine(machine, MachinePurpose::Work)
    }

    /// The subject of a caller whose certificate has none.
    fn default_subject(self) -> String {
        match self {
            Self::Admin | Self::Operator | Self::Viewer => format!("person:{}", self.name()),
            Self::Service => "service:tinwright".into(),
            Self::Edge | Self::Door | Self::Builder => format!("service:{}", self.name()),
            Self::Machine(id, _) => format!("machine:{id}"),
        }
    }

    /// The name of the role.
    fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Service => "service",
            Self::Edge => "edge",
            Self::Door => "door",
            Self::Builder => "builder",
            Self::Machine(..) => "machine",
        }
    }
}

/// The role as in the URI, without parameters.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.name())?;
        if let Self::Machine(id, _) = self { write!(f, ":{id}") } else { Ok(()) }
    }
}

impl MachinePurpose {
    const ALL: [Self; 3] = [Self::Work, Self::Enrol, Self::Node];

    /// The name in the URI.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Enrol => "enrol",
            Self::Node => "node",
        }
    }
}

impl Caller {
    /// Returns a caller with a subject, such as `person:anna`.
    pub fn new(role: Role, subject: &str) -> Result<Self, InvalidCaller> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".@_-".contains(c);
        let is_valid = subject.len() <= MAX_SUBJECT_BYTES
            && subject.split_once(':').is_some_and(|(kind, name)| {
                SUBJECT_KINDS.contains(&kind) && !name.is_empty() && name.chars().all(allowed)
            });
        match is_valid {
            true => Ok(Self { role, subject: subject.into() }),
            false => Err(InvalidCaller::Subject(abbreviated(subject))),
        }
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The subject.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the role of the caller of a request, from the request's extensions.
    pub fn role_in(extensions: &http::Extensions) -> Option<Role> {
        extensions.get::<Self>().map(Self::role)
    }

    /// Returns the caller in a certificate (DER) that TLS has already verified; none if it names none, or more than one.
    pub fn in_certificate(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let names = certificate.subject_alternative_name().ok()??;
        let mut callers = names.value.general_names.iter().filter_map(|name| {
            let GeneralName::URI(uri) = name else { return None };
            uri.parse().ok()
        });
        let caller = callers.next()?;
        callers.next().is_none().then_some(caller)
    }
}

impl From<Role> for Caller {
    fn from(role: Role) -> Self {
        Self { role, subject: role.default_subject().into() }
    }
}

/// The URI. Parameters with their default value are left out.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.role)?;
        if let Role::Machine(_, purpose) = self.role {
            let is_default = purpose == MachinePurpose::Work;
            return if is_default { Ok(()) } else { write!(f, "?purpose={}", purpose.name()) };
        }
        if *self.subject == self.role.default_subject() {
            return Ok(());
        }
        write!(f, "?subject={}", self.subject)
    }
}

impl FromStr for Caller {
    type Err = InvalidCaller;

    fn from_str(uri: &str) -> Result<Self, Self::Err> {
        let unknown = || InvalidCaller::Role(abbreviated(uri));
        let name = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
        let (name, parameter) = match name.split_once('?') {
            Some((name, parameter)) => (name, Some(parameter.split_once('=').ok_or_else(unknown)?)),
            None => (name, None),
        };
        if let Some(id) = name.strip_prefix("machine:") {
            let id = id.parse().map_err(|_| unknown())?;
            let purpose = match parameter {
                None => Some(MachinePurpose::Work),
                Some(("purpose", name)) => {
                    MachinePurpose::ALL.into_iter().find(|it| it.name() == name)
                }
                Some(_) => None,
            };
            return Ok(Role::Machine(id, purpose.ok_or_else(unknown)?).into());
        }
        let roles = [
            Role::Admin,
            Role::Operator,
            Role::Viewer,
            Role::Service,
            Role::Edge,
            Role::Door,
            Role::Builder,
        ];
        let role = roles.into_iter().find(|role| role.name() == name).ok_or_else(unknown)?;
        match parameter {
            None => Ok(role.into()),
            Some(("subject", subject)) => Self::new(role, subject),
            Some(_) => Err(unknown()),
        }
    }
}

fn abbreviated(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_caller_is_read_back_from_its_uri() {
        let id = HardwareId::new();
        let machines = MachinePurpose::ALL.map(|purpose| Role::Machine(id, purpose));
        let others = [Role::Admin, Role::Operator, Role::Viewer, Role::Service];
        let others = others.into_iter().chain([Role::Edge, Role::Door, Role::Builder]);
        for role in others.clone().chain(machines) {
            assert_eq!(Caller::from(role).to_string().parse(), Ok(Caller::from(role)));
        }
        for role in others {
            let anna = Caller::new(role, "person:anna.b@lab-1").unwrap();
            assert_eq!(anna.to_string().parse(), Ok(anna));
        }
    }

    #[test]
    fn uris_of_callers_without_parameters_are_the_role_alone() {
        let id = HardwareId::new();
        assert_eq!(Caller::from(Role::Admin).to_string(), "tinwright:admin");
        assert_eq!(Caller::from(Role::worker(id)).to_string(), format!("tinwright:machine:{id}"));
        let anna = Caller::new(Role::Viewer, "person:anna").unwrap();
        assert_eq!(anna.to_string(), "tinwright:viewer?subject=person:anna");
    }

    #[test]
    fn other_texts_name_no_caller() {
        let machine = format!("tinwright:machine:{}", HardwareId::new());
        for wrong in [
            "",
            "admin",
            "tinwright:",
            "tinwright:root",
            "tinwright:machine",
            "tinwright:machine:x",
            "tinwright:admin?",
            "tinwright:admin?subject",
            "tinwright:admin?subject=",
            "tinwright:admin?subject=anna",
            "tinwright:admin?subject=person:",
            "tinwright:admin?subject=root:anna",
            "tinwright:admin?subject=person:a b",
            "tinwright:admin?purpose=work",
            &format!("tinwright:admin?subject=person:{}", "a".repeat(128)),
            &format!("{machine}?purpose=root"),
            &format!("{machine}?subject=person:anna"),
        ] {
            assert!(wrong.parse::<Caller>().is_err(), "{wrong}");
        }
    }
}
