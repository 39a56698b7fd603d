//! Explains boots: simulates a request of a machine, and reports the response and the facts that it depends on.
//!
//! This module decides nothing: it encodes the request as the client would, and calls the functions that respond to machines.
//! The effects of the response are discarded.
//!
//! - `request`: requests of clients. `decision_inputs`: the facts.

mod decision_inputs;
mod request;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use dhcp::options::code;
use dhcp::{MessageType, Reply, Request, SimulatedRelay};
use runtime::Clock;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::dhcp_reply::Type;

use crate::Mac;
use crate::allocation::{Applicant, Timestamps};
use crate::bootscripts::{BootScripts, ScriptRequest, environment_files};
use crate::decision::{BootTarget, Fact};
use crate::dhcp_server::{Response, View, respond};
use crate::environments::Environments;
use crate::machine_view::MachineView;
use crate::pool::{Subnet, Unknown};

/// The machine of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its id.
    Hardware(String),
    /// The MAC of an interface.
    Mac(Mac),
    /// An address.
    Address(IpAddr),
    /// Its name or host name.
    Hostname(String),
}

impl Target {
    /// Finds the machine: by its record, or by its lease.
    pub fn find(&self, scripts: &BootScripts, now: SystemTime) -> Option<Arc<MachineView>> {
        let index = &scripts.index;
        match self {
            Self::Hardware(id) => index.by_id(id),
            Self::Mac(mac) => index.by_mac(*mac),
            Self::Address(address) => index.at(*address, || scripts.holder(*address, now)),
            Self::Hostname(name) => index.by_name(name),
        }
    }
}

/// A machine and the client program of the simulated request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootQuestion {
    /// The machine.
    pub target: Target,
    /// The program. [`pb::ClientClass::Ipxe`] is this site's build of iPXE, loaded by firmware.
    pub class: pb::ClientClass,
    /// The value of option 93. None: that of the machine's last request of this class, else derived
    /// from the class and the machine's record.
    pub architecture: Option<u16>,
    /// The relay. None: that of the switch port in the machine's record.
    pub relay: Option<SimulatedRelay>,
}

/// A simulated request, the machine that sends it, and the response.
struct Simulation<'a> {
    /// The link.
    view: &'a View,
    /// The time of the request.
    now: Timestamps,
    /// The address that is asked about; none if the question names something else.
    named_address: Option<IpAddr>,
    /// The interface that sends the request, if it is known.
    mac: Option<Mac>,
    /// The machine.
    machine: Option<Arc<MachineView>>,
    /// True if the machine is identified by its switch port and not by its MAC.
    by_port: bool,
    /// The request; none if the interface that sends it is not known.
    request: Option<Request>,
    /// The response to it.
    response: Option<Response>,
}

impl<'a> Simulation<'a> {
    /// Simulates the request of `question`, and responds from `view`.
    fn run(question: &BootQuestion, view: &'a View, now: Timestamps) -> Self {
        let View { scripts, link, .. } = view;
        let named = question.target.find(scripts, now.wall);
        let mac = match (&named, &question.target) {
            (Some(machine), _) => Some(machine.mac),
            (None, Target::Mac(mac)) => Some(*mac),
            (None, Target::Address(address)) => scripts.holder(*address, now.wall),
            (None, Target::Hardware(_) | Target::Hostname(_)) => None,
        };
        // The relay of the switch port in the machine's record.
        let recorded = || {
            let record = &named.as_deref()?.reservation;
            SimulatedRelay::of(record.port.as_ref()?, record.address, link)
        };
        let relay = question.relay.clone().or_else(recorded);
        let request = |machine: Option<&MachineView>| {
            let architectures = match (question.architecture, machine) {
                (Some(number), _) => vec![number],
                (None, Some(machine)) => seen_architectures(scripts, machine, question.class),
                (None, None) => Vec::new(),
            };
            let processor = machine.map_or("", |machine| &machine.hardware.architecture);
            let direct = request::discover(mac?, question.class, &architectures, processor);
            let packet = match &relay {
                Some(relay) => relay.forward(direct),
                None => direct,
            };
            let received = request::received(&packet);
            let request = Request::new(packet, received, link)?;
            // Simulated iPXE is this site's loader, not a NIC's ROM: it gets no further loader.
            let is_site_build = question.class == pb::ClientClass::Ipxe;
            Some(Request { is_site_build, ..request })
        };
        let by_port = named.is_none();
        let machine = named.or_else(|| view.machine(&request(None)?));
        let by_port = by_port && machine.is_some();
        let request = request(machine.as_deref());
        let response =
            request.as_ref().map(|request| respond(view, machine.as_deref(), request, now));
        let named_address = match question.target {
            Target::Address(address) => Some(address),
            Target::Hardware(_) | Target::Mac(_) | Target::Hostname(_) => None,
        };
        Self { view, now, named_address, mac, machine, by_port, request, response }
    }

