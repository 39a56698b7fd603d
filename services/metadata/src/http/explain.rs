//! Whom an address is taken for, and why: decided by what answers machines, told to people.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tinwright::HardwareId;
use tinwright::metadata::v1 as pb;

use super::Service;
use crate::guard::SourceCheck;
use crate::index::{Lookup, SECRETS_AFTER_DISCONNECT};
use crate::machine::{Machine, TokenPolicy};
use runtime::client_address::ClientAddress;

/// Who is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A machine, by its id.
    Hardware(HardwareId),
    /// Whoever has an address.
    Address(IpAddr),
    /// A machine, by the host name it is told.
    Hostname(String),
}

impl Service {
    /// What `subject` would be answered now; `None` for a machine nobody knows.
    pub async fn explain(
        &self,
        subject: &Subject,
        now: SystemTime,
    ) -> Option<pb::ExplainMetadataResponse> {
        let machine = match subject {
            Subject::Hardware(id) => Some(self.index.machine(*id)?),
            Subject::Hostname(name) => Some(self.index.by_hostname(name)?),
            Subject::Address(address) => match self.index.lookup(*address, Instant::now()) {
                Lookup::Found { machine, .. } => Some(machine),
                Lookup::Unknown | Lookup::NotReady => None,
            },
        };
        let addresses = match (subject, &machine) {
            (Subject::Address(address), _) => vec![*address],
            (Subject::Hardware(_) | Subject::Hostname(_), machine) => self.every_address(machine),
        };
        let mut sources = Vec::new();
        for address in addresses {
            sources.push(self.source(address, machine.as_ref().map(|machine| machine.id)).await);
        }
        let machine = machine.as_deref();
        Some(pb::ExplainMetadataResponse {
            time: Some(now.into()),
            hardware_id: machine.map_or_else(String::new, |machine| machine.id.to_string()),
            instance_id: machine
                .map_or_else(String::new, |machine| machine.instance_id().into_owned()),
            sources,
            guard: machine.map(|machine| self.guard(machine)),
            feed: Some(self.feed()),
        })
    }

    /// What whoever asks from `address` would be answered, where `meant` is the machine that is asked about.
    async fn source(&self, address: IpAddr, meant: Option<HardwareId>) -> pb::Source {
        let (answered, fact) = match self.index.lookup(address, Instant::now()) {
            Lookup::NotReady => {
                (false, "nothing was heard from the control plane yet: 503".to_owned())
            }
            Lookup::Unknown => (false, "no machine has this address: 404".to_owned()),
            Lookup::Found { machine, .. } if meant.is_some_and(|id| id != machine.id) => {
                (false, format!("machine {} claimed this address first", machine.id))
            }
            Lookup::Found { machine, .. } => self.decided(&machine, address).await,
        };
        pb::Source { address: address.to_string(), answered, fact }
    }

    async fn decided(&self, machine: &Machine, address: IpAddr) -> (bool, String) {
        let caller = ClientAddress { address, forwarded: false };
        let (place, admitted) = self.admitted(machine, SocketAddr::new(address, 0), caller).await;
        match (admitted, machine.tokens) {
            (Err(denied), _) => (false, format!("{denied} ({place:?}): 403")),
            (Ok(()), TokenPolicy::Disabled) => {
                (false, "the machine's policy closes the EC2 tree: 403".to_owned())
            }
            (Ok(()), TokenPolicy::Required) => {
                (true, "answered to who shows a session token, else 401".to_owned())
            }
            (Ok(()), TokenPolicy::Optional) => (true, "answered".to_owned()),
        }
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
        pb::Guard {
            tokens: tokens.into(),
            source_check: source_check.into(),
            hop_limit: machine.guard.hop_limit.map_or(0, u32::from),
            tokens_revoke_time: machine.guard.tokens_revoked.map(Into::into),
            user_data_told: !self.seen.is_over(machine, Instant::now()),
        }
    }

    /// Those of the record, then those that are lent; each once: a record may name one twice.
    fn every_address(&self, machine: &Option<Arc<Machine>>) -> Vec<IpAddr> {
        let mut all = Vec::new();
        if let Some(machine) = machine {
            let lent = self.index.leased_by(machine.id, Instant::now());
            for address in machine.addresses().chain(lent) {
                if !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        all
    }

    fn feed(&self) -> pb::Feed {
        let age = self.index.feed_age(Instant::now());
        let cut = age.filter(|age| !age.is_zero());
        pb::Feed {
            heard: age.is_some(),
            live: age.is_some() && cut.is_none(),
            age: cut.and_then(|age| age.try_into().ok()),
            secrets_told: age.is_some_and(|age| age <= SECRETS_AFTER_DISCONNECT),
        }
    }
}
