//! What a machine would be answered if it asked now, and why.
//!
//! Nothing is decided here: a request is made as the client would make it, and given to the very functions that answer
//! machines. What they looked at is told beside their answer.
//!
//! - `request`: requests as clients and relays make them; `case`: one, and what is known of who sends it.
//! - `decision_inputs`: the facts.

mod case;
mod decision_inputs;
mod request;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::dhcp_reply::Type;

pub use request::{ClientClass, Relay};

use self::case::Case;
use crate::Mac;
use crate::bootscripts::{BootScripts, ScriptRequest};
use crate::decision::BootTarget;
use crate::dhcp_server::link_state::LinkState;
use crate::lending::Lent;
use crate::machine_view::MachineView;
use dhcp::options::code;
use dhcp::{BootOffer, DropReason, Link, MessageType, ReplyInputs};

/// The machine that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By its id.
    Hardware(String),
    /// By an interface.
    Mac(Mac),
    /// By an address.
    Address(IpAddr),
    /// By what people call it.
    Hostname(String),
}

impl Subject {
    /// What `boots` knows of it: by its record, or by what it is lent.
    pub fn find(&self, boots: &BootScripts, now: SystemTime) -> Option<Arc<MachineView>> {
        let index = boots.index();
        match self {
            Self::Hardware(id) => index.by_id(id),
            Self::Mac(mac) => index.by_mac(*mac),
            Self::Address(address) => {
                let reserved = index.by_address(*address);
                reserved.or_else(|| index.by_mac(boots.holder(*address, now)?))
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

    /// Whether it is something that asks, known or not.
    pub fn asks(&self) -> bool {
        match self {
            Self::Mac(_) | Self::Address(_) => true,
            Self::Hardware(_) | Self::Hostname(_) => false,
        }
    }
}

/// Who asks, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The machine.
    pub subject: Subject,
    /// The program.
    pub class: ClientClass,
    /// Option 93; by the class and the machine's record where it is not given.
    pub architecture: Option<u16>,
    /// The relay; that of the port in the machine's record where it is not given.
    pub relay: Option<Relay>,
}

/// A link, and what answers on it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Scripts for those who ask there.
    pub boots: Arc<BootScripts>,
    /// What DHCP tells there.
    pub link: Arc<Link>,
    /// What clients were heard to say there.
    pub link_state: Arc<LinkState>,
}

impl Place {
    /// Whether `address` is known to be on it.
    pub fn has(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        self.link.networks.iter().any(|network| network.contains(&address))
    }
}

/// The answers to `question` at `place`, as of `now`.
pub fn explain(question: &Question, place: &Place, now: SystemTime) -> pb::ExplainBootResponse {
    let case = Case::of(question, place, now);
    let boots = case.boots;
    let lent = case.lent();
    let has = lent.as_ref().unwrap_or(&Lent::Nothing);
    let decision = boots.decision_lent(case.known.as_deref(), has);
    let holder = match has {
        Lent::Address(_) => case.mac,
        Lent::Nothing | Lent::BootOnly => None,
    };
    let dhcp = dhcp(&case, lent, decision.offer());
    let given = dhcp.as_ref().and_then(|dhcp| dhcp.address.parse().ok());
    let own =
        || case.known.as_deref().and_then(MachineView::address).or(question.subject.address());
    let asked_from = given.or_else(own).or_else(|| case.somewhere());
    pb::ExplainBootResponse {
        time: Some(now.into()),
        boot: target(&decision.boot).into(),
        fact: decision.fact.to_string(),
        dhcp,
        script: Some(script(&case, asked_from, holder)),
        inputs: Some(decision_inputs::of(&case)),
    }
}

/// What DHCP answers the request, where there is one.
fn dhcp(
    case: &Case<'_>,
    lent: Result<Lent, DropReason>,
    offer: BootOffer,
) -> Option<pb::DhcpReply> {
    let request = case.request.as_ref()?;
    let boot_offered = offer == BootOffer::Offered;
    let offer = if case.class == ClientClass::IpxeRom {
        case.link_state.would_chainload(request, offer, case.instant)
    } else {
        offer
    };
    let reply = lent.and_then(|lent| {
        let (reservation, mode) = lent.terms(case.record(), case.link.mode);
        let is_withheld = case.withheld().is_some() && !matches!(lent, Lent::Address(_));
        dhcp::reply(request, ReplyInputs { link: case.link, mode, reservation, offer, is_withheld })
    });
    Some(match reply {
        Err(reason) => pb::DhcpReply { drop_reason: reason.to_string(), ..Default::default() },
        Ok(reply) => {
            let options = &reply.packet.options;
            let text = |code| Some(String::from_utf8_lossy(options.get(code)?).into_owned());
            let given = |address: Ipv4Addr| {
                if address.is_unspecified() { String::new() } else { address.to_string() }
            };
            pb::DhcpReply {
                r#type: reply_type(&reply).into(),
                drop_reason: String::new(),
                address: given(reply.packet.yiaddr),
                next_server: given(reply.packet.siaddr),
                boot_file: text(code::BOOT_FILE_NAME).unwrap_or_default(),
                boot_offered: boot_offered && reply.no_loader.is_none(),
                no_loader: reply.no_loader.unwrap_or_default().into_iter().map(u32::from).collect(),
            }
        }
    })
}

/// What a request for a script from `source` is answered, which is lent to `holder` by then.
fn script(case: &Case<'_>, source: Option<IpAddr>, holder: Option<Mac>) -> pb::ScriptReply {
    let Case { boots, now, .. } = *case;
    // DHCP names the interface in the record, whoever asks.
    let mac = case.known.as_ref().map(|known| known.mac).or(case.mac);
    let path = mac.map_or_else(String::new, |mac| format!("/{}", mac.dashed()));
    let url = format!("{}{path}/auto.ipxe", boots.site().base_url());
    let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let request = ScriptRequest { leased_to: holder, ..ScriptRequest::new(mac, source) };
    match boots.respond(&request, now).reply {
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
        BootTarget::Later { .. } => pb::BootTarget::Later,
    }
}

#[cfg(test)]
mod tests;
