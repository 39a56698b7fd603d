//! IMDSv2 sessions: a token is asked for with PUT, and sent with every GET.

use std::time::SystemTime;

use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};

use super::Service;
use super::refusal::Refusal;
use crate::machine::{Machine, TokenPolicy};
use crate::token::{LONGEST, Refused};
use runtime::client_address::ClientAddress;

const TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

impl Service {
    /// A new token. Whoever is passed on by somebody gets none: a request forged through a proxy is what tokens are
    /// against.
    pub(super) fn open_session(
        &self,
        machine: &Machine,
        caller: ClientAddress,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Response, Refusal> {
        if machine.tokens == TokenPolicy::Disabled {
            return Err(Refusal::Forbidden("disabled"));
        }
        if caller.forwarded {
            self.metrics.token("forwarded");
            return Err(Refusal::Forbidden("forwarded"));
        }
        let Some(ttl) = ttl(headers) else {
            self.metrics.token("malformed");
            return Err(Refusal::Malformed);
        };
        let token = self.tokens.mint(&machine.instance_id(), ttl, now).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "session refused");
            Refusal::NotReady
        })?;
        self.metrics.token("made");
        // The Rust SDK takes an answer that does not repeat the time to live for no answer.
        Ok(([(TTL, ttl.to_string()), (header::CONTENT_TYPE, "text/plain".into())], token)
            .into_response())
    }

    /// Whether a request with these headers may go on.
    pub(super) fn check_session(
        &self,
        machine: &Machine,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<(), Refusal> {
        let mut tokens = headers.get_all(TOKEN).iter();
        match (machine.tokens, tokens.next(), tokens.next()) {
            (TokenPolicy::Disabled, _, _) => Err(Refusal::Forbidden("disabled")),
            (TokenPolicy::Optional, None, _) => Ok(()),
            (TokenPolicy::Required, None, _) | (_, Some(_), Some(_)) => Err(Refusal::NoSession),
            (TokenPolicy::Optional | TokenPolicy::Required, Some(token), None) => {
                let token = token.to_str().map_err(|_| Refusal::NoSession)?;
                let (id, revoked) = (machine.instance_id(), machine.guard.tokens_revoked);
                let checked = self.tokens.check(token, &id, revoked, now);
                self.metrics.token(checked.map_or_else(Refused::label, |()| "good"));
                checked.map_err(|_| Refusal::NoSession)
            }
        }
    }
}

/// Whether a token was sent, good or not.
pub(super) fn has_token(headers: &HeaderMap) -> bool {
    headers.contains_key(TOKEN)
}

/// How long the token is to live, in seconds: said once, in digits, 1 to [`LONGEST`].
fn ttl(headers: &HeaderMap) -> Option<u32> {
    let mut said = headers.get_all(TTL).iter();
    let (Some(ttl), None) = (said.next(), said.next()) else { return None };
    let ttl = ttl.to_str().ok().filter(|ttl| ttl.bytes().all(|byte| byte.is_ascii_digit()))?;
    ttl.parse().ok().filter(|ttl| (1..=LONGEST).contains(ttl))
}
