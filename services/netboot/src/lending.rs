//! Which pool address a request is answered with: what DHCP asks, before it answers a machine that has none of its own.
//!
//! A machine whose record reserves an address in the client's subnet is none of the pool's business. Everybody else is
//! given a reservation made up on the spot, so that one set of rules says what is acknowledged and what refused.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::Mac;
use dhcp::options::code;
use dhcp::{DropReason, Link, MessageType, Mode, PoolTerms, Request, Reservation};
use ipnet::Ipv4Net;

use crate::leases::Leases;
use crate::machine_view::Index;
use crate::metrics::Metrics;
use crate::pool::{Lease, Subnet, Unknown};
use crate::unknown::{Machine, Machines, Rate};

/// How often it is counted what is free.
const TOLD: Duration = Duration::from_secs(30);

/// What is lent, and whom it was lent to.
#[derive(Debug)]
pub struct Lending {
    subnets: Vec<Subnet>,
    leases: Leases,
    index: Arc<Index>,
    unknown: Arc<Machines>,
    enrolled: Rate,
}

/// A request, and what bears on what it is lent.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The request.
    pub request: &'a Request,
    /// The record of the machine, if there is one.
    pub record: Option<&'a Reservation>,
    /// The link it came by.
    pub link: &'a Link,
}

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lent {
    /// By its record, or by nobody.
    Nothing,
    /// As if this were its record.
    Address(Box<Reservation>),
    /// With where to boot from and no address, though there is no record.
    BootOnly,
}

impl Lent {
    /// The reservation and the mode that a request is answered with; `record` is the machine's and `mode` the link's.
    pub fn terms<'a>(
        &'a self,
        record: Option<&'a Reservation>,
        mode: Mode,
    ) -> (Option<&'a Reservation>, Mode) {
        match self {
            Self::Nothing => (record, mode),
            Self::Address(lent) => (Some(lent), mode),
            Self::BootOnly => (record, Mode::AutoProxy),
        }
    }
}

/// What becomes of an address that is chosen for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It is kept for the client for a minute.
    Kept,
    /// Nothing: somebody only asks.
    Told,
}

impl Lending {
    /// Lends in `subnets`, remembering in `leases`; `index` says what is reserved.
    pub fn new(
        subnets: Vec<Subnet>,
        leases: Leases,
        index: Arc<Index>,
        unknown: Arc<Machines>,
    ) -> Self {
        Self { subnets, leases, index, unknown, enrolled: Rate::default() }
    }

    /// The leases.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Counts what is free and who is unknown, again and again; an error in the log where nothing is free.
    pub async fn tell(&self, metrics: Metrics) {
        let mut tick = tokio::time::interval(TOLD);
        loop {
            tick.tick().await;
            for subnet in self.subnets.iter().filter(|subnet| !subnet.is_empty()) {
                let name = subnet.network.to_string();
                let free = self.leases.free(subnet, SystemTime::now());
                if free == 0 {
                    tracing::error!(subnet = name, "every address of the pool is taken");
                }
                metrics.free(name, free);
            }
            metrics.unknown(self.unknown.len());
        }
    }

    /// Whose `source` is, by its lease.
    pub fn holder(&self, source: IpAddr, now: SystemTime) -> Option<Mac> {
        match source {
            IpAddr::V4(source) => self.leases.holder(source, now),
            IpAddr::V6(_) => None,
        }
    }

    /// Whether a machine without a record that asks from `source`, which is lent to `holder`, and says it is `named`, is
    /// given the generic script. One that is enrolled asks from the address that it was lent.
    pub fn boots_unknown(&self, named: Option<Mac>, source: IpAddr, holder: Option<Mac>) -> bool {
        let IpAddr::V4(address) = source else { return false };
        match self.subnet(address).map(|subnet| subnet.unknown) {
            Some(Unknown::Generic) => true,
            Some(Unknown::Enrol) => {
                holder.is_some_and(|holder| named.is_none_or(|named| named == holder))
            }
            Some(Unknown::Ignore | Unknown::Report) | None => false,
        }
    }

    /// What a request is lent, or why it is not answered.
    pub fn lend(&self, asked: Asked<'_>, now: SystemTime) -> Result<Lent, DropReason> {
        let lends = asked.link.mode == Mode::Reservation;
        if lends && asked.record.is_none() && self.index.is_told() {
            self.note(asked, self.subnet_of(asked), now);
        }
        self.judge(asked, Choice::Kept, now)
    }

    /// The same as a question: nothing is noted, and nothing kept for anybody.
    pub fn would_lend(&self, asked: Asked<'_>, now: SystemTime) -> Result<Lent, DropReason> {
        self.judge(asked, Choice::Told, now)
    }

    /// Where the client asks from, and what it has there or had last.
    pub fn pool(
        &self,
        asked: Asked<'_>,
        now: SystemTime,
    ) -> Option<(&Subnet, Option<(Ipv4Addr, Lease)>)> {
        let subnet = self.subnet_of(asked)?;
        Some((subnet, self.leases.of(subnet, Mac(asked.request.mac), now)))
    }

