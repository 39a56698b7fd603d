//! Explains what a machine would be answered if it sent a request now, and why.
//!
//! Nothing is decided here: a request is made as the client would make it, and answered by the functions that answer machines.
//! Their effects are discarded; the facts that they depend on are reported beside the answers.
//!
//! - `request`: requests as clients and relays send them. `simulate`: one of them and its response.
//! - `decision_inputs`: the facts.

mod decision_inputs;
mod request;
mod simulate;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use dhcp::options::code;
use dhcp::{BootOffer, MessageType, Reply};
use runtime::Clock;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::dhcp_reply::Type;

pub use request::SimulatedRelay;

use self::simulate::Simulation;
use crate::Mac;
use crate::allocation::Timestamps;
use crate::bootscripts::{BootScripts, ScriptRequest};
use crate::decision::BootTarget;
use crate::dhcp_server::View;
use crate::machine_view::MachineView;

/// The machine that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its id.
    Hardware(String),
    /// By an interface.
    Mac(Mac),
    /// By an address.
    Address(IpAddr),
    /// By its name or host name.
    Hostname(String),
}

impl Target {
    /// Finds the machine: by its record, or by its lease.
    pub fn find(&self, scripts: &BootScripts, now: SystemTime) -> Option<Arc<MachineView>> {
        let index = &scripts.index;
        match self {
            Self::Hardware(id) => index.by_id(id),
            Self::Mac(mac) => index.by_mac(*mac),
            Self::Address(address) => {
                let reserved = index.by_address(*address);
                reserved.or_else(|| index.by_mac(scripts.holder(*address, now)?))
            }
            Self::Hostname(name) => index.by_name(name),
        }
    }

    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Hardware(_) | Self::Mac(_) | Self::Hostname(_) => None,
        }
    }

    /// True if it can send requests without a record.
    pub fn sends_requests(&self) -> bool {
        match self {
            Self::Mac(_) | Self::Address(_) => true,
            Self::Hardware(_) | Self::Hostname(_) => false,
        }
    }
}

/// A machine and the program that would send the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootQuestion {
    /// The machine.
    pub target: Target,
    /// The program; iPXE that this site's firmware has loaded, if it is unspecified.
    pub class: pb::ClientClass,
    /// Option 93. Without it: by the class and the machine's record.
    pub architecture: Option<u16>,
    /// The relay. Without it: that of the switch port in the machine's record.
    pub relay: Option<SimulatedRelay>,
}

/// Answers `question` on the link of `view`, at the time of `clock`.
pub fn explain(question: &BootQuestion, view: &View, clock: &Clock) -> pb::ExplainBootResponse {
    let simulation = Simulation::run(question, view, Timestamps::from(clock));
    let response = simulation.response.as_ref();
    let decision = match response {
        Some(response) => response.decision.clone(),
        None => {
            let feed = view.scripts.index.feed();
            view.scripts.decision(simulation.machine.as_deref(), feed, false)
        }
    };
    let boot_offered = decision.offer() == BootOffer::Offered;
    let dhcp = response.map(|response| match &response.reply {
        Ok(reply) => dhcp_reply(reply, boot_offered),
        Err(reason) => pb::DhcpReply { drop_reason: reason.to_string(), ..Default::default() },
    });
    let holder = simulation.mac.filter(|_| response.is_some_and(|it| it.is_allocated));
    let assigned = dhcp.as_ref().and_then(|dhcp| dhcp.address.parse().ok());
    let own = || {
        simulation.machine.as_deref().and_then(MachineView::address).or(question.target.address())
    };
    let source = assigned.or_else(own).or_else(|| simulation.pool_address());
    pb::ExplainBootResponse {
        time: Some(simulation.now.wall.into()),
        boot: target(&decision.boot).into(),
        fact: decision.fact.to_string(),
        dhcp,
        script: Some(script_reply(&simulation, source, holder)),
        inputs: Some(decision_inputs::of(&simulation)),
    }
}

fn dhcp_reply(reply: &Reply, boot_offered: bool) -> pb::DhcpReply {
    let text = |code| Some(String::from_utf8_lossy(reply.packet.options.get(code)?).into_owned());
    let address = |address: Ipv4Addr| {
        if address.is_unspecified() { String::new() } else { address.to_string() }
    };
    pb::DhcpReply {
        r#type: reply_type(reply).into(),
        drop_reason: String::new(),
        address: address(reply.packet.yiaddr),
        next_server: address(reply.packet.siaddr),
        boot_file: text(code::BOOT_FILE_NAME).unwrap_or_default(),
        boot_offered: boot_offered && reply.no_loader.is_none(),
        no_loader: reply.no_loader.iter().flatten().copied().map(u32::from).collect(),
    }
}

/// Answers a script request from `source`, which `holder` leases by then.
fn script_reply(
    simulation: &Simulation<'_>,
    source: Option<IpAddr>,
    holder: Option<Mac>,
) -> pb::ScriptReply {
    let (scripts, now) = (&simulation.view.scripts, simulation.now.wall);
    // The URL in a DHCP reply has the MAC of the record, whichever interface sent the request.
    let mac = simulation.record_mac();
    let path = mac.map_or_else(String::new, |mac| format!("/{}", mac.dashed()));
    let url = format!("{}{path}/auto.ipxe", scripts.site.base_url());
    let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let request = ScriptRequest { leased_to: holder, ..ScriptRequest::new(mac, source) };
    match scripts.simulate(&request, now) {
        Ok(script) => {
            pb::ScriptReply { status: 200, kind: script.kind.into(), refusal: String::new(), url }
        }
        Err(refusal) => pb::ScriptReply {
            status: refusal.status().as_u16().into(),
            kind: pb::ScriptKind::Unspecified.into(),
            refusal: refusal.to_string(),
            url,
        },
    }
}

fn reply_type(reply: &dhcp::Reply) -> Type {
    match reply.packet.kind() {
        Some(MessageType::Offer) => Type::Offer,
        Some(MessageType::Ack) => Type::Ack,
        Some(MessageType::Nak) => Type::Nak,
        Some(_) | None => Type::Unspecified,
    }
}

fn target(boot: &BootTarget) -> pb::BootTarget {
    match boot {
        BootTarget::Worker => pb::BootTarget::Worker,
        BootTarget::CustomScript(_) => pb::BootTarget::CustomScript,
        BootTarget::LocalDisk => pb::BootTarget::LocalDisk,
        BootTarget::Shell => pb::BootTarget::Shell,
        BootTarget::Generic => pb::BootTarget::Generic,
        BootTarget::Refused => pb::BootTarget::Refused,
        BootTarget::Unknown => pb::BootTarget::Unknown,
        BootTarget::Later => pb::BootTarget::Later,
    }
}

#[cfg(test)]
mod tests;
