//! The errors of this service as callers see them.

use std::time::Duration;

use store::records;
use tinwright::TenantName;
use tinwright::instance::v1 as pb;
use tinwright::secret::Secrets as _;
use tinwright::status;
use tonic::{Code, Status};

use crate::instances::{Error, OCCUPANT};
use crate::{create, machine_check, order_check, peers, placement, restart};

/// The time after which an order is worth a repetition, if machines that fit are occupied.
const OCCUPIED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Reasons of the workflow service that are about the image of an order.
const IMAGE_REASONS: [&str; 5] =
    ["FIRMWARE_MODE", "IMAGE_DAMAGED", "IMAGE_KIND", "IMAGE_NOT_READY", "IMAGE_TOO_LARGE"];

/// Returns the status of `error` for a caller who is limited to the objects of `tenant`: it names no other instance.
pub(super) fn describe(error: Error, tenant: Option<&TenantName>) -> Status {
    if let (Error::Records(records::Error::Taken { index, value, .. }), Some(_)) = (&error, tenant)
    {
        return status::already_exists(index, value, format!("{index} {value} is taken"));
    }
    if let Error::Addresses(error) = error {
        return error.into_status(tenant);
    }
    if let Error::Records(records::Error::Taken { index, value, by, .. }) = &error
        && index == OCCUPANT
    {
        let text = format!("hardware {value} is occupied by instance {by}");
        return status::already_exists("instance", by, text);
    }
    error.into()
}

/// Returns the `changed` instance as callers see it, or the status of the error for a caller limited to
/// `tenant`.
pub(super) fn shown(
    changed: Result<pb::Instance, Error>,
    tenant: Option<&TenantName>,
) -> Result<Option<pb::Instance>, Status> {
    let changed = changed.map_err(|error| describe(error, tenant))?;
    Ok(Some(changed.without_secrets()))
}

/// Returns the status of the refusal of an order by a caller who is limited to the objects of `tenant`, to whom no machine is named.
fn describe_check_error(error: order_check::Error, tenant: Option<&TenantName>) -> Status {
    use machine_check::Error::{Enrolled, Missing, NoBmc, Protected, State};
    use order_check::Error::{Instances, Machine, Occupied, Peer, Platform, Values};
    let text = match (&error, tenant) {
        (Machine(_) | Occupied { .. }, Some(_)) => "its machine cannot be used".to_owned(),
        _ => error.to_string(),
    };
    match error {
        Machine(Missing(id)) => status::not_found("hardware", &id),
        Machine(Enrolled(_) | State { .. }) | Platform(_) => {
            status::failed_precondition("STATE", "hardware", text)
        }
        Machine(Protected(_)) => status::failed_precondition("PROTECTED", "hardware", text),
        Machine(NoBmc(_)) => status::failed_precondition("NO_BMC", "hardware", text),
        Occupied { instance, .. } => status::already_exists("instance", &instance, text),
        Values(violations) => violations.into(),
        Instances(error) => describe(error, tenant),
        Peer(peers::Error::Refused { code, reason, .. })
            if IMAGE_REASONS.contains(&code.as_str()) =>
        {
            let text = match tenant {
                None => reason,
                Some(_) => {
                    "the image cannot be installed on the machine that would be chosen".into()
                }
            };
            status::failed_precondition(&code, "image", text)
        }
        Peer(peers::Error::Refused { .. }) if tenant.is_some() => {
            let text = "the template cannot be rendered for the machine that would be chosen";
            status::failed_precondition("TEMPLATE", "template", text)
        }
        // The reason is about the order, whichever service gave it.
        Peer(peers::Error::Refused { reason, .. }) => {
            status::failed_precondition("TEMPLATE", "template", reason)
        }
        Peer(error) => peer_status(&error),
    }
}

impl From<restart::Error> for Status {
    fn from(error: restart::Error) -> Self {
        let text = error.to_string();
        match error {
            restart::Error::NotActive { id, .. } => status::failed_precondition("STATE", &id, text),
            restart::Error::Machine { hardware, .. } => {
                status::failed_precondition("STATE", &format!("hardware/{hardware}"), text)
            }
            restart::Error::Workflow { workflow, .. } => {
                status::failed_precondition("WORKFLOW", &format!("workflow/{workflow}"), text)
            }
            restart::Error::NoBmc(id) => status::failed_precondition("NO_BMC", &id, text),
            restart::Error::Records(error) => error.into(),
            restart::Error::Peer(error) => peer_status(&error),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Illegal(_) | Error::NotQueued(_) => {
                status::failed_precondition("STATE", "instance", text)
            }
            Error::BeingDeleted(id)
            | Error::BeingReinstalled(id)
            | Error::BeingCleaned { instance: id, .. } => {
                status::failed_precondition("STATE", &id, text)
            }
            Error::Protected(id) => {
                status::failed_precondition("PROTECTED", &format!("instance/{id}"), text)
            }
            Error::NothingToInstall(id) => {
                status::failed_precondition("NOTHING_TO_INSTALL", &format!("instance/{id}"), text)
            }
            Error::SwitchedByHand(id) => {
                status::failed_precondition("NO_BMC", &format!("instance/{id}"), text)
            }
            Error::Retired(_) => status::failed_precondition("INSTANCE_DELETED", "instance", text),
            Error::NotOccupant { hardware, .. } => {
                status::failed_precondition("OCCUPANT", &hardware.to_string(), text)
            }
            Error::UnknownState(_) => Self::new(Code::DataLoss, text),
            Error::NoRandomness => Self::internal(text),
            Error::Addresses(error) => error.into_status(None),
            Error::Records(error) => error.into(),
        }
    }
}

/// Returns the status of `error` for a caller who is limited to the objects of `tenant`: it names no other instance.
pub(super) fn describe_order_error(error: create::Error, tenant: Option<&TenantName>) -> Status {
    match error {
        create::Error::Tenant(error) => error.into(),
        create::Error::Image(error) => error.into(),
        create::Error::Order(error) => describe_check_error(error, tenant),
        create::Error::Instances(error)
        | create::Error::Placement(placement::Error::Instances(error)) => describe(error, tenant),
        create::Error::Placement(placement::Error::Peer(error)) => peer_status(&error),
        create::Error::Placement(placement::Error::Missing { noun, name }) => {
            status::not_found(noun, &name)
        }
        create::Error::Placement(placement::Error::NoMachineFits(counts)) => {
            let delay = counts.can_become_free().then_some(OCCUPIED_RETRY_DELAY);
            status::exhausted("NO_MACHINE_FITS", counts.metadata(), delay, counts.to_string())
        }
    }
}

/// Returns the status of a call to another service that failed.
pub(super) fn peer_status(error: &peers::Error) -> Status {
    let text = error.to_string();
    match error {
        peers::Error::RequestIdReused => Status::already_exists(text),
        peers::Error::Refused { .. } => Status::failed_precondition(text),
        peers::Error::Unavailable { .. } => Status::unavailable(text),
    }
}
