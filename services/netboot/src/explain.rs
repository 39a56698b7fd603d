//! What a machine would be answered if it asked now, and why.
//!
//! Nothing is decided here: a request is made as the client would make it, and given to the very functions that answer
//! machines. What they looked at is told beside their answer.

mod request;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tinwright::netboot::v1 as pb;

pub use request::ClientClass;

use crate::Mac;
use crate::boots::{Asked, Boots};
use crate::decision::{Boot, Feed, Machine, NoInstance, Script};
use crate::dhcp::options::code;
use crate::dhcp::site::Mode;
use crate::dhcp::{self, BootOffer, Link, Packet, Port, Received};
use crate::index::{Index, Known};

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
    /// What `index` knows of it.
    pub fn find(&self, index: &Index) -> Option<Known> {
        match self {
            Self::Hardware(id) => index.by_id(id),
            Self::Mac(mac) => index.by_mac(*mac),
            Self::Address(address) => index.by_address(*address),
            Self::Hostname(name) => index.by_name(name),
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
}

/// A link, and what answers on it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Scripts for those who ask there.
    pub boots: Arc<Boots>,
    /// What DHCP tells there.
    pub link: Arc<Link>,
}

impl Place {
    /// Whether `address` is known to be on it.
    pub fn has(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        self.link.networks.iter().any(|network| network.contains(address))
    }
}

/// The answers to `question` on `link` at `now`.
pub fn explain(
    question: &Question,
    boots: &Boots,
    link: &Link,
    now: SystemTime,
) -> pb::ExplainBootResponse {
    let index = boots.index();
    let known = question.subject.find(index);
    let decision = boots.decision(known.as_ref(), index.feed(), now);
    let mac = match (&known, &question.subject) {
        (Some(known), _) => Some(known.mac),
        (None, Subject::Mac(mac)) => Some(*mac),
        (None, Subject::Hardware(_) | Subject::Address(_) | Subject::Hostname(_)) => None,
    };
    let request = mac.map(|mac| {
        let architecture = known.as_ref().map_or("", |known| &known.hardware.architecture);
        request::discover(mac, question.class, question.architecture, architecture)
    });
    let asked_from = known.as_ref().and_then(Known::address).or(match question.subject {
        Subject::Address(address) => Some(address),
        Subject::Hardware(_) | Subject::Mac(_) | Subject::Hostname(_) => None,
    });
    pb::ExplainBootResponse {
        time: Some(now.into()),
        boot: name(&decision.boot).into(),
        fact: decision.fact.to_string(),
        dhcp: request.map(|asked| dhcp(&asked, known.as_ref(), link, decision.offer())),
        script: Some(script(boots, mac, asked_from, now)),
        looked_at: Some(looked_at(boots, known.as_ref(), mac, link)),
    }
}

/// What DHCP answers `request`.
fn dhcp(request: &Packet, known: Option<&Known>, link: &Link, offer: BootOffer) -> pb::DhcpAnswer {
    let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let received = Received { source, broadcast: true, port: Port::Dhcp };
    let reservation = known.and_then(Known::reservation);
    let boot_offered = offer == BootOffer::Offered;
    let now = Instant::now();
    match dhcp::answer(request, received, reservation.as_ref(), link, offer, now) {
        Err(silence) => pb::DhcpAnswer { silence: silence.to_string(), ..Default::default() },
        Ok(reply) => {
            let options = &reply.packet.options;
            let text = |code| Some(String::from_utf8_lossy(options.get(code)?).into_owned());
            let given = |address: Ipv4Addr| {
                if address.is_unspecified() { String::new() } else { address.to_string() }
            };
            let kind = reply.packet.kind().map_or("", dhcp::server::label);
            pb::DhcpAnswer {
                answer: kind.into(),
                silence: String::new(),
                address: given(reply.packet.yiaddr),
                next_server: given(reply.packet.siaddr),
                boot_file: text(code::BOOT_FILE_NAME).unwrap_or_default(),
                boot_offered: boot_offered && reply.no_loader.is_none(),
                no_loader: reply.no_loader.unwrap_or_default().into_iter().map(u32::from).collect(),
            }
        }
    }
}

