//! Access to a machine's documents: the check of the client's address, the machine's policy, and boot tokens.

use std::net::IpAddr;

use axum::http::header;
use runtime::neighbour::{self, NeighbourCheck, SourceCheck, SourceRejected};

use super::Service;
use super::refusal::Refusal;
use super::request::Client;
use crate::contents::Family;
use crate::index::Lookup;
use crate::machine::{Machine, TokenPolicy};

impl Service {
    /// Refuses a client that has the machine's address but is not the machine, as far as the neighbour table shows.
    pub(super) async fn check_source(
        &self,
        machine: &Machine,
        client: &Client<'_>,
    ) -> Result<(), Refusal> {
        let (neighbour, result) =
            self.check_source_address(machine, client.peer, client.address).await;
        result.map_err(|rejected| {
            client.log(machine.id, || {
                tracing::warn!(address = %client.address, %neighbour, reason = %rejected, "source check failed");
            });
            Refusal::Forbidden(rejected.label())
        })
    }

    /// Checks that `address`, for which `peer` sends requests, belongs to the machine; also returns what was found out.
    pub(super) async fn check_source_address(
        &self,
        machine: &Machine,
        peer: IpAddr,
        address: IpAddr,
    ) -> (NeighbourCheck, Result<(), SourceRejected>) {
        let check = machine.guard.source.unwrap_or(self.config.source_check);
        let neighbour = self.neighbour(check, peer, address).await;
        (neighbour, check.admits(machine.macs(), neighbour))
    }

    async fn neighbour(&self, check: SourceCheck, peer: IpAddr, address: IpAddr) -> NeighbourCheck {
        let Some(neighbours) = &self.neighbours else { return NeighbourCheck::Unchecked };
        match check {
            SourceCheck::Port => {
                let lease = self.index.lease(address, self.clock.monotonic());
                return match lease.is_some_and(|lease| lease.at_port) {
                    true => NeighbourCheck::RelayPort,
                    false => NeighbourCheck::Unchecked,
                };
            }
            SourceCheck::Address => return NeighbourCheck::Unchecked,
            SourceCheck::OnLink | SourceCheck::Neighbour => {}
        }
        if peer != address {
            return NeighbourCheck::Routed;
        }
        neighbour::owner_of(neighbours, address).await
    }

    /// Refuses what the machine's policy does not allow for a document of this family.
    pub(super) fn check_policy(
        &self,
        machine: &Machine,
        client: &Client<'_>,
        family: Family,
        is_secret: bool,
    ) -> Result<(), Refusal> {
        if machine.tokens != TokenPolicy::Disabled || family == Family::Ec2 {
            self.check_session(machine, client)?;
        }
        if client.forwarded && self.config.refuse_forwarded && is_secret {
            return Err(Refusal::Forbidden("forwarded"));
        }
        Ok(())
    }

    /// True if the client has a boot token of the machine, and the feeds are recent enough to serve secrets.
    pub(super) fn is_trusted(&self, machine: &Machine, client: &Client<'_>) -> bool {
        let authorization = client.headers.get(header::AUTHORIZATION);
        let token = authorization
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
            .is_some_and(|token| self.contents.trusts(machine, client.address, token, client.wall));
        let lookup = || self.index.lookup(client.address, client.now);
        token && matches!(lookup(), Lookup::Found { secrets: true, .. })
    }
}
