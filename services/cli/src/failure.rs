//! One line that says what went wrong and what to do.

use tonic::{Code, Status};

/// `error` in one line. What a server said is given in its words, with a hint where the code calls for one.
pub fn line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        match cause.downcast_ref::<Status>() {
            None => parts.push(cause.to_string()),
            Some(status) => {
                let hint = hint(status.code()).map_or(String::new(), |hint| format!(" ({hint})"));
                parts.push(format!("{}{hint}", status.message()));
                break; // below is how it came here, which helps nobody
            }
        }
    }
    parts.join(": ").lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn hint(code: Code) -> Option<&'static str> {
    match code {
        Code::Unavailable => Some("try again in a moment"),
        Code::Unauthenticated => Some("give the right --data or --secrets"),
        Code::PermissionDenied => Some("ask as somebody who may: --secrets"),
        Code::NotFound => Some("see what there is: list"),
        Code::Aborted => Some("it has changed since: get it, and try again"),
        Code::OutOfRange => Some("too much at once: begin again"),
        Code::Unimplemented => Some("the server is of another version"),
        Code::DataLoss => Some("look at the server's log"),
        Code::DeadlineExceeded => Some("the server is slow or away: try again"),
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
    fn what_the_server_said_is_told_in_one_line_with_what_was_being_done() {
        let refused: Result<(), _> = Err(Status::invalid_argument("hardware.mac:\n wrong"));
        let error = refused.context("rack.yaml, object 2").unwrap_err();
        assert_eq!(line(&error), "rack.yaml, object 2: hardware.mac: wrong");
        let away = anyhow::Error::from(Status::unavailable("no store"));
        assert_eq!(line(&away), "no store (try again in a moment)");
    }
}
