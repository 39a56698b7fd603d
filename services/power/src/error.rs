//! Failed requests to this service, and their gRPC status.

use runtime::seal::UnsealError;
use runtime::secret::CryptoError;
use store::records::{self, Kind as _};
use tinwright::status::{self, Violations};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::stored::Bmc;
use crate::{bmc_client, hardware_directory, tenant_machines};

/// A failed request about BMCs or jobs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// A job of the BMC has not ended.
    #[error(
        "power job {job} of the BMC has not ended: wait for it, or: tinwright power cancel {job}"
    )]
    Busy {
        /// The machine.
        hardware: String,
        /// The first job in its queue.
        job: String,
    },
    /// The machine has no BMC.
    #[error("{name} has no BMC: tinwright power bmc create --hardware {name}")]
    NoBmc {
        /// The machine.
        hardware: String,
        /// Its name, or else its id.
        name: String,
    },
    /// A tenant may not switch the machine, or not now.
    #[error(transparent)]
    Machine(#[from] tenant_machines::Error),
    /// This process has no clients of the services that know the machines of tenants.
    #[error("jobs of tenants are not accepted here")]
    NoTenants,
    /// The queue of this machine is full.
    #[error("the queue of hardware {0} is full")]
    Full(String),
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
    /// The stored password was encrypted with another key, or for another BMC.
    #[error(transparent)]
    Broken(#[from] UnsealError),
    /// The password cannot be encrypted.
    #[error(transparent)]
    Refused(#[from] CryptoError),
    /// The hardware service refused a call, or did not answer.
    #[error(transparent)]
    Hardware(#[from] hardware_directory::Error),
    /// This process has no client of the hardware service.
    #[error("machines are not enrolled here")]
    NoHardware,
    /// A BMC that tells nothing by which its machine is found when it boots.
    #[error(
        "the BMC tells neither the UUID nor a MAC of its machine, which would not be recognized when it boots: create the machine with its MAC \
         and then its BMC, or enrol it without a boot for discovery"
    )]
    NoIdentity,
    /// Another record has the address, or that of the BMC whose only system it is.
    #[error("{address} is the BMC of {machine} already (BMC {bmc})")]
    AddressTaken {
        /// The address, for people.
        address: String,
        /// The name of the other record's machine, or else its id.
        machine: String,
        /// The id of the other record.
        bmc: String,
    },
    /// The BMC lists another machine than that of its record.
    #[error(
        "{0}: if it is the right one, accept it with --accept-other-machine (accept_other_machine)"
    )]
    OtherMachine(String),
    /// Another call enrols the same BMC.
    #[error("this BMC is being enrolled by another call")]
    EnrolmentRuns,
    /// The BMC refused, or did not respond.
    #[error(transparent)]
    Bmc(#[from] bmc_client::Error),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Busy { hardware, .. } => status::failed_precondition("JOBS", &hardware, text),
            Error::NoBmc { hardware, .. } => {
                let details = ErrorDetails::with_resource_info(Bmc::NOUN, hardware, "", "");
                Self::with_error_details(Code::NotFound, text, details)
            }
            Error::Machine(error) => error.into(),
            Error::NoTenants => Self::unimplemented(text),
            Error::Full(_) => Self::resource_exhausted(text),
            Error::Records(error) => error.into(),
            Error::Broken(_) => {
                tracing::error!(reason = text, "BMC password cannot be decrypted");
                Self::data_loss(text)
            }
            Error::Refused(_) => Self::internal(text),
            Error::Hardware(error) => error.into(),
            Error::NoHardware => Self::unimplemented(text),
            Error::NoIdentity => status::failed_precondition("NO_IDENTITY", "bmc", text),
            Error::AddressTaken { bmc, .. } => {
                let details = ErrorDetails::with_resource_info(Bmc::NOUN, bmc, "", "");
                Self::with_error_details(Code::AlreadyExists, text, details)
            }
            Error::OtherMachine(_) => status::failed_precondition("OTHER_MACHINE", "bmc", text),
            Error::EnrolmentRuns => Self::aborted(text),
            Error::Bmc(error) => Self::from(&error),
        }
    }
}

impl From<&bmc_client::Error> for Status {
    fn from(error: &bmc_client::Error) -> Self {
        match error.is_transient() {
            true => Self::unavailable(error.in_full()),
            false => status::failed_precondition("BMC", "bmc", error.in_full()),
        }
    }
}
