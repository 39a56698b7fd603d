//! Callers of the API: their role, their subject for logs, and their tenant (`docs/reference/access.md`). A URI in the client
//! certificate names them.
//!
//! ```text
//! tinwright:<role>[?subject=<subject>][&tenant=<tenant>]       tinwright:viewer?subject=person:anna&tenant=acme
//! tinwright:machine:<hardware id>[?epoch=<boot epoch>][&purpose=<enrol or node>]
//! ```
//!
//! A request without a [`Caller`] in its extensions comes from a connection without a role. Inside the process the caller is the
//! calling service, such as `service:instance`. The caller of a call that a door forwards is the door's client (module `forwarding`).

use std::fmt;
use std::iter;
use std::str::FromStr;
use std::sync::Arc;

use tinwright::{HardwareId, TenantName};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

const SCHEME: &str = "tinwright:";
/// The most bytes of a subject.
const MAX_SUBJECT_BYTES: usize = 128;
/// The kinds of subjects.
const SUBJECT_KINDS: [&str; 4] = ["person", "machine", "service", "credential"];

/// The role of a caller. It decides which calls the caller may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
    /// For logs. Rights depend on the role and the tenant only.
    subject: Arc<str>,
    /// The tenant to whose objects the caller is limited.
    tenant: Option<TenantName>,
    /// The boot epoch of a machine; 0 for other roles.
    boot_epoch: u64,
    /// The subject of the door that forwarded the caller, for logs.
    via: Option<Arc<str>>,
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
    /// The role has no tenant, or the tenant's name has another form.
    #[error(
        "{0:?} has a tenant, which only a viewer, an operator and an admin may have, or one whose name is not valid"
    )]
    Tenant(String),
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
    pub fn name(self) -> &'static str {
        self.into()
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
    /// The name in the URI.
    pub fn name(self) -> &'static str {
        self.into()
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
            true => Ok(Self { subject: subject.into(), ..role.into() }),
            false => Err(InvalidCaller::Subject(abbreviated(subject))),
        }
    }

    /// Limits the caller to the objects of `tenant`.
    pub fn with_tenant(self, tenant: TenantName) -> Result<Self, InvalidCaller> {
        if matches!(self.role, Role::Admin | Role::Operator | Role::Viewer) {
            return Ok(Self { tenant: Some(tenant), ..self });
        }
        Err(InvalidCaller::Tenant(abbreviated(&self.to_string())))
    }

    /// Returns the caller that is the worker on `machine`, in a boot of this epoch.
    pub fn worker(machine: HardwareId, boot_epoch: u64) -> Self {
        Self { boot_epoch, ..Role::worker(machine).into() }
    }

    /// Returns the caller that is the agent of the node `machine`, in a boot of this epoch.
    pub fn node(machine: HardwareId, boot_epoch: u64) -> Self {
        Self { boot_epoch, ..Role::Machine(machine, MachinePurpose::Node).into() }
    }

    /// Returns the caller that is the worker on a machine without a record, in the boot of the enrolment `id`.
    pub fn enrolling(id: HardwareId) -> Self {
        Role::Machine(id, MachinePurpose::Enrol).into()
    }

    /// The boot epoch of a machine: the number of times that it was restarted under our control. An identity of an earlier epoch
    /// is refused. 0 before the first such restart, and for other roles.
    pub fn boot_epoch(&self) -> u64 {
        self.boot_epoch
    }

    /// Returns the caller as the client of `door`. The client's rights stay as they are.
    pub(crate) fn forwarded_by(self, door: &Self) -> Self {
        Self { via: Some(door.subject.clone()), ..self }
    }

    /// The subject of the door that forwarded the caller; none if it calls by itself.
    pub fn via(&self) -> Option<&Arc<str>> {
        self.via.as_ref()
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The subject.
    pub fn subject(&self) -> &Arc<str> {
        &self.subject
    }

    /// The tenant to whose objects the caller is limited; none if it may use those of the whole site.
    pub fn tenant(&self) -> Option<&TenantName> {
        self.tenant.as_ref()
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
        let subject = role.default_subject().into();
        Self { role, subject, tenant: None, boot_epoch: 0, via: None }
    }
}

