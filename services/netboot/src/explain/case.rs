//! A request that is asked about, and what is known of the machine that would send it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::request::{self, Relay};
use super::{ClientClass, Place, Question, Subject};
use crate::Mac;
use crate::bootscripts::BootScripts;
use crate::dhcp::heard::Heard;
use crate::dhcp::relay::{Relayed, relayed};
use crate::dhcp::{Link, Packet, Reservation, Silence};
use crate::index::Known;
use crate::lending::{Asked, Lent};

/// The request, and all that bears on it.
pub(super) struct Case<'a> {
    pub(super) boots: &'a BootScripts,
    pub(super) link: &'a Link,
    pub(super) heard: &'a Heard,
    pub(super) now: SystemTime,
    /// The same by the clock that is never set.
    pub(super) instant: Instant,
    pub(super) class: ClientClass,
    /// The interface that asks, as far as that can be said.
    pub(super) mac: Option<Mac>,
    /// None where nobody can be named who would send it.
    pub(super) request: Option<Packet>,
    /// The machine.
    pub(super) known: Option<Arc<Known>>,
    /// What its record says of the interface, and what was heard of the address there.
    record: Option<Reservation>,
    /// Whether it is known by where it is plugged in, and not by its MAC.
    pub(super) by_port: bool,
}

impl<'a> Case<'a> {
    /// What `question` is about, at `place` as of `now`.
    pub(super) fn of(question: &Question, place: &'a Place, now: SystemTime) -> Self {
        let Place { boots, link, heard } = place;
        let named = question.subject.find(boots, now);
        let mac = match (&named, &question.subject) {
            (Some(known), _) => Some(known.mac),
            (None, Subject::Mac(mac)) => Some(*mac),
            (None, Subject::Address(address)) => boots.holder(*address, now),
            (None, Subject::Hardware(_) | Subject::Hostname(_)) => None,
        };
        let relay = question.relay.clone().or_else(|| recorded(named.as_ref()?, link));
        let class = question.class;
        let ask = |known: Option<&Known>| {
            let processor = known.map_or("", |known| &known.hardware.architecture);
            let direct = request::discover(mac?, class, question.architecture, processor);
            Some(match &relay {
                Some(relay) => relay.pass_on(direct),
                None => direct,
            })
        };
        let by_mac = named.is_some();
        let known = named.or_else(|| boots.index().by_port(&said(&ask(None)?, link)));
        let request = ask(known.as_deref());
        let by_port = known.is_some() && !by_mac;
        let record = known.as_ref().map(|known| heard.record(known).into_owned());
        let instant = Instant::now();
        Self { boots, link, heard, now, instant, class, mac, request, known, record, by_port }
    }

    /// What the machine's record says of the interface.
    pub(super) fn record(&self) -> Option<&Reservation> {
        self.record.as_ref()
    }

    /// The request, as it is asked what it is lent.
    pub(super) fn asked(&self) -> Option<Asked<'_>> {
        let request = self.request.as_ref()?;
        let (mac, record, link) = (self.mac?, self.record(), self.link);
        Some(Asked { request, mac, relayed: said(request, link), record, link })
    }

    /// An address in the network where somebody else gives it one.
    pub(super) fn somewhere(&self) -> Option<IpAddr> {
        let (subnet, _) = self.boots.lending()?.pool(self.asked()?, self.now)?;
        Some(subnet.network.address.into())
    }

    /// What it is lent, or why it is not answered.
    pub(super) fn lent(&self) -> Result<Lent, Silence> {
        match (self.boots.lending(), self.asked()) {
            (Some(lending), Some(asked)) => lending.would_lend(asked, self.now),
            (None, _) | (_, None) => Ok(Lent::Nothing),
        }
    }
}

/// The relay of the port that is in the record.
fn recorded(known: &Known, link: &Link) -> Option<Relay> {
    let record = known.reservation();
    Relay::of(record.port.as_ref()?, record.address, link)
}

/// What a relay that we believe says in `request`.
fn said<'a>(request: &'a Packet, link: &Link) -> Relayed<'a> {
    relayed(request, *request::received(request).source.ip(), link)
}