    fn judge(&self, asked: Asked<'_>, choice: Choice, now: SystemTime) -> Result<Lent, DropReason> {
        if asked.link.mode != Mode::Reservation {
            return Ok(Lent::Nothing);
        }
        let Some(subnet) = self.subnet_of(asked) else { return Ok(Lent::Nothing) };
        let own = asked.record.and_then(|record| record.address);
        let elsewhere = asked.record.is_some_and(|record| record.disabled || record.proxy);
        if elsewhere || own.is_some_and(|own| subnet.network.contains(&own.addr())) {
            return Ok(Lent::Nothing);
        }
        match subnet.unknown {
            _ if asked.record.is_some() => {}
            Unknown::Enrol => {}
            Unknown::Generic => return Ok(Lent::BootOnly),
            Unknown::Ignore | Unknown::Report => return Ok(Lent::Nothing),
        }
        let had = self.leases.of(subnet, Mac(asked.request.mac), now);
        // Who reads the leases or the records for the first time does not know yet what is taken.
        let renews = matches!(had, Some((_, Lease::Bound { .. })));
        if !self.leases.is_ready() || !(self.index.is_told() || renews) {
            return Err(DropReason::NotReady);
        }
        let address = self.address(asked, subnet, had, choice, now)?;
        Ok(Lent::Address(Box::new(reservation(asked, subnet, address))))
    }

    /// The address of `subnet` that the client has, is to have or may have.
    fn address(
        &self,
        asked: Asked<'_>,
        subnet: &Subnet,
        had: Option<(Ipv4Addr, Lease)>,
        choice: Choice,
        now: SystemTime,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let Asked { request, link, .. } = asked;
        let (mac, options) = (Mac(request.mac), &request.packet.options);
        let wanted = options.address(code::REQUESTED_ADDRESS);
        let reserved = |address: Ipv4Addr| self.index.is_reserved(address.into());
        let usable = |address| address != link.id && !reserved(address);
        let declined = |lease| matches!(lease, Lease::Declined { .. });
        let had = had.filter(|(address, lease)| usable(*address) && !declined(*lease));
        let enrols = had.is_none() && asked.record.is_none() && choice == Choice::Kept;
        let admitted = || if enrols { self.enrolled.admits(now) } else { true };
        match request.kind() {
            Some(MessageType::Discover) => {
                if !admitted() {
                    return Err(DropReason::TooMany);
                }
                let chosen = match choice {
                    Choice::Kept => self.leases.offer(subnet, mac, wanted, usable, now),
                    Choice::Told => self.leases.choose(subnet, mac, wanted, usable, now),
                };
                chosen.map(Some).ok_or(DropReason::Exhausted)
            }
            // What we offered before we were started again is still good, if nobody has it.
            Some(MessageType::Request)
                if had.is_none() && options.get(code::SERVER_IDENTIFIER).is_some() =>
            {
                let free = |address| self.leases.at(address, now).is_none_or(Lease::leaves_free);
                let own = wanted.filter(|own| subnet.lends(*own) && usable(*own) && free(*own));
                if own.is_none() || admitted() { Ok(own) } else { Err(DropReason::TooMany) }
            }
            _ => Ok(had.map(|(address, _)| address)),
        }
    }

    /// The subnet that the client is in.
    fn subnet_of(&self, asked: Asked<'_>) -> Option<&Subnet> {
        let Asked { request, link, .. } = asked;
        let selected = request.relayed(link).link;
        self.subnet(selected.or(request.relay()).unwrap_or(link.id))
    }

    fn subnet(&self, there: Ipv4Addr) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.network.contains(&there))
    }

    /// Remembers a machine without a record.
    fn note(&self, asked: Asked<'_>, subnet: Option<&Subnet>, now: SystemTime) {
        let Asked { request, link, .. } = asked;
        let mac = Mac(request.mac);
        if !matches!(request.kind(), Some(MessageType::Discover | MessageType::Request)) {
            return;
        }
        let vendor_class = request.packet.options.get(code::VENDOR_CLASS).unwrap_or_default();
        let machine = Machine {
            mac,
            relay: request.relay(),
            circuit_id: request.relayed(link).circuit_id.unwrap_or_default().to_vec(),
            architectures: request.architectures().collect(),
            vendor_class: String::from_utf8_lossy(vendor_class).into_owned(),
        };
        let tell = self.unknown.note(machine, now);
        if tell && subnet.is_some_and(|subnet| subnet.unknown != Unknown::Ignore) {
            tracing::info!(%mac, relay = %request.packet.giaddr, "a machine without a record asks for an address");
        }
    }
}

/// The reservation of `address`, which may be none, for a client of `subnet`.
fn reservation(asked: Asked<'_>, subnet: &Subnet, address: Option<Ipv4Addr>) -> Reservation {
    let Asked { request, record, link } = asked;
    let requested = request.packet.options.address(code::REQUESTED_ADDRESS);
    let wanted = request.client_address().or(requested);
    let most = u32::try_from(subnet.lease.as_secs()).unwrap_or(u32::MAX);
    let boots = request.class.boots();
    let pool = PoolTerms {
        lease_seconds: if boots { most.min(link.boot_lease_seconds.max(1)) } else { most },
        is_authoritative: record.is_some() || wanted.is_some_and(|wanted| subnet.lends(wanted)),
    };
    let mut lent = record.cloned().unwrap_or_else(|| Reservation::new(request.mac, None));
    let or = |own: &mut Vec<Ipv4Addr>, subnets: &[Ipv4Addr]| {
        if own.is_empty() {
            own.extend(subnets);
        }
    };
    or(&mut lent.name_servers, &subnet.name_servers);
    or(&mut lent.time_servers, &subnet.time_servers);
    if lent.domain.is_empty() {
        lent.domain.clone_from(&subnet.domain);
    }
    Reservation {
        address: address
            .and_then(|address| Ipv4Net::new(address, subnet.network.prefix_len()).ok()),
        gateway: subnet.gateway,
        pool: Some(pool),
        ..lent
    }
}

/// The lease of a reservation that is lent.
pub fn lasts(pool: PoolTerms) -> Duration {
    Duration::from_secs(pool.lease_seconds.into())
}

#[cfg(test)]
pub(crate) mod tests;
