//! A request that is asked about, and what is known of the machine that would send it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::request::{self, Relay};
use super::{ClientClass, Place, Question, Subject};
use crate::Mac;
use crate::bootscripts::BootScripts;
use crate::dhcp_server::link_state::LinkState;
use crate::lending::{Asked, Lent};
use crate::machine_view::MachineView;
use dhcp::{DropReason, Link, Request, Reservation};

/// The request, and all that bears on it.
pub(super) struct Case<'a> {
    pub(super) boots: &'a BootScripts,
    pub(super) link: &'a Link,
    pub(super) link_state: &'a LinkState,
    pub(super) now: SystemTime,
    /// The same by the clock that is never set.
    pub(super) instant: Instant,
    pub(super) class: ClientClass,
    /// The interface that asks, as far as that can be said.
    pub(super) mac: Option<Mac>,
    /// None where nobody can be named who would send it.
    pub(super) request: Option<Request>,
    /// The machine.
    pub(super) known: Option<Arc<MachineView>>,
    /// Whether it is known by where it is plugged in, and not by its MAC.
    pub(super) by_port: bool,
}

impl<'a> Case<'a> {
    /// What `question` is about, at `place` as of `now`.
    pub(super) fn of(question: &Question, place: &'a Place, now: SystemTime) -> Self {
        let Place { boots, link, link_state } = place;
        let named = question.subject.find(boots, now);
        let mac = match (&named, &question.subject) {
            (Some(known), _) => Some(known.mac),
            (None, Subject::Mac(mac)) => Some(*mac),
            (None, Subject::Address(address)) => boots.holder(*address, now),
            (None, Subject::Hardware(_) | Subject::Hostname(_)) => None,
        };
        let relay = question.relay.clone().or_else(|| recorded(named.as_ref()?, link));
        let class = question.class;
        let ask = |known: Option<&MachineView>| {
            let processor = known.map_or("", |known| &known.hardware.architecture);
            let direct = request::discover(mac?, class, question.architecture, processor);
            let packet = match &relay {
                Some(relay) => relay.pass_on(direct),
                None => direct,
            };
            let received = request::received(&packet);
            Request::new(packet, received, link)
        };
        let by_mac = named.is_some();
        let known = named.or_else(|| boots.index().by_port(&ask(None)?.relayed(link)));
        let request = ask(known.as_deref());
        let by_port = known.is_some() && !by_mac;
        let instant = Instant::now();
        Self { boots, link, link_state, now, instant, class, mac, request, known, by_port }
    }

    /// What the machine's record says of the interface.
    pub(super) fn record(&self) -> Option<&Reservation> {
        self.known.as_deref().map(MachineView::reservation)
    }

    /// The time since its reserved address was declined, if it is not offered yet.
    pub(super) fn withheld(&self) -> Option<Duration> {
        self.link_state.withheld(self.record()?, self.instant)
    }

    /// The request, as it is asked what it is lent.
    pub(super) fn asked(&self) -> Option<Asked<'_>> {
        let request = self.request.as_ref()?;
        Some(Asked { request, record: self.record(), link: self.link })
    }

    /// An address in the network where somebody else gives it one.
    pub(super) fn somewhere(&self) -> Option<IpAddr> {
        let (subnet, _) = self.boots.lending()?.pool(self.asked()?, self.now)?;
        Some(subnet.network.addr().into())
    }

    /// What it is lent, or why it is not answered.
    pub(super) fn lent(&self) -> Result<Lent, DropReason> {
        match (self.boots.lending(), self.asked()) {
            (Some(lending), Some(asked)) => lending.would_lend(asked, self.now),
            (None, _) | (_, None) => Ok(Lent::Nothing),
        }
    }
}

/// The relay of the port that is in the record.
fn recorded(known: &MachineView, link: &Link) -> Option<Relay> {
    let record = known.reservation();
    Relay::of(record.port.as_ref()?, record.address, link)
}
