//! The response to a request: its reply, and the changes that go with it. Reads the view and changes nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dhcp::{
    BootOffer, ClientClass, DropReason, Link, MessageType, Mode, Reply, ReplyInputs, Request,
    Reservation,
};
use fleet::Freshness;

use crate::Mac;
use crate::allocation::{Allocation, AllocationEffects, Applicant, Timestamps};
use crate::bootscripts::BootScripts;
use crate::decision::Decision;
use crate::dhcp_server::link_state::LinkState;
use crate::leases::Claim;
use crate::machine_view::MachineView;
use crate::pool::Unknown;
use crate::timeline::BootStep;
use tinwright::netboot::v1::BootEventKind as Kind;

/// Everything that requests on one link are answered from.
#[derive(Clone, Debug)]
pub struct View {
    /// Boot decisions, records and pools.
    pub scripts: Arc<BootScripts>,
    /// The link's settings.
    pub link: Arc<Link>,
    /// The state of its clients.
    pub link_state: Arc<LinkState>,
}

impl View {
    /// Returns the machine that sent `request`: by its MAC, else by its switch port.
    pub fn machine(&self, request: &Request) -> Option<Arc<MachineView>> {
        let index = &self.scripts.index;
        let by_port = || index.by_port(&request.relayed(&self.link));
        index.by_mac(Mac(request.mac)).or_else(by_port)
    }

    /// True if `address` is in a network of the link.
    pub fn has(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        self.link.networks.iter().any(|network| network.contains(&address))
    }
}

/// A reply, or the reason why there is none, and what follows from it.
#[derive(Debug)]
pub struct Response {
    /// The reply.
    pub reply: Result<Reply, DropReason>,
    /// The boot decision.
    pub decision: Decision,
    /// True if a pool address was allocated.
    pub is_allocated: bool,
    /// The changes: the server applies them, a simulation discards them.
    pub effects: Effects,
}

/// The changes that go with a reply.
#[derive(Debug, Default)]
pub struct Effects {
    /// The changes of the allocation.
    pub allocation: AllocationEffects,
    /// The decision about a loader for iPXE, to be recorded.
    pub loader: Option<bool>,
    /// The SMBIOS UUID that the machine's firmware sent.
    pub uuid: Option<[u8; 16]>,
    /// True if a machine with a workflow has begun a new boot.
    pub begins_boot: bool,
    /// True if iPXE is answered, and will solicit an IPv6 router.
    pub solicits_router: bool,
    /// The steps for the boot's timeline.
    pub boot_steps: Vec<BootStep>,
    /// The lease to be committed before the reply is sent.
    pub claim: Option<Claim>,
}

/// Answers `request` of `machine` from `view`.
pub fn respond(
    view: &View,
    machine: Option<&MachineView>,
    request: &Request,
    now: Timestamps,
) -> Response {
    let View { scripts, link, .. } = view;
    if request.is_infiniband() {
        return refuse_infiniband(view, machine, request);
    }
    let (record, mut effects) = (machine.map(|machine| &machine.reservation), Effects::default());
    let applicant = Applicant { request, record, link };
    let allocation = match scripts.allocator.as_deref() {
        Some(allocator) => allocator.allocate(applicant, &mut effects.allocation, now),
        None => Ok(Allocation::Unallocated),
    };
    let allocated = allocation.as_ref().unwrap_or(&Allocation::Unallocated);
    // Without a record, only these policies of a subnet allocate anything.
    let subnet = match allocated {
        Allocation::Unallocated => None,
        Allocation::Address(_) => Some(Unknown::Enrol),
        Allocation::BootOnly => Some(Unknown::Generic),
    };
    let decision = scripts.decision(machine, scripts.index.feed(), subnet);
    let is_allocated = matches!(allocated, Allocation::Address(_));
    let mut offer = decision.offer();
    let (reservation, mode) = match allocated {
        Allocation::Unallocated => (record, link.mode),
        Allocation::Address(own) => (Some(&**own), link.mode),
        Allocation::BootOnly => (record, Mode::AutoProxy),
    };
    if let Err(reason) = allocation {
        return Response { reply: Err(reason), decision, is_allocated, effects };
    }
    if offer == BootOffer::Offered && !request.is_site_build {
        let grants = view.link_state.grants.as_ref();
        effects.loader = grants.and_then(|grants| grants.decide(request, now.monotonic));
    }
    if effects.loader == Some(true) {
        offer = BootOffer::Chainload;
    }
    let declined_age = || view.link_state.declined_age(record, now.monotonic);
    let is_withheld = !is_allocated && declined_age().is_some();
    let reply = dhcp::reply(request, ReplyInputs { link, mode, reservation, offer, is_withheld });
    effects.uuid = machine.and_then(|_| request.uuid());
    effects.begins_boot = machine.is_some_and(|machine| begins_boot(view, machine, request));
    effects.boot_steps = boot_steps(request, &reply, &decision);
    if let Ok(reply) = &reply {
        effects.solicits_router = matches!(request.class, ClientClass::Ipxe { .. });
        effects.claim = reservation.and_then(|own| claim(request, link, reply, own));
    }
    Response { reply, decision, is_allocated, effects }
}

