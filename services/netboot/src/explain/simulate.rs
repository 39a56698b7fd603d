//! A simulated request and its response.

use std::net::IpAddr;
use std::sync::Arc;

use dhcp::{Link, Request};
use tinwright::netboot::v1::ClientClass;

use super::request::{self, SimulatedRelay};
use super::{BootQuestion, Target};
use crate::Mac;
use crate::allocation::{Applicant, Timestamps};
use crate::dhcp_server::{Response, View, respond};
use crate::machine_view::MachineView;

/// A simulated request, the machine that sends it, and the response.
pub(super) struct Simulation<'a> {
    pub(super) view: &'a View,
    pub(super) now: Timestamps,
    /// MAC of the interface that sends the request. None if neither a record nor the question has it.
    pub(super) mac: Option<Mac>,
    /// The machine that sends the request. None if it has no record.
    pub(super) machine: Option<Arc<MachineView>>,
    /// True if the machine is identified by its switch port and not by its MAC.
    pub(super) by_port: bool,
    /// None if there is no MAC.
    pub(super) request: Option<Request>,
    /// None if there is no request.
    pub(super) response: Option<Response>,
}

impl<'a> Simulation<'a> {
    /// Builds the request that `question` describes, and computes the response with the state in `view`.
    pub(super) fn run(question: &BootQuestion, view: &'a View, now: Timestamps) -> Self {
        let View { scripts, link, .. } = view;
        let named = question.target.find(scripts, now.wall);
        let mac = match (&named, &question.target) {
            (Some(machine), _) => Some(machine.mac),
            (None, Target::Mac(mac)) => Some(*mac),
            (None, Target::Address(address)) => scripts.holder(*address, now.wall),
            (None, Target::Hardware(_) | Target::Hostname(_)) => None,
        };
        let recorded = || recorded_relay(named.as_deref()?, link);
        let relay = question.relay.clone().or_else(recorded);
        let request = |machine: Option<&MachineView>| {
            let processor = machine.map_or("", |machine| &machine.hardware.architecture);
            let direct = request::discover(mac?, question.class, question.architecture, processor);
            let packet = match &relay {
                Some(relay) => relay.forward(direct),
                None => direct,
            };
            let received = request::received(&packet);
            let request = Request::new(packet, received, link)?;
            // Simulated iPXE is this site's loader, not a NIC's ROM: it gets no further loader.
            let is_site_build = question.class == ClientClass::Ipxe;
            Some(Request { is_site_build, ..request })
        };
        let by_port = named.is_none();
        let machine = named.or_else(|| view.machine(&request(None)?));
        let by_port = by_port && machine.is_some();
        let request = request(machine.as_deref());
        let response =
            request.as_ref().map(|request| respond(view, machine.as_deref(), request, now));
        Self { view, now, mac, machine, by_port, request, response }
    }

    /// Returns the MAC in the machine's record; without a record, the MAC of the request.
    pub(super) fn record_mac(&self) -> Option<Mac> {
        self.machine.as_ref().map(|machine| machine.mac).or(self.mac)
    }

    /// Returns the allocator's input for the request.
    pub(super) fn applicant(&self) -> Option<Applicant<'_>> {
        let record = self.machine.as_deref().map(MachineView::reservation);
        Some(Applicant { request: self.request.as_ref()?, record, link: &self.view.link })
    }

    /// Returns the network address of the client's pool. It stands for the client's address, which is not known here if
    /// another server assigns it.
    pub(super) fn pool_address(&self) -> Option<IpAddr> {
        let allocator = self.view.scripts.allocator.as_deref()?;
        let (subnet, _) = allocator.pool(self.applicant()?, self.now.wall)?;
        Some(subnet.network.addr().into())
    }
}

/// Returns the relay of the switch port in the machine's record.
fn recorded_relay(machine: &MachineView, link: &Link) -> Option<SimulatedRelay> {
    let record = machine.reservation();
    SimulatedRelay::of(record.port.as_ref()?, record.address, link)
}
