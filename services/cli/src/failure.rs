//! Errors in one line, with a hint.

use tonic::{Code, Status};

/// Renders `error` in one line. The message of a server is followed by a hint on its status code.
pub fn line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        match cause.downcast_ref::<Status>() {
            None => parts.push(cause.to_string()),
            Some(status) => {
                let hint = hint(status.code()).map_or(String::new(), |hint| format!(" ({hint})"));
                parts.push(format!("{}{hint}", status.message()));
                break; // the causes of a status describe its transport
            }
        }
    }
    parts.join(": ").lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn hint(code: Code) -> Option<&'static str> {
    match code {
        Code::Unavailable => Some("try again in a moment"),
        Code::Unauthenticated => Some("give the right --context, --data or --secrets"),
        Code::PermissionDenied => {
            Some("use --context or --secrets of a caller with the permission")
        }
        Code::NotFound => Some("see the existing ones: list"),
        Code::Aborted => Some("it was changed: get it, and try again"),
        Code::OutOfRange => Some("the stream was too slow: try again"),
        Code::Unimplemented => Some("the server has another version"),
        Code::DataLoss => Some("look at the server's log"),
        Code::DeadlineExceeded => Some("the server is slow or unavailable: try again"),
        Code::Unknown => Some("the connection broke: is the server running?"),
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Internal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_status_is_one_line_with_its_context_and_a_hint() {
        let status: Result<(), _> = Err(Status::invalid_argument("hardware.mac:\n wrong"));
        let error = status.context("rack.yaml, object 2").unwrap_err();
        assert_eq!(line(&error), "rack.yaml, object 2: hardware.mac: wrong");
        let unavailable = anyhow::Error::from(Status::unavailable("no store"));
        assert_eq!(line(&unavailable), "no store (try again in a moment)");
    }
}