/// Returns the response to an InfiniBand client, which is reported and not served: nothing is
/// recorded of it but that it asked.
fn refuse_infiniband(view: &View, machine: Option<&MachineView>, request: &Request) -> Response {
    let View { scripts, link, .. } = view;
    let decision = scripts.decision(machine, scripts.index.feed(), None);
    let reservation = machine.map(|machine| &machine.reservation);
    let (mode, offer) = (link.mode, decision.offer());
    let inputs = ReplyInputs { link, mode, reservation, offer, is_withheld: false };
    let reply = dhcp::reply(request, inputs);
    let is_refused = reply.as_ref().err() == Some(&DropReason::Infiniband);
    let mut effects = Effects::default();
    effects.allocation.is_unknown = is_refused && machine.is_none() && scripts.index.is_synced();
    effects.boot_steps = boot_steps(request, &reply, &decision);
    Response { reply, decision, is_allocated: false, effects }
}

/// True if `request` begins a boot that a workflow may wait for. While feeds are stale, there may be a workflow that is not
/// known here.
fn begins_boot(view: &View, machine: &MachineView, request: &Request) -> bool {
    let may_wait = || !machine.workflows.is_empty() || view.scripts.index.feed() != Freshness::Live;
    request.class.boots() && request.packet.kind() == Some(MessageType::Discover) && may_wait()
}

/// Returns the lease to be committed before `reply` is sent.
fn claim(request: &Request, link: &Link, reply: &Reply, own: &Reservation) -> Option<Claim> {
    let (pool, address) = (own.pool?, reply.packet.yiaddr);
    let assigns = reply.packet.kind() == Some(MessageType::Ack) && !address.is_unspecified();
    let here = own.port.as_ref().is_some_and(|port| port.matches(&request.relayed(link)));
    // A renewal is unicast to the server, past every relay (RFC 2131 section 4.3.2).
    let renews = request.relay().is_none() && request.client_address().is_some();
    let at_port = (!renews).then_some(here);
    let duration = Duration::from_secs(pool.lease_seconds.into());
    assigns.then_some(Claim { address, mac: Mac(request.mac), duration, at_port })
}

/// Returns the steps for the boot's timeline: of firmware and loaders, not of installed systems.
fn boot_steps(
    request: &Request,
    reply: &Result<Reply, DropReason>,
    decision: &Decision,
) -> Vec<BootStep> {
    let class = request.class;
    let discovers = request.packet.kind() == Some(MessageType::Discover) && class.boots();
    match reply {
        Err(DropReason::Declined(address)) => {
            vec![BootStep::new(Kind::Declined, address.to_string())]
        }
        Err(DropReason::Unknown) if discovers => {
            vec![BootStep::request(Kind::UnknownMachine, class)]
        }
        Err(reason) if discovers => {
            vec![
                BootStep::request(Kind::DhcpDiscover, class),
                BootStep::new(Kind::GateRefused, reason.to_string()),
            ]
        }
        Ok(reply) if discovers => {
            let step = BootStep::request(Kind::DhcpDiscover, class);
            vec![step.with_refusal(reply.boot.refusal(decision.fact))]
        }
        Ok(reply) if class.boots() && reply.packet.kind() == Some(MessageType::Ack) => {
            vec![match reply.boot.refusal(decision.fact) {
                None => BootStep::ack(class, &reply.boot_file_label()),
                refusal => BootStep::request(Kind::DhcpAck, class).with_refusal(refusal),
            }]
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}
