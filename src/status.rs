//! Errors as callers see them: a code that says what to do next, one line for people, `google.rpc` details for programs.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, StatusExt as _};

use crate::{TenantName, check};

/// The most bytes that the wrong fields take in a status. Text and details are sent in HTTP/2 headers, percent-encoded and in Base64, and clients
/// accept 8 KiB (gRPC core) to 16 KiB (hyper) of those.
const MAX_VIOLATION_BYTES: usize = 6 * 1024;
/// The most bytes of a reason, or of a name, in a status.
const MAX_TEXT_BYTES: usize = 512;

/// The wrong fields of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

/// A wrong field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path from the request's object, such as `interfaces[0].mac`.
    pub field: String,
    /// The reason, in words that follow the path.
    pub reason: String,
}

impl Violations {
    /// A single violation.
    pub fn single(field: impl Into<String>, reason: impl Display) -> Self {
        let mut violations = Self::default();
        violations.add(field, reason);
        violations
    }

    /// Parses the text of a field.
    pub fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Self> {
        text.parse().map_err(|reason| Self::single(field, reason))
    }

    /// Returns the value of a field that must be set.
    pub fn require<T>(field: &str, value: Option<T>) -> Result<T, Self> {
        value.ok_or_else(|| Self::single(field, "is missing"))
    }

    /// Adds a wrong field.
    pub fn add(&mut self, field: impl Into<String>, reason: impl Display) {
        self.0.push(Violation { field: field.into(), reason: reason.to_string() });
    }

    /// Returns the value of `outcome`, or adds its error for `field`.
    pub fn take<T, E: Display>(
        &mut self,
        field: impl Into<String>,
        outcome: Result<T, E>,
    ) -> Option<T> {
        outcome.map_err(|reason| self.add(field, reason)).ok()
    }

    /// Replaces `text` by its normal form and returns that, or adds its error for `field`.
    pub fn normalize<T: Display, E: Display>(
        &mut self,
        field: impl Into<String>,
        text: &mut String,
        normal: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.take(field, normal(text)).inspect(|normal| *text = normal.to_string())
    }

    /// Like [`normalize`](Self::normalize), for a field that may be empty.
    pub fn normalize_optional<T: Display, E: Display>(
        &mut self,
        field: impl Into<String>,
        text: &mut String,
        normal: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if text.is_empty() { None } else { self.normalize(field, text, normal) }
    }

    /// Adds the violations that `check` finds in a message, if there is one, their paths below `path`.
    pub fn nest<T>(
        &mut self,
        path: &str,
        message: impl IntoIterator<Item = T>,
        mut check: impl FnMut(T, &mut Self),
    ) {
        for value in message {
            let mut inner = Self::default();
            check(value, &mut inner);
            self.add_nested(path, inner);
        }
    }

    /// Adds the violations of `inner`, their paths below `path`.
    pub fn add_nested(&mut self, path: &str, inner: Self) {
        self.0.extend(inner.0.into_iter().map(|violation| violation.below(path)));
    }

    /// Adds the violations that `check` finds in each of at most `max` items. The path of an item itself is empty there.
    pub fn each<T>(
        &mut self,
        path: &str,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        max: usize,
        mut check: impl FnMut(T, &mut Self),
    ) {
        let items = items.into_iter();
        self.take(path, check::count(items.len(), max));
        for (n, item) in items.enumerate() {
            self.nest(&format!("{path}[{n}]"), [item], &mut check);
        }
    }

    /// Returns `value` if nothing is wrong.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Takes away the last ones that find no place in a status, and returns their number. The first one stays, with long texts cut.
    fn shorten(&mut self) -> usize {
        let mut bytes = 0;
        let fits = |violation: &mut Violation| {
            violation.field = shortened(&violation.field);
            violation.reason = shortened(&violation.reason);
            bytes += violation.encoded_bytes();
            bytes <= MAX_VIOLATION_BYTES
        };
        let fitting = self.0.iter_mut().map(fits).take_while(|fits| *fits).count();
        let left_out = self.0.len().saturating_sub(fitting.max(1));
        self.0.truncate(self.0.len() - left_out);
        left_out
    }

    /// Iterates over the violations.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }
}

impl Violation {
    fn below(self, path: &str) -> Self {
        let separator = if self.field.is_empty() { "" } else { "." };
        Self { field: format!("{path}{separator}{}", self.field), ..self }
    }

    /// Returns how many bytes it takes in the headers of a response, at most.
    fn encoded_bytes(&self) -> usize {
        let bytes = || self.field.bytes().chain(self.reason.bytes());
        let percent_encoded: usize = bytes().map(|byte| if is_plain(byte) { 1 } else { 3 }).sum();
        // Two separators in the text, which the details have again; and less than ten bytes for each message's names and lengths.
        percent_encoded + 8 + (2 * bytes().count() + 4 + 10).div_ceil(3) * 4
    }
}