    /// Returns the MAC in the machine's record, else that of the simulated request.
    fn record_mac(&self) -> Option<Mac> {
        self.machine.as_ref().map(|machine| machine.mac).or(self.mac)
    }

    /// Returns the input of the allocator.
    fn applicant(&self) -> Option<Applicant<'_>> {
        let record = self.machine.as_deref().map(|machine| &machine.reservation);
        Some(Applicant { request: self.request.as_ref()?, record, link: &self.view.link })
    }

    /// Returns the subnet of the address that is asked about; none if the question names something else.
    fn named_subnet(&self) -> Option<&Subnet> {
        let allocator = self.view.scripts.allocator.as_deref()?;
        self.named_address.and_then(|address| allocator.subnet_with(address))
    }

    /// Returns the policy of the subnet of the address that is asked about, if a machine without a record boots there.
    fn subnet_policy(&self) -> Option<Unknown> {
        let allocator = self.view.scripts.allocator.as_deref()?;
        self.named_address.and_then(|address| allocator.boots_unknown(self.mac, address, self.mac))
    }

    /// Returns the text of `fact`. That a subnet enrols the next client that leases an address is no contradiction to an address that has no
    /// client.
    fn describe(&self, fact: Fact) -> String {
        let enrols = self.named_subnet().is_some_and(|subnet| subnet.unknown == Unknown::Enrol);
        if fact == Fact::NoRecord && enrols && self.mac.is_none() {
            return format!(
                "{fact}, and no client leases it: its subnet enrols clients that lease one"
            );
        }
        fact.to_string()
    }

    /// Returns an address of the client's pool, for a client that gets its address from another server.
    fn pool_address(&self) -> Option<IpAddr> {
        let allocator = self.view.scripts.allocator.as_deref()?;
        let (subnet, _) = allocator.pool(self.applicant()?, self.now.wall)?;
        Some(subnet.network.addr().into())
    }
}

/// Answers `question` on the link of `view`, at the time of `clock`. Blocks for some reads of the directory of environments.
pub fn explain(question: &BootQuestion, view: &View, clock: &Clock) -> pb::ExplainBootResponse {
    let simulation = Simulation::run(question, view, Timestamps::from(clock));
    let response = simulation.response.as_ref();
    let decision = match response {
        Some(response) => response.decision.clone(),
        None => {
            let feed = view.scripts.index.feed();
            let subnet = simulation.subnet_policy();
            view.scripts.decision(simulation.machine.as_deref(), feed, subnet)
        }
    };
    let dhcp = response.map(|response| match &response.reply {
        Ok(reply) => dhcp_reply(reply, decision.fact),
        Err(reason) => pb::DhcpReply { drop_reason: reason.to_string(), ..Default::default() },
    });
    let needed_files = environment_files(simulation.machine.as_deref(), &decision.boot);
    let missing_files = Environments::new(&view.scripts.site.osie).missing(needed_files);
    let holder = simulation.mac.filter(|_| response.is_some_and(|it| it.is_allocated));
    let assigned = dhcp.as_ref().and_then(|dhcp| dhcp.address.parse().ok());
    let own = simulation.machine.as_deref().and_then(|machine| machine.address);
    let given = || simulation.named_address;
    let source = assigned.or(own).or_else(given).or_else(|| simulation.pool_address());
    pb::ExplainBootResponse {
        time: Some(simulation.now.wall.into()),
        boot: target(&decision.boot).into(),
        fact: simulation.describe(decision.fact),
        dhcp,
        script: Some(script_reply(&simulation, source, holder)),
        inputs: Some(decision_inputs::of(&simulation)),
        missing_files,
    }
}

/// Returns the architectures that the firmware of `machine` last named as `class`; empty if it is
/// not known.
fn seen_architectures(
    scripts: &BootScripts,
    machine: &MachineView,
    class: pb::ClientClass,
) -> Vec<u16> {
    let class = match class {
        pb::ClientClass::Pxe | pb::ClientClass::IpxeRom => dhcp::ClientClass::Pxe,
        pb::ClientClass::Http => dhcp::ClientClass::Http,
        pb::ClientClass::Ipxe | pb::ClientClass::Ordinary | pb::ClientClass::Unspecified => {
            return Vec::new();
        }
    };
    let seen = scripts.history.firmware(machine).filter(|seen| seen.class == class);
    seen.map(|seen| seen.architectures).unwrap_or_default()
}

fn dhcp_reply(reply: &Reply, fact: Fact) -> pb::DhcpReply {
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
        boot_offered: reply.boot.is_offered(),
        no_loader: reply.boot.no_loader().iter().copied().map(u32::from).collect(),
        boot_refusal: reply.boot.refusal(fact).unwrap_or_default(),
    }
}

/// Simulates a script request from `source`, which `holder` leases by then.
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
        BootTarget::Node => pb::BootTarget::Node,
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