/// The URI, without the door. Parameters with their default value are left out.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.role)?;
        let purpose = if let Role::Machine(_, purpose) = self.role
            && purpose != MachinePurpose::Work
        {
            Some(purpose.name())
        } else {
            None
        };
        let is_default = *self.subject == self.role.default_subject();
        let subject = (!is_default).then_some(&*self.subject);
        let tenant = self.tenant.as_ref().map(TenantName::as_str);
        let epoch = (self.boot_epoch != 0).then(|| self.boot_epoch.to_string());
        let epoch = ("epoch", epoch.as_deref());
        let parameters = [epoch, ("purpose", purpose), ("subject", subject), ("tenant", tenant)];
        let parameters = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
        for (separator, (name, value)) in iter::once('?').chain(iter::repeat('&')).zip(parameters) {
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

/// The parameters of a URI, each of them once at most.
#[derive(Default)]
struct Parameters<'a> {
    epoch: Option<&'a str>,
    purpose: Option<&'a str>,
    subject: Option<&'a str>,
    tenant: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    /// Reads `name=value&…`; none if it has another parameter, or one twice.
    fn read(text: &'a str) -> Option<Self> {
        let mut read = Self::default();
        for parameter in text.split('&') {
            let (name, value) = parameter.split_once('=')?;
            let place = match name {
                "epoch" => &mut read.epoch,
                "purpose" => &mut read.purpose,
                "subject" => &mut read.subject,
                "tenant" => &mut read.tenant,
                _ => return None,
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        Some(read)
    }
}

impl FromStr for Caller {
    type Err = InvalidCaller;

    fn from_str(uri: &str) -> Result<Self, Self::Err> {
        let unknown = || InvalidCaller::Role(abbreviated(uri));
        let name = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
        let (name, parameters) = match name.split_once('?') {
            Some((name, text)) => (name, Parameters::read(text).ok_or_else(unknown)?),
            None => (name, Parameters::default()),
        };
        if let Some(id) = name.strip_prefix("machine:") {
            let id = id.parse().map_err(|_| unknown())?;
            let Parameters { epoch, purpose, subject: None, tenant: None } = parameters else {
                return Err(unknown());
            };
            let epoch = epoch.map(str::parse).transpose().map_err(|_| unknown())?;
            let purpose = purpose.map_or(Ok(MachinePurpose::Work), str::parse);
            let machine = Role::Machine(id, purpose.map_err(|_| unknown())?).into();
            return Ok(Self { boot_epoch: epoch.unwrap_or(0), ..machine });
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
        let Parameters { epoch: None, purpose: None, subject, tenant } = parameters else {
            return Err(unknown());
        };
        let caller = subject.map_or_else(|| Ok(role.into()), |subject| Self::new(role, subject))?;
        let Some(tenant) = tenant else { return Ok(caller) };
        let tenant = tenant.parse().map_err(|_| InvalidCaller::Tenant(abbreviated(uri)))?;
        caller.with_tenant(tenant)
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
        let purposes = [MachinePurpose::Work, MachinePurpose::Enrol, MachinePurpose::Node];
        let machines = purposes.map(|purpose| Role::Machine(id, purpose));
        let others = [Role::Admin, Role::Operator, Role::Viewer, Role::Service];
        let others = others.into_iter().chain([Role::Edge, Role::Door, Role::Builder]);
        for role in others.clone().chain(machines) {
            assert_eq!(Caller::from(role).to_string().parse(), Ok(Caller::from(role)));
        }
        for epoch in [0, 1, u64::MAX] {
            let worker = Caller::worker(id, epoch);
            assert_eq!(worker.to_string().parse(), Ok(worker));
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
        let worker = Caller::worker(id, 7);
        assert_eq!(worker.to_string(), format!("tinwright:machine:{id}?epoch=7"));
        let node: Caller = format!("tinwright:machine:{id}?purpose=node&epoch=7").parse().unwrap();
        let in_order = format!("tinwright:machine:{id}?epoch=7&purpose=node");
        assert_eq!((node.boot_epoch(), node.to_string()), (7, in_order));
        let anna = Caller::new(Role::Viewer, "person:anna").unwrap();
        assert_eq!(anna.to_string(), "tinwright:viewer?subject=person:anna");
    }

    #[test]
    fn viewers_operators_and_admins_may_have_a_tenant_and_nobody_else() {
        let acme: TenantName = "acme".parse().unwrap();
        for role in [Role::Viewer, Role::Operator, Role::Admin] {
            let caller = Caller::from(role).with_tenant(acme.clone()).unwrap();
            assert_eq!(caller.to_string().parse(), Ok(caller.clone()));
            assert_eq!(caller.tenant(), Some(&acme));
            assert_ne!(caller, Caller::from(role));
        }
        let machine = Role::worker(HardwareId::new());
        for role in [Role::Service, Role::Edge, Role::Door, Role::Builder, machine] {
            assert!(Caller::from(role).with_tenant(acme.clone()).is_err(), "{role}");
            assert!(format!("{role}?tenant=acme").parse::<Caller>().is_err(), "{role}");
        }
        let anna = Caller::new(Role::Viewer, "person:anna").unwrap().with_tenant(acme).unwrap();
        assert_eq!(anna.to_string(), "tinwright:viewer?subject=person:anna&tenant=acme");
        assert_eq!("tinwright:viewer?tenant=acme&subject=person:anna".parse(), Ok(anna));
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
            "tinwright:admin?tenant=",
            "tinwright:admin?tenant=Acme",
            "tinwright:admin?tenant=acme&",
            "tinwright:admin?tenant=acme&tenant=other",
            "tinwright:admin?subject=person:anna?tenant=acme",
            &format!("tinwright:admin?subject=person:{}", "a".repeat(128)),
            "tinwright:admin?epoch=1",
            &format!("{machine}?purpose=root"),
            &format!("{machine}?epoch="),
            &format!("{machine}?epoch=-1"),
            &format!("{machine}?epoch=18446744073709551616"),
            &format!("{machine}?epoch=1&epoch=2"),
            &format!("{machine}?subject=person:anna"),
        ] {
            assert!(wrong.parse::<Caller>().is_err(), "{wrong}");
        }
    }
}
