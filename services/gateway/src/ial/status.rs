//! The faults of calls to the services, by code and by the reason in the `ErrorInfo`. The text of a service is shown where it is about
//! the request; the texts of failures are for the log.

use std::time::Duration;

use tinwright::status::retry_delay;
use tonic::{Code as Grpc, Status};

use super::fault::{Code, Fault};
use crate::errors::reason;

/// The time after which a call may be repeated, where the service names none.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Returns the fault for `status`. A `NOT_FOUND` is `unknown`, because the service does not know the platform's names of things.
pub fn fault(status: &Status, unknown: &Fault) -> Fault {
    let detail = || status.message().to_owned();
    let later = retry_delay(status).unwrap_or(RETRY_DELAY);
    match status.code() {
        Grpc::NotFound => unknown.clone(),
        Grpc::InvalidArgument | Grpc::OutOfRange => {
            Fault::new(Code::InvalidArgument, "a value cannot be used").with_detail(detail())
        }
        Grpc::AlreadyExists => {
            Fault::new(Code::DuplicateFound, "something else has it").with_detail(detail())
        }
        Grpc::PermissionDenied => {
            Fault::new(Code::Permissions, "the credentials are not for this operation")
        }
        Grpc::Unauthenticated => unauthenticated(status),
        Grpc::FailedPrecondition => {
            Fault::new(Code::InvalidState, "the state forbids the operation").with_detail(detail())
        }
        Grpc::ResourceExhausted => exhausted(status, later),
        Grpc::Unavailable | Grpc::Aborted | Grpc::Cancelled => {
            Fault::new(Code::NotReady, "temporarily not possible").retry_after(later)
        }
        Grpc::DeadlineExceeded => slow(),
        Grpc::DataLoss => failed(status, Code::Database),
        Grpc::Ok | Grpc::Unimplemented | Grpc::Internal | Grpc::Unknown => {
            failed(status, Code::Unknown)
        }
    }
}

/// The fault of a service that did not answer in time.
pub fn slow() -> Fault {
    Fault::new(Code::NotAvailable, "a service did not answer in time")
}

fn unauthenticated(status: &Status) -> Fault {
    if reason(status).as_deref() == Some("CREDENTIAL_EXPIRED") {
        return Fault::new(Code::AuthExpired, "the credential has expired");
    }
    super::wrapper::auth_invalid()
}

fn exhausted(status: &Status, later: Duration) -> Fault {
    let detail = status.message();
    match reason(status).as_deref() {
        None => Fault::new(Code::RateLimiting, "too many calls").retry_after(later),
        Some("NO_MACHINE_FITS") => {
            Fault::new(Code::NotReady, "no machine is free now").retry_after(later.max(RETRY_DELAY))
        }
        Some(_) => {
            Fault::new(Code::MaxExceeded, "a quota or a pool is exhausted").with_detail(detail)
        }
    }
}

fn failed(status: &Status, code: Code) -> Fault {
    tracing::error!(code = ?status.code(), error = status.message(), "a service failed");
    Fault::new(code, "unexpected failure")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tinwright::status::{exhausted, failed_precondition, over_quota, overloaded};

    use super::*;

    fn code(status: &Status) -> Code {
        fault(status, &Fault::new(Code::Server, "unknown server")).code
    }

    #[test]
    fn the_reason_decides_where_a_code_has_several_meanings() {
        assert_eq!(code(&Status::not_found("x")), Code::Server);
        assert_eq!(code(&over_quota("acme", "x")), Code::MaxExceeded);
        assert_eq!(code(&overloaded("x", RETRY_DELAY)), Code::RateLimiting);
        let none_fits = exhausted("NO_MACHINE_FITS", HashMap::new(), None, "x");
        assert_eq!(code(&none_fits), Code::NotReady);
        let pool = exhausted("ADDRESSES_EXHAUSTED", HashMap::new(), None, "x");
        assert_eq!(code(&pool), Code::MaxExceeded);
        assert_eq!(code(&failed_precondition("STATE", "i", "x")), Code::InvalidState);
    }

    #[test]
    fn failures_do_not_show_their_text() {
        let shown = fault(&Status::internal("secret"), &Fault::new(Code::Server, "x"));
        assert_eq!((shown.code, shown.detail.as_deref()), (Code::Unknown, None));
        assert!(fault(&Status::unavailable("x"), &shown).retry_after.is_some());
    }
}
