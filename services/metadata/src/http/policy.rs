//! What a machine's policy opens to whoever asks as that machine, and what only to who shows a boot token.

use std::time::{Instant, SystemTime};

use axum::http::{HeaderMap, header};
use runtime::client_address::ClientAddress;

use super::Service;
use super::refusal::Refusal;
use crate::contents::Family;
use crate::index::Lookup;
use crate::machine::{Machine, TokenPolicy};

impl Service {
    /// Refuses what `machine`'s policy does not open to whoever asks with `headers`. It is of a family, and secret or not.
    pub(super) fn check_policy(
        &self,
        machine: &Machine,
        caller: ClientAddress,
        headers: &HeaderMap,
        (family, secret): (Family, bool),
        now: SystemTime,
    ) -> Result<(), Refusal> {
        let closed = machine.tokens == TokenPolicy::Disabled;
        if !closed || family == Family::Ec2 {
            self.check_session(machine, headers, now)?;
        }
        if caller.forwarded && self.config.refuse_forwarded && secret {
            return Err(Refusal::Forbidden("forwarded"));
        }
        Ok(())
    }

    /// Whether whoever asks has shown that it may be told secrets, and the control plane was heard of recently.
    pub(super) fn trusts(
        &self,
        machine: &Machine,
        caller: ClientAddress,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> bool {
        let token = bearer(headers);
        token.is_some_and(|token| self.contents.trusts(machine, caller.address, token, now))
            && self.tells_secrets(caller)
    }

    /// Whether the control plane was heard of recently enough to tell secrets.
    fn tells_secrets(&self, caller: ClientAddress) -> bool {
        match self.index.lookup(caller.address, Instant::now()) {
            Lookup::Found { secrets, .. } => secrets,
            Lookup::Unknown | Lookup::NotReady => false,
        }
    }
}

/// What a request shows for who it is, besides its address.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