/// True for a byte that stands for itself in the header `grpc-message`.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Returns `text`, cut if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT_BYTES)])
}

impl Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Violation { field, reason }) in self.0.iter().enumerate() {
            write!(f, "{}{field}: {reason}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

impl From<Violations> for Status {
    /// `INVALID_ARGUMENT` with a `BadRequest`. Of very many wrong fields it has the first ones, and the number of the others in its text.
    fn from(mut violations: Violations) -> Self {
        let left_out = violations.shorten();
        let mut text = violations.to_string();
        if left_out > 0 {
            text += &format!("; and {left_out} more");
        }
        let mut details = ErrorDetails::new();
        for Violation { field, reason } in violations.0 {
            details.add_bad_request_violation(field, reason);
        }
        Self::with_error_details(Code::InvalidArgument, text, details)
    }
}

/// `NOT_FOUND` with a `ResourceInfo`: there is no `noun` named `name`.
pub fn not_found(noun: &str, name: &str) -> Status {
    resource(Code::NotFound, noun, name, format!("{noun} {} not found", shortened(name)))
}

/// `NOT_FOUND` with a `ResourceInfo` and an `ErrorInfo` with the `reason`: the `noun` named `name` was deleted, and what is left does not say more.
pub fn deleted(reason: &str, noun: &str, name: &str) -> Status {
    let mut details = ErrorDetails::with_resource_info(noun, shortened(name), "", "");
    details.set_error_info(reason, DOMAIN, HashMap::new());
    let text = format!("{noun} {} was deleted", shortened(name));
    Status::with_error_details(Code::NotFound, text, details)
}

/// `ALREADY_EXISTS` with a `ResourceInfo`: the `noun` named `name` is in the way, as `text` says.
pub fn already_exists(noun: &str, name: &str, text: impl Into<String>) -> Status {
    resource(Code::AlreadyExists, noun, name, text.into())
}

/// An address, or a block of them, that another object has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressInUse {
    /// The address.
    pub address: String,
    /// The noun of the holder; empty if it is not named.
    pub noun: String,
    /// The id of the holder.
    pub id: String,
    /// The tenant of the holder; empty for the site.
    pub tenant: String,
    /// The reason for people, which names both.
    pub text: String,
}

impl AddressInUse {
    /// The reason in the `ErrorInfo`.
    pub const REASON: &'static str = "ADDRESS_IN_USE";

    /// Returns what `status` says of an address in use, if it does.
    pub fn from_status(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.reason == Self::REASON)?;
        let field = |name: &str| info.metadata.get(name).cloned().unwrap_or_default();
        let [address, noun, id, tenant] = ["address", "noun", "id", "tenant"].map(field);
        Some(Self { address, noun, id, tenant, text: status.message().to_owned() })
    }

    /// Returns what a caller may know who is limited to the objects of `tenant`, or is not limited: no object of others.
    pub fn visible_to(self, tenant: Option<&TenantName>) -> Self {
        if tenant.is_none_or(|tenant| self.tenant == tenant.as_str()) {
            return self;
        }
        let text = format!("{} is taken", self.address);
        Self { address: self.address, text, ..Self::default() }
    }
}

impl From<AddressInUse> for Status {
    /// `ALREADY_EXISTS` with an `ErrorInfo` that has all fields, and a `ResourceInfo` of the holder.
    fn from(used: AddressInUse) -> Self {
        let AddressInUse { address, noun, id, tenant, text } = used;
        let (resource, name) =
            if noun.is_empty() { ("address", &address) } else { (noun.as_str(), &id) };
        let mut details = ErrorDetails::with_resource_info(resource, name, "", "");
        let fields = [("address", &address), ("noun", &noun), ("id", &id), ("tenant", &tenant)];
        let named = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let metadata: HashMap<_, _> =
            named.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        details.set_error_info(AddressInUse::REASON, DOMAIN, metadata);
        Self::with_error_details(Code::AlreadyExists, text, details)
    }
}

/// `ABORTED` with a `ResourceInfo`: somebody else changed the `noun` named `name` meanwhile.
pub fn changed_meanwhile(noun: &str, name: &str) -> Status {
    let text = format!("{noun} {name} was changed meanwhile: read it again and repeat");
    resource(Code::Aborted, noun, name, text)
}

/// The domain of reasons in an `ErrorInfo`.
const DOMAIN: &str = "tinwright";