/// What a request for a script is answered.
fn script(
    boots: &Boots,
    mac: Option<Mac>,
    source: Option<IpAddr>,
    now: SystemTime,
) -> pb::ScriptAnswer {
    let path = mac.map_or_else(String::new, |mac| format!("/{}", mac.dashed()));
    let url = format!("{}{path}/auto.ipxe", boots.site().base_url());
    match boots.script_for(&Asked::new(mac, source.unwrap_or(Ipv4Addr::UNSPECIFIED.into())), now) {
        Ok(served) => {
            pb::ScriptAnswer { status: 200, kind: served.kind.into(), refusal: String::new(), url }
        }
        Err(refusal) => pb::ScriptAnswer {
            status: refusal.status().as_u16().into(),
            kind: String::new(),
            refusal: refusal.to_string(),
            url,
        },
    }
}

fn looked_at(boots: &Boots, known: Option<&Known>, mac: Option<Mac>, link: &Link) -> pb::LookedAt {
    let (index, policy) = (boots.index(), boots.site().policy);
    let site = pb::LookedAt {
        feeds_live: index.feed() == Feed::Live,
        cut_feeds: index.cut().into_iter().map(str::to_owned).collect(),
        mac: mac.map_or_else(String::new, |mac| mac.to_string()),
        policy_no_instance: match policy.no_instance {
            NoInstance::Worker => "worker".into(),
            NoInstance::LocalDisk => "local_disk".into(),
            NoInstance::Shell => "shell".into(),
        },
        policy_boot_unknown: policy.boot_unknown,
        dhcp_mode: mode(link.mode).into(),
        ..pb::LookedAt::default()
    };
    let Some(known) = known else { return site };
    let instance = known.instance.as_deref();
    let gate = instance.and_then(|instance| instance.boot_gate.as_ref());
    let site = pb::LookedAt {
        hardware_id: known.hardware.id.clone(),
        hardware_name: known.hardware.name.clone(),
        address: known.address().map_or_else(String::new, |address| address.to_string()),
        instance_id: instance.map_or_else(String::new, |instance| instance.id.clone()),
        instance_state: instance.map_or_else(String::new, |instance| instance.state.clone()),
        waiting_workflow_ids: index.waiting(&known.hardware.id),
        gate: gate.map_or("", |gate| if gate.open { "open" } else { "closed" }).into(),
        ..site
    };
    match known.machine() {
        Some(machine) => decided_by(machine, site),
        None => site,
    }
}

/// The facts as the decision has them.
fn decided_by(machine: Machine, site: pb::LookedAt) -> pb::LookedAt {
    let Machine { state, netboot, boot_once, instance, worker_wanted: _, forced } = machine;
    let word = |netboot| if netboot { "on" } else { "off" };
    pb::LookedAt {
        hardware_state: state.to_string(),
        allow_pxe: netboot.allow_pxe,
        allow_workflow: netboot.allow_workflow,
        interface_script: brought(netboot.custom.as_ref()),
        boot_once: brought(boot_once.as_ref()),
        instance_script: brought(instance.as_ref().and_then(|instance| instance.custom.as_ref())),
        instance_has_os: instance.is_some_and(|instance| instance.has_os),
        r#override: forced.map_or("", |forced| word(forced.netboot)).into(),
        override_until: forced.and_then(|forced| forced.until).map(Into::into),
        ..site
    }
}

/// Where a script comes from, and not what it says: it may hold secrets.
fn brought(script: Option<&Script>) -> String {
    match script {
        Some(Script::Url(url)) => url.clone(),
        Some(Script::Contents(_)) => "contents".into(),
        None => String::new(),
    }
}

fn name(boot: &Boot) -> &'static str {
    match boot {
        Boot::Worker => "worker",
        Boot::Rescue => "rescue",
        Boot::CustomScript { .. } => "custom_script",
        Boot::LocalDisk => "local_disk",
        Boot::Shell => "shell",
        Boot::Generic => "generic",
        Boot::Refused => "refused",
        Boot::Unknown => "unknown",
        Boot::Later { .. } => "later",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Reservation => "reservation",
        Mode::Proxy => "proxy",
        Mode::AutoProxy => "auto_proxy",
        Mode::Disabled => "disabled",
    }
}

#[cfg(test)]
mod tests;
