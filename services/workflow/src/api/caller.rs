//! Whose machine a worker's call is about.

use runtime::{Caller, Role};
use tinwright::HardwareId;
use tinwright::status::Violations;
use tonic::{Request, Status};

/// The metadata in which a service or an admin names the machine it speaks for, as a door for somebody else's workers
/// does.
pub(super) const MACHINE: &str = "tinwright-hardware-id";

/// The machine a call may be about: its caller's own, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machines {
    /// This one.
    Only(HardwareId),
    /// Whichever is named.
    Any,
}

impl Machines {
    /// Those of whoever makes `request`.
    pub(super) fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let caller = request.extensions().get().copied().unwrap_or(Caller(None));
        match caller.0 {
            Some(Role::Machine(id)) => Ok(Self::Only(id)),
            Some(Role::Admin | Role::Service) => named(request),
            Some(Role::Operator | Role::Viewer) => {
                Err(Status::permission_denied("this call is for machines"))
            }
            None => Err(Status::unauthenticated("a machine's certificate is needed")),
        }
    }

    /// The one, where one is needed.
    pub(super) fn one(self) -> Result<HardwareId, Status> {
        match self {
            Self::Only(id) => Ok(id),
            Self::Any => Err(Status::invalid_argument(format!("{MACHINE}: names no machine"))),
        }
    }

    /// Passes if what is on `machine` is among them.
    pub(super) fn admit(self, machine: &str) -> Result<(), Status> {
        match self {
            Self::Only(id) if id.to_string() != machine => {
                Err(Status::permission_denied("this is another machine's work"))
            }
            Self::Only(_) | Self::Any => Ok(()),
        }
    }
}

fn named<T>(request: &Request<T>) -> Result<Machines, Status> {
    let Some(name) = request.metadata().get(MACHINE) else { return Ok(Machines::Any) };
    let id = name.to_str().unwrap_or_default().parse();
    Ok(Machines::Only(id.map_err(|reason| Violations::single(MACHINE, reason))?))
}