/// `FAILED_PRECONDITION` with a `PreconditionFailure` of this `kind` about `subject`, and an `ErrorInfo` whose reason is `kind`.
pub fn failed_precondition(kind: &str, subject: &str, text: impl Into<String>) -> Status {
    let text = text.into();
    let violation = PreconditionViolation::new(kind, subject, text.clone());
    let mut details = ErrorDetails::with_precondition_failure(vec![violation]);
    details.set_error_info(kind, DOMAIN, HashMap::new());
    Status::with_error_details(Code::FailedPrecondition, text, details)
}

/// `RESOURCE_EXHAUSTED` with a `RetryInfo`: the call may be repeated after `delay`.
pub fn overloaded(text: impl Into<String>, delay: Duration) -> Status {
    let details = ErrorDetails::with_retry_info(Some(delay));
    Status::with_error_details(Code::ResourceExhausted, text, details)
}

/// `RESOURCE_EXHAUSTED` with an `ErrorInfo`: the call fails until others give something back. With a `RetryInfo`, if that is known to
/// be the case after `delay`.
pub fn exhausted(
    reason: &str,
    metadata: HashMap<String, String>,
    delay: Option<Duration>,
    text: impl Into<String>,
) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    if delay.is_some() {
        details.set_retry_info(delay);
    }
    Status::with_error_details(Code::ResourceExhausted, text, details)
}

/// `RESOURCE_EXHAUSTED` with a `QuotaFailure` about `subject`, and an `ErrorInfo` with the reason `QUOTA`.
pub fn over_quota(subject: &str, text: impl Into<String>) -> Status {
    let text = text.into();
    let mut details = ErrorDetails::with_quota_failure_violation(subject, text.clone());
    details.set_error_info("QUOTA", DOMAIN, HashMap::new());
    Status::with_error_details(Code::ResourceExhausted, text, details)
}

/// `UNAUTHENTICATED` with an `ErrorInfo` of this `reason`.
pub fn unauthenticated(reason: &str, text: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
    Status::with_error_details(Code::Unauthenticated, text, details)
}

/// Returns the time after which the call may be repeated, if the server named one.
pub fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn resource(code: Code, noun: &str, name: &str, text: String) -> Status {
    let details = ErrorDetails::with_resource_info(noun, shortened(name), "", "");
    Status::with_error_details(code, text, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_request_names_every_field_in_one_line_and_in_its_details() {
        let mut inner = Violations::single("mac", "is empty");
        inner.add("name", "is too long");
        let mut violations = Violations::default();
        violations.add_nested("interfaces[1]", inner);
        let status = Status::from(violations.into_result(()).unwrap_err());
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            status.message(),
            "interfaces[1].mac: is empty; interfaces[1].name: is too long"
        );
        let details = status.get_details_bad_request().unwrap();
        assert_eq!(details.field_violations[1].field, "interfaces[1].name");
        assert_eq!(details.field_violations[1].description, "is too long");
    }

    #[test]
    fn a_bad_request_with_very_many_fields_fits_into_headers_and_says_how_many_it_leaves_out() {
        let names = ["a", "%", "ä", "漢字", "\u{10ffff}", "\0"].map(str::to_owned);
        let long = ["x", "漢", "𝔏"].map(|text| text.repeat(100_000));
        for name in names.iter().chain(&long) {
            let mut violations = Violations::default();
            for n in 0..1000 {
                violations.add(format!("labels[{n}].{name}"), format!("{name} is not a label"));
            }
            let status = Status::from(violations);
            let headers = status.clone().into_http::<()>();
            let bytes: usize = headers
                .headers()
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + 32)
                .sum();
            assert!(bytes <= 8192, "{bytes} bytes");
            let kept = status.get_details_bad_request().unwrap().field_violations.len();
            assert!(kept >= 1, "{kept}");
            let end = format!("; and {} more", 1000 - kept);
            assert!(status.message().ends_with(&end), "{}", status.message());
        }
    }

    #[test]
    fn items_and_nested_messages_have_their_paths() {
        let mut violations = Violations::default();
        let mut macs = ["00-00-00-00-00-01".to_owned(), "x".to_owned()];
        violations.each("macs", &mut macs, 1, |mac, wrong| {
            wrong.normalize("", mac, str::parse::<crate::Mac>);
        });
        violations.nest("inner", Some(()), |(), wrong| wrong.add("mac", "is empty"));
        violations.nest("absent", None, |(), wrong| wrong.add("mac", "is empty"));
        let fields: Vec<_> = violations.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["macs", "macs[1]", "inner.mac"]);
        assert_eq!(macs[0], "00:00:00:00:00:01");
    }
}
