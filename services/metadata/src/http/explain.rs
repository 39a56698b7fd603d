//! The explanation of how an address is identified, by the same checks that requests pass.

use std::net::IpAddr;

use runtime::neighbour::SourceCheck;
use tinwright::metadata::v1 as pb;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, check};
use tonic::Status;

use super::Service;
use crate::index::{Lookup, SECRETS_AFTER_DISCONNECT};
use crate::machine::{Machine, TokenPolicy};

impl Service {
    /// Explains the responses to a machine or an address.
    pub(crate) async fn explain(
        &self,
        request: pb::ExplainMetadataRequest,
    ) -> Result<pb::ExplainMetadataResponse, Status> {
        use pb::explain_metadata_request::By;
        let now = self.clock.monotonic();
        let missing = || Violations::single("by", "is missing: name a machine or an address");
        let not_found = |name: &str| status::not_found("machine", name);
        let (machine, address) = match request.by.ok_or_else(missing)? {
            By::HardwareId(text) => {
                let id = text.parse().map_err(|e| Violations::single("hardware_id", e))?;
                (Some(self.index.views.by_id(id).ok_or_else(|| not_found(&text))?), None)
            }
            By::Hostname(text) => {
                let name = check::hostname(&text).map_err(|e| Violations::single("hostname", e))?;
                (Some(self.index.by_hostname(&name).ok_or_else(|| not_found(&name))?), None)
            }
            By::Address(text) => {
                let address =
                    check::address(&text).map_err(|e| Violations::single("address", e))?;
                match self.index.lookup(address, now) {
                    Lookup::Found { machine, .. } => (Some(machine), Some(address)),
                    Lookup::Unknown | Lookup::NotReady => (None, Some(address)),
                }
            }
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
