//! The explanation of how an address is identified, by the same checks that requests pass.

use std::net::IpAddr;
use std::sync::Arc;

use runtime::neighbour::SourceCheck;
use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, check};
use tonic::Status;

use super::Service;
use crate::index::{FreeMachine, Lookup, SECRETS_AFTER_DISCONNECT};
use crate::machine::{Machine, TokenPolicy};

/// The machine or the address of a question.
enum Found {
    /// A machine.
    Machine(Arc<Machine>),
    /// An address, and the machine that has it.
    Address(IpAddr, Option<Arc<Machine>>),
    /// A machine that no instance occupies.
    Free(FreeMachine),
}

impl Service {
    /// Explains the responses to a machine or an address.
    pub(crate) async fn explain(
        &self,
        request: pb::ExplainMetadataRequest,
    ) -> Result<pb::ExplainMetadataResponse, Status> {
        let missing = || Violations::single("by", "is missing: name a machine or an address");
        let (machine, address) = match self.find(request.by.ok_or_else(missing)?)? {
            Found::Machine(machine) => (Some(machine), None),
            Found::Address(address, machine) => (machine, Some(address)),
            Found::Free(machine) => return Ok(self.explain_free(&machine)),
        };
        let machine = machine.as_deref();
        let mut sources = Vec::new();
        for address in address.map_or_else(|| self.addresses(machine), |one| vec![one]) {
            sources.push(self.source(address, machine.map(|machine| machine.id)).await);
        }
        Ok(pb::ExplainMetadataResponse {
            time: Some(self.clock.wall().into()),
            hardware_id: machine.map(|one| one.id.to_string()).unwrap_or_default(),
            instance_id: machine
                .filter(|one| one.instance.is_some())
                .map(|one| one.instance_id().into_owned())
                .unwrap_or_default(),
            sources,
            guard: machine.map(|machine| self.guard(machine)),
            feed: Some(self.feed()),
        })
    }

    /// Finds the machine of a question.
    fn find(&self, by: By) -> Result<Found, Status> {
        let not_found = |name: &str| status::not_found("machine", name);
        let free = |matches: &dyn Fn(&FreeMachine) -> bool| self.index.free.find(matches);
        match by {
            By::HardwareId(text) => {
                let id = text.parse().map_err(|e| Violations::single("hardware_id", e))?;
                let found = self.index.views.by_id(id).map(Found::Machine);
                let found = found.or_else(|| free(&|it| it.id == id).map(Found::Free));
                found.ok_or_else(|| not_found(&text))
            }
            By::Hostname(text) => {
                let name = check::hostname(&text).map_err(|e| Violations::single("hostname", e))?;
                let found = self.index.by_hostname(&name).map(Found::Machine);
                let found = found.or_else(|| free(&|it| it.name == name).map(Found::Free));
                found.ok_or_else(|| not_found(&name))
            }
            By::Address(text) => {
                let address =
                    check::address(&text).map_err(|e| Violations::single("address", e))?;
                Ok(match self.index.lookup(address, self.clock.monotonic()) {
                    Lookup::Found { machine, .. } => Found::Address(address, Some(machine)),
                    Lookup::Unknown => free(&|it| it.addresses.contains(&address.to_canonical()))
                        .map_or(Found::Address(address, None), Found::Free),
                    Lookup::NotReady => Found::Address(address, None),
                })
            }
        }
    }

    /// Explains the responses to requests from the addresses of a machine that no instance occupies.
    fn explain_free(&self, machine: &FreeMachine) -> pb::ExplainMetadataResponse {
        let source = |address: &IpAddr| pb::Source {
            address: address.to_string(),
            answered: false,
            fact: format!("{} has this address, and is free (no instance): 404", machine.name),
        };
        pb::ExplainMetadataResponse {
            time: Some(self.clock.wall().into()),
            hardware_id: machine.id.to_string(),
            instance_id: String::new(),
            sources: machine.addresses.iter().map(source).collect(),
            guard: None,
            feed: Some(self.feed()),
        }
    }

    /// Explains the response to a request from `address`; `expected` is the machine that is explained.
    async fn source(&self, address: IpAddr, expected: Option<HardwareId>) -> pb::Source {
        let (answered, fact) = match self.index.lookup(address, self.clock.monotonic()) {
            Lookup::NotReady => (false, "no records from the control plane yet: 503".to_owned()),
            Lookup::Unknown => (false, "no machine has this address: 404".to_owned()),
            Lookup::Found { machine, .. } if expected.is_some_and(|id| id != machine.id) => {
                (false, format!("machine {} claimed this address first", machine.id))
            }
            Lookup::Found { machine, .. } => {
                let (neighbour, checked) =
                    self.check_source_address(&machine, address, address).await;
                match (checked, machine.tokens) {
                    (Err(rejected), _) => (false, format!("{rejected} ({neighbour}): 403")),
                    (Ok(()), TokenPolicy::Disabled) => {
                        (false, "the machine's policy closes the EC2 tree: 403".to_owned())
                    }
                    (Ok(()), TokenPolicy::Required) => {
                        (true, "answered with a session token, else 401".to_owned())
                    }
                    (Ok(()), TokenPolicy::Optional) => (true, "answered".to_owned()),
                }
            }
        };
        pb::Source { address: address.to_string(), answered, fact }
    }

    fn guard(&self, machine: &Machine) -> pb::Guard {
        let tokens = match machine.tokens {
            TokenPolicy::Optional => "optional",
            TokenPolicy::Required => "required",
            TokenPolicy::Disabled => "disabled",
        };
        let source_check = match machine.guard.source.unwrap_or(self.config.source_check) {
            SourceCheck::OnLink => "on_link",
            SourceCheck::Address => "address",
            SourceCheck::Neighbour => "neighbour",
            SourceCheck::Port => "port",
        };
        let now = self.clock.monotonic();
        pb::Guard {
            tokens: tokens.into(),
            source_check: source_check.into(),
            hop_limit: machine.guard.hop_limit.map_or(0, u32::from),
            tokens_revoke_time: machine.guard.tokens_revoked.map(Into::into),
            user_data_served: !self.first_accesses.is_window_over(machine, now),
        }
    }

    /// Returns the addresses of the machine's record, then the leased ones; each once, though a record may repeat one.
    fn addresses(&self, machine: Option<&Machine>) -> Vec<IpAddr> {
        let mut all = Vec::new();
        if let Some(machine) = machine {
            let leased = self.index.leased_by(machine.id, self.clock.monotonic());
            for address in machine.addresses().chain(leased) {
                if !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        all
    }

    fn feed(&self) -> pb::Feed {
        let age = self.index.feed_age(self.clock.monotonic());
        let disconnected = age.filter(|age| !age.is_zero());
        pb::Feed {
            synced: age.is_some(),
            live: age.is_some() && disconnected.is_none(),
            age: disconnected.and_then(|age| age.try_into().ok()),
            secrets_served: age.is_some_and(|age| age <= SECRETS_AFTER_DISCONNECT),
        }
    }
}
