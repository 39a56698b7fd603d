//! Logins to registries: a password (RFC 7617), or a token that another server gives for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http_auth::{ChallengeParser, ChallengeRef};
use serde::Deserialize;

/// The login of a user, or of nobody.
#[derive(Debug)]
pub(crate) struct Login(Option<HeaderValue>);

/// What a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// The user and the password.
    Basic,
    /// A token, which the server `realm` gives.
    Token {
        /// URL of the server.
        realm: String,
        /// What the token is for.
        query: Vec<(String, String)>,
    },
}

/// Answer of a server of tokens.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Login {
    /// The login of `username`; of nobody if it is empty.
    pub(crate) fn new(username: &str, password: &str) -> Self {
        let encoded = || STANDARD.encode(format!("{username}:{password}"));
        Self((!username.is_empty()).then(|| sensitive(format!("Basic {}", encoded()))).flatten())
    }

    /// True if there is no user.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the header with the user and the password.
    pub(crate) fn basic(&self) -> Option<HeaderValue> {
        self.0.clone()
    }
}

impl Challenge {
    /// Returns the challenge of these headers; the one for a token if there are several.
    pub(crate) fn among<'a>(headers: impl Iterator<Item = &'a HeaderValue>) -> Option<Self> {
        let mut basic = None;
        for header in headers.filter_map(|header| header.to_str().ok()) {
            for challenge in ChallengeParser::new(header).map_while(Result::ok) {
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    basic = Some(Self::Basic);
                }
                if let Some(token) = Self::token(&challenge) {
                    return Some(token);
                }
            }
        }
        basic
    }

    fn token(challenge: &ChallengeRef<'_>) -> Option<Self> {
        if !challenge.scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameter = |wanted: &str| {
            let mut parameters = challenge.params.iter();
            let found = parameters.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
            Some(found.1.to_unescaped())
        };
        let query = ["service", "scope"].into_iter();
        let query = query.filter_map(|name| Some((name.to_owned(), parameter(name)?)));
        Some(Self::Token { realm: parameter("realm")?, query: query.collect() })
    }
}

/// Returns the header with the token in the answer of a server of tokens.
pub(crate) fn bearer(answer: &str) -> Option<HeaderValue> {
    let Token { token, access_token } = serde_json::from_str(answer).ok()?;
    let token = token.or(access_token).filter(|token| !token.is_empty())?;
    sensitive(format!("Bearer {token}"))
}

/// Returns a header that `Debug` does not show. None if it has characters that a header cannot have.
fn sensitive(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(headers: &[&'static str]) -> Option<Challenge> {
        let headers: Vec<_> = headers.iter().copied().map(HeaderValue::from_static).collect();
        Challenge::among(headers.iter())
    }

    #[test]
    fn a_challenge_for_a_token_comes_before_one_for_a_password() {
        let token =
            r#"Bearer realm="https://auth.example/token",service="a b",scope="repository:x:pull""#;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let query = vec![pair("service", "a b"), pair("scope", "repository:x:pull")];
        let wanted = Challenge::Token { realm: "https://auth.example/token".into(), query };
        assert_eq!(challenge(&[token]), Some(wanted.clone()));
        assert_eq!(challenge(&[r#"Basic realm="x""#, token]), Some(wanted));
        assert_eq!(challenge(&[r#"basic realm="x""#]), Some(Challenge::Basic));
        for none in ["Negotiate", r#"Bearer service="x""#, "", "="] {
            assert_eq!(challenge(&[none]), None, "{none}");
        }
    }

    #[test]
    fn a_login_and_a_token_are_not_shown() {
        let login = Login::new("anna", "s3cret");
        assert_eq!(login.basic().unwrap(), "Basic YW5uYTpzM2NyZXQ=");
        let token = bearer(r#"{"access_token": "t0ken", "expires_in": 60}"#).unwrap();
        assert_eq!(token, "Bearer t0ken");
        let shown = format!("{login:?} {token:?}");
        assert!(!shown.contains("YW5uYT") && !shown.contains("t0ken"), "{shown}");
        assert!(Login::new("", "").is_anonymous());
        assert_eq!(bearer(r#"{"token": ""}"#), None);
        assert_eq!(bearer("<html>"), None);
    }
}
