//! Errors in one line, with a hint.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The longest line of an error, in bytes.
const MAX_LINE_BYTES: usize = 700;

/// There is no such object.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// The errors of a command on several objects.
#[derive(Debug, thiserror::Error)]
#[error("{} of {total} objects failed", .printed + .errors.len())]
pub struct Failures {
    errors: Vec<anyhow::Error>,
    /// The number of errors that were printed before.
    printed: usize,
    /// The number of all objects, failed or not.
    total: usize,
}

impl Failures {
    /// Returns the errors of a command on `total` objects, none so far.
    pub fn new(total: usize) -> Self {
        Self { errors: Vec::new(), printed: 0, total }
    }

    /// Adds the error of an object.
    pub fn push(&mut self, error: anyhow::Error) {
        self.errors.push(error);
    }

    /// True if there was no error.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.printed == 0
    }

    /// Prints the errors so far on standard error, before something that takes long. At the end they are only counted.
    pub fn report_now(&mut self) {
        for error in self.errors.drain(..) {
            eprintln!("tinwright: {}", line(&error));
            self.printed += 1;
        }
    }

    /// Returns an error if there was one.
    pub fn into_result(mut self) -> anyhow::Result<()> {
        match self.errors.pop() {
            None if self.printed > 0 => Err(self.into()),
            None => Ok(()),
            Some(only) if self.errors.is_empty() && self.total <= 1 => Err(only),
            Some(last) => {
                self.errors.push(last);
                Err(self.into())
            }
        }
    }
}

/// True if `error` says that there is no such object.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    error.is::<Missing>() || code(error) == Some(Code::NotFound)
}

/// The error of a server that does not boot machines.
pub const WITHOUT_NETBOOT: &str =
    "this server does not boot machines: connect to the one with --netboot-interface";

/// Replaces the status of a server without a service by one with `message`.
pub fn if_unimplemented(status: Status, message: &str) -> Status {
    match status.code() == Code::Unimplemented {
        true => Status::failed_precondition(message),
        false => status,
    }
}

/// Returns the status code in `error`.
pub fn code(error: &anyhow::Error) -> Option<Code> {
    error.chain().find_map(|cause| cause.downcast_ref::<Status>()).map(Status::code)
}

/// True if `error` is of the library, for a response that is not one of gRPC.
pub fn is_without_grpc(error: &anyhow::Error) -> bool {
    let status = error.chain().find_map(|cause| cause.downcast_ref::<Status>());
    let texts = ["protocol error", "grpc-status header missing"];
    status.is_some_and(|status| texts.iter().any(|text| status.message().starts_with(text)))
}

/// Renders `error` in one line for each object that failed, and one for their number.
pub fn lines(error: &anyhow::Error) -> Vec<String> {
    let failures = error.downcast_ref::<Failures>();
    let each = failures.into_iter().flat_map(|failures| failures.errors.iter().map(line));
    each.chain([line(error)]).collect()
}

/// Renders `error` in one line. The message of a server is followed by a hint on its status code.
pub fn line(error: &anyhow::Error) -> String {
    let mut parts = Vec::new();
    for cause in error.chain() {
        match cause.downcast_ref::<Status>() {
            None => parts.push(cause.to_string()),
            Some(status) => {
                let hint = hint(status).map_or(String::new(), |hint| format!(" ({hint})"));
                parts.push(format!("{}{hint}", cut(status.message())));
                break; // the causes of a status describe its transport
            }
        }
    }
    cut(&parts.join(": ").lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// Returns the beginning of a text that is too long.
fn cut(text: &str) -> String {
    if text.len() <= MAX_LINE_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_LINE_BYTES - 50);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end)
}

/// Returns what may help after `status`.
fn hint(status: &Status) -> Option<String> {
    if status.code() == Code::NotFound {
        let info = status.get_details_resource_info()?;
        // Such a message has its own hint.
        let command = list_command(&info.resource_type)
            .filter(|_| !status.message().contains("tinwright "))?;
        return Some(format!("see `tinwright {command}`"));
    }
    // Waiting a moment does not help if nothing listens at the address of a BMC.
    if status.message().starts_with("the BMC cannot be reached") {
        return None;
    }
    let hint = HINTS.iter().find(|(code, _)| *code == status.code());
    hint.map(|(_, hint)| (*hint).to_owned())
}

/// Returns the command that lists the objects that messages call `noun`.
fn list_command(noun: &str) -> Option<String> {
    const LISTS: [&str; 14] = [
        "hardware", "location", "model", "instance", "template", "workflow", "node", "stack",
        "subnet", "range", "lease", "boot", "tenant", "image",
    ];
    let command = match noun {
        "machine" => "hardware list",
        "unknown machine" => "hardware discover",
        "BMC" => "power bmc list",
        "power job" => "power job list",
        "grant" => "address list",
        "location binding" => "address binding list",
        "certificate" => "identity list",
        "credential" => "identity credential list",
        _ => return LISTS.contains(&noun).then(|| format!("{noun} list")),
    };
    Some(command.to_owned())
}

/// Hints on status codes. ABORTED has none: the server says to read it again.
const HINTS: [(Code, &str); 8] = [
    (Code::Unavailable, "try again in a moment"),
    (Code::Unauthenticated, "give the right --context, --data or --secrets"),
    (Code::PermissionDenied, "use --context or --secrets of a caller with the permission"),
    (Code::OutOfRange, "the stream was too slow: try again"),
    (Code::Unimplemented, "the server has another version"),
    (Code::DataLoss, "look at the server's log"),
    (Code::DeadlineExceeded, "the server is slow or unavailable: try again"),
    (Code::Unknown, "the connection broke: is the server running?"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_status_is_one_line_with_its_context_and_a_hint() {
        let status: Result<(), _> = Err(Status::invalid_argument("hardware.mac:\n wrong"));
        let error = status.context("rack.yaml:2").unwrap_err();
        assert_eq!(line(&error), "rack.yaml:2: hardware.mac: wrong");
        let unavailable = anyhow::Error::from(Status::unavailable("no store"));
        assert_eq!(line(&unavailable), "no store (try again in a moment)");
        let bmc = "the BMC cannot be reached: nothing listens at 192.0.2.1:443";
        assert_eq!(line(&Status::unavailable(bmc).into()), bmc);
    }

    #[test]
    fn a_line_has_a_largest_length() {
        let line = line(&anyhow::anyhow!("ä".repeat(20_000_000)));
        assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
        assert!(line.ends_with("more bytes)"), "{line}");
    }

    #[test]
    fn each_object_that_failed_has_a_line_and_their_number_one() {
        let mut failures = Failures::new(10);
        failures.push(anyhow::anyhow!("a: wrong"));
        failures.push(tinwright::status::not_found("grant", "b").into());
        let error = failures.into_result().unwrap_err();
        let wanted = ["a: wrong", "grant b not found (see `tinwright address list`)"];
        assert_eq!(lines(&error)[..2], wanted);
        assert_eq!(lines(&error)[2..], ["2 of 10 objects failed"]);
        let mut only = Failures::new(1);
        only.push(anyhow::anyhow!("wrong"));
        assert_eq!(lines(&only.into_result().unwrap_err()), ["wrong"]);
        assert!(Failures::new(3).into_result().is_ok());
    }
}
