//! Whether a machine can be used by an instance: before an order is accepted, and again before each step that changes the machine.

use tinwright::hardware::v1::{Hardware, State};

/// A machine that an instance may not use, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such machine.
    #[error("hardware {0} not found")]
    Missing(String),
    /// Nobody has verified it.
    #[error("{0} is enrolled, and not accepted yet: tinwright hardware accept {0}")]
    Enrolled(String),
    /// Its own state does not allow an instance.
    #[error("{name} is {state}{}", cause(.reason))]
    State {
        /// Its name.
        name: String,
        /// Its state, as it follows "is".
        state: &'static str,
        /// The reason of that state; empty if there is none.
        reason: String,
    },
    /// It is protected against instances.
    #[error("{0} is protected: tinwright hardware unprotect {0}")]
    Protected(String),
    /// Nothing can boot it.
    #[error(
        "{0} has no BMC: add one (tinwright power bmc create --hardware {0}), or set power_management to none (--no-power-management), and switch the machine on by hand"
    )]
    NoBmc(String),
}

/// Returns the name of a machine, or its id if it has none.
pub(crate) fn name_of(hardware: &Hardware) -> &str {
    if hardware.name.is_empty() { &hardware.id } else { &hardware.name }
}

/// Passes if the state and protection of the machine `id` allow an instance that exists already. Enrolled is allowed: the instance was accepted.
pub(crate) fn check_usable(id: &str, hardware: Option<&Hardware>) -> Result<(), Error> {
    let Some(hardware) = hardware else { return Err(Error::Missing(id.to_owned())) };
    let name = name_of(hardware).to_owned();
    let state = match hardware.state() {
        State::Enrolled | State::Provisionable | State::Unspecified => {
            return if hardware.protect { Err(Error::Protected(name)) } else { Ok(()) };
        }
        State::Failed => "failed",
        State::Maintenance => "in maintenance",
        State::Deleting => "being deleted",
    };
    Err(Error::State { name, state, reason: hardware.state_reason.clone() })
}

/// Passes if a new instance can be ordered on the machine `id`: it is verified, too.
pub(crate) fn check_orderable(id: &str, hardware: Option<&Hardware>) -> Result<(), Error> {
    check_usable(id, hardware)?;
    match hardware {
        Some(machine) if machine.state() != State::Provisionable => {
            Err(Error::Enrolled(name_of(machine).to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

fn cause(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(state: State) -> Hardware {
        let mut machine = Hardware { id: "1".into(), name: "node-1".into(), ..Hardware::default() };
        machine.set_state(state);
        machine
    }

    fn refusal(machine: &Hardware) -> String {
        check_orderable("1", Some(machine)).map_or_else(|error| error.to_string(), |()| "ok".into())
    }

    #[test]
    fn a_refusal_names_the_machine_and_the_command() {
        assert_eq!(refusal(&machine(State::Provisionable)), "ok");
        let enrolled = "node-1 is enrolled, and not accepted yet: tinwright hardware accept node-1";
        assert_eq!(refusal(&machine(State::Enrolled)), enrolled);
        let broken = Hardware { state_reason: "fan".into(), ..machine(State::Maintenance) };
        assert_eq!(refusal(&broken), "node-1 is in maintenance: fan");
        assert_eq!(refusal(&machine(State::Failed)), "node-1 is failed");
        let protected = Hardware { protect: true, ..machine(State::Provisionable) };
        assert_eq!(refusal(&protected), "node-1 is protected: tinwright hardware unprotect node-1");
        let nameless = Hardware { name: String::new(), ..machine(State::Deleting) };
        assert_eq!(refusal(&nameless), "1 is being deleted");
        assert_eq!(check_orderable("2", None), Err(Error::Missing("2".into())));
    }

    #[test]
    fn an_instance_that_exists_may_be_on_an_enrolled_machine() {
        assert_eq!(check_usable("1", Some(&machine(State::Enrolled))), Ok(()));
    }
}
