//! IMDSv2 sessions: a client requests a token with PUT, and sends it with each GET.

use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};

use super::Service;
use super::refusal::Refusal;
use super::request::Client;
use crate::machine::{Machine, TokenPolicy};
use crate::token::{MAX_TTL_SECONDS, TokenError};

const TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

impl Service {
    /// Returns a new token. A forwarded request gets none: tokens protect against requests forged through a proxy.
    pub(super) fn open_session(
        &self,
        machine: &Machine,
        client: &Client<'_>,
    ) -> Result<Response, Refusal> {
        if machine.tokens == TokenPolicy::Disabled {
            return Err(Refusal::Forbidden("disabled"));
        }
        if client.forwarded {
            self.metrics.token("forwarded");
            return Err(Refusal::Forbidden("forwarded"));
        }
        let Some(ttl) = ttl(client.headers) else {
            self.metrics.token("malformed");
            return Err(Refusal::Malformed);
        };
        let token =
            self.tokens.mint(&machine.instance_id(), ttl, client.wall).map_err(|error| {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "session token not created"
                );
                Refusal::NotReady
            })?;
        self.metrics.token("made");
        // The Rust SDK rejects a response that does not repeat the time to live.
        Ok(([(TTL, ttl.to_string()), (header::CONTENT_TYPE, "text/plain".into())], token)
            .into_response())
    }

    /// Refuses a request without a session token that the machine's policy requires, or with an invalid one.
    pub(super) fn check_session(
        &self,
        machine: &Machine,
        client: &Client<'_>,
    ) -> Result<(), Refusal> {
        let mut tokens = client.headers.get_all(TOKEN).iter();
        match (machine.tokens, tokens.next(), tokens.next()) {
            (TokenPolicy::Disabled, _, _) => Err(Refusal::Forbidden("disabled")),
            (TokenPolicy::Optional, None, _) => Ok(()),
            (TokenPolicy::Required, None, _) | (_, Some(_), Some(_)) => Err(Refusal::NoSession),
            (TokenPolicy::Optional | TokenPolicy::Required, Some(token), None) => {
                let token = token.to_str().map_err(|_| Refusal::NoSession)?;
                let (id, revoked) = (machine.instance_id(), machine.guard.tokens_revoked);
                let checked = self.tokens.check(token, &id, revoked, client.wall);
                self.metrics.token(checked.map_or_else(TokenError::label, |()| "good"));
                checked.map_err(|_| Refusal::NoSession)
            }
        }
    }
}

/// True if there is a token, valid or not.
pub(super) fn has_token(headers: &HeaderMap) -> bool {
    headers.contains_key(TOKEN)
}

/// Returns the requested time to live in seconds: one header of digits, 1 to [`MAX_TTL_SECONDS`].
fn ttl(headers: &HeaderMap) -> Option<u32> {
    let mut values = headers.get_all(TTL).iter();
    let (Some(ttl), None) = (values.next(), values.next()) else { return None };
    let ttl = ttl.to_str().ok().filter(|ttl| ttl.bytes().all(|byte| byte.is_ascii_digit()))?;
    ttl.parse().ok().filter(|ttl| (1..=MAX_TTL_SECONDS).contains(ttl))
}
