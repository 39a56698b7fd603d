//! The request wrapper: credentials and the document of the call. The credentials are read, and checked, before the document.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::fault::{Code, Fault};
use super::object::Object;

/// The keys of `auth` that are fields of a credential, in the order of the platform's types.
pub const FIELDS: [&str; 7] =
    ["client_id", "subscription_id", "namespace", "region", "api_key", "secret", "config"];

/// The longest identifier of the platform, in bytes.
const MAX_PLATFORM_ID_BYTES: usize = 64;

/// The identifier of the platform that means "not set".
const UNSET_PLATFORM_ID: &str = "000000000000000000000000";

/// An identifier of the platform. Identifiers of ours are plain texts, so that the two are not mixed up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlatformId(String);

impl PlatformId {
    /// Reads a member; none if it is absent, null, empty or the identifier that means "not set".
    pub fn read(object: &Object<'_>, name: &str) -> Result<Option<Self>, Fault> {
        let Some(text) = object.text(name)? else { return Ok(None) };
        if text.is_empty() || text == UNSET_PLATFORM_ID {
            return Ok(None);
        }
        if text.len() > MAX_PLATFORM_ID_BYTES || text.chars().any(char::is_control) {
            let title =
                "an identifier of the platform has at most 64 bytes without control characters";
            return Err(object.invalid(name, title));
        }
        Ok(Some(Self(text)))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn test(text: &str) -> Self {
        Self(text.into())
    }
}

/// The credentials of a request.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Values of the fields that were sent, by their names.
    pub fields: BTreeMap<String, String>,
    /// The hub that the platform acts for.
    pub hub: Option<PlatformId>,
}

/// Values are secrets: only the names are printed.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields: Vec<_> = self.fields.keys().collect();
        f.debug_struct("Credentials").field("fields", &fields).field("hub", &self.hub).finish()
    }
}

/// A request whose `auth` can be read.
#[derive(Debug)]
pub struct Wrapper<'a> {
    document: Object<'a>,
    /// The credentials; none if there is no `auth`, or none of its fields.
    pub credentials: Option<Credentials>,
    /// True if the document itself is what the call requests.
    bare: bool,
}

impl<'a> Wrapper<'a> {
    /// Reads the body of a request. If `may_be_bare`, a body with `ip_id` and without `request` is taken for the document of the call.
    pub fn read(body: &'a [u8], may_be_bare: bool) -> Result<Self, Fault> {
        let document = Object::document(body)?;
        document.refuse_duplicates()?;
        let credentials = match document.object("auth")? {
            Some(auth) => credentials(&auth)?,
            None => None,
        };
        let bare =
            may_be_bare && document.raw("request").is_none() && document.raw("ip_id").is_some();
        Ok(Self { document, credentials, bare })
    }

    /// Returns the document of the call, which must be there.
    pub fn request(self) -> Result<Object<'a>, Fault> {
        if self.bare { Ok(self.document) } else { self.document.required_object("request") }
    }
}

fn credentials(auth: &Object<'_>) -> Result<Option<Credentials>, Fault> {
    auth.refuse_duplicates()?;
    let mut fields = BTreeMap::new();
    for name in FIELDS {
        let Some(value) = auth.text(name)? else { continue };
        if value.trim().is_empty() {
            return Err(auth.invalid(name, "a field of the credentials is empty"));
        }
        if name == "config" && STANDARD.decode(&value).is_err() {
            return Err(auth.invalid(name, "config is not base64 with padding"));
        }
        fields.insert(name.to_owned(), value);
    }
    let hub = match auth.object("cycle")? {
        Some(cycle) => {
            cycle.refuse_duplicates()?;
            cycle.text("hub_name")?;
            PlatformId::read(&cycle, "hub_id")?
        }
        None => None,
    };
    Ok((!fields.is_empty()).then_some(Credentials { fields, hub }))
}

/// The fault of a request without credentials, or with wrong ones: which of them is wrong is not said.
pub const fn auth_invalid() -> Fault {
    Fault::new(Code::AuthInvalid, "the credentials are missing or wrong")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(body: &str) -> (Code, Option<String>) {
        let fault = Wrapper::read(body.as_bytes(), false).unwrap_err();
        (fault.code, fault.source)
    }

    #[test]
    fn credentials_are_read_and_null_is_absent() {
        let body = br#"{"auth": {"client_id": "acme-metal", "namespace": null, "config": "eyJzaXRlIjoibm9ydGgifQ==", "new": 1,
            "cycle": {"hub_name": "Acme", "hub_id": "66b1f0c2a9d34e5b7c081f2a"}}, "request": null, "other": []}"#;
        let wrapper = Wrapper::read(body, false).unwrap();
        let credentials = wrapper.credentials.clone().unwrap();
        assert_eq!(credentials.fields.keys().collect::<Vec<_>>(), ["client_id", "config"]);
        assert_eq!(credentials.hub, Some(PlatformId::test("66b1f0c2a9d34e5b7c081f2a")));
        assert!(!format!("{wrapper:?}").contains("acme-metal"), "values are not printed");
        let missing = wrapper.request().unwrap_err();
        assert_eq!(
            (missing.code, missing.source.as_deref()),
            (Code::MissingArgument, Some("/request"))
        );
    }

    #[test]
    fn no_auth_and_an_empty_one_are_no_credentials() {
        for body in ["{}", r#"{"auth": null}"#, r#"{"auth": {}}"#, r#"{"auth": {"cycle": {}}}"#] {
            assert!(Wrapper::read(body.as_bytes(), false).unwrap().credentials.is_none(), "{body}");
        }
    }

    #[test]
    fn wrong_credentials_are_refused_with_their_place() {
        let at = |code, place: &str| (code, Some(place.to_owned()));
        for name in FIELDS {
            for empty in ["", "  ", "\\t"] {
                let body = format!(r#"{{"auth": {{"{name}": "{empty}"}}}}"#);
                assert_eq!(fault(&body), at(Code::InvalidArgument, &format!("/auth/{name}")));
            }
            let body = format!(r#"{{"auth": {{"{name}": 1}}}}"#);
            assert_eq!(fault(&body), at(Code::InvalidSyntax, &format!("/auth/{name}")));
            let body = format!(r#"{{"auth": {{"{name}": "eA==", "{name}": "eA=="}}}}"#);
            assert_eq!(fault(&body), at(Code::InvalidSyntax, &format!("/auth/{name}")));
        }
        for config in ["eyJ9", "eA", "e_==", "eA==\\n"].iter().skip(1) {
            let body = format!(r#"{{"auth": {{"config": "{config}"}}}}"#);
            assert_eq!(fault(&body), at(Code::InvalidArgument, "/auth/config"), "{config}");
        }
        assert_eq!(fault(r#"{"auth": "x"}"#), at(Code::InvalidSyntax, "/auth"));
        assert_eq!(fault(r#"{"auth": {}, "auth": {}}"#), at(Code::InvalidSyntax, "/auth"));
        let twice = r#"{"auth": {"cycle": {"hub_id": "a", "hub_id": "b"}}}"#;
        assert_eq!(fault(twice), at(Code::InvalidSyntax, "/auth/cycle/hub_id"));
    }

    #[test]
    fn a_bare_document_is_its_own_request() {
        let body = br#"{"auth": {"api_key": "k"}, "ip_id": "ip-1", "cidr": 7}"#;
        let request = Wrapper::read(body, true).unwrap().request().unwrap();
        assert_eq!(request.text("cidr").unwrap_err().source.as_deref(), Some("/cidr"));
        assert!(Wrapper::read(body, false).unwrap().request().is_err());
    }
}
