//! Allocation of pool addresses: decides which address a request is answered with.
//!
//! If the machine's record reserves an address in the client's subnet, the client gets that address.
//! Every other client gets a reservation made here, so that one set of rules answers both.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dhcp::options::code;
use dhcp::{DropReason, Link, MessageType, Mode, PoolTerms, Request, Reservation};
use ipnet::Ipv4Net;
use runtime::clock::Clock;
use runtime::rate_limit::{Rate, RateLimiter};
use tinwright::HardwareId;
use tinwright::hardware::v1::UnknownMachine;
use tinwright::hardware::v1::unknown_machine::Reason;

use crate::Mac;
use crate::granted::GrantedAddresses;
use crate::leases::Leases;
use crate::machine_view::Index;
use crate::metrics::{Metrics, gauge};
use crate::pool::{Lease, State, Subnet, Table, Unknown};
use crate::unknown_clients::UnknownClients;

/// The interval at which pool metrics are updated.
const METRICS_INTERVAL: Duration = Duration::from_secs(30);
/// The number of clients without a record that get an address per second: forged MACs must not take the whole pool at once.
const MAX_ENROLMENTS_PER_SECOND: u32 = 20;

/// The same moment on both clocks: monotonic for intervals, wall time for records.
#[derive(Clone, Copy, Debug)]
pub struct Timestamps {
    /// Monotonic time.
    pub monotonic: Instant,
    /// Wall time.
    pub wall: SystemTime,
}

impl From<&Clock> for Timestamps {
    fn from(clock: &Clock) -> Self {
        Self { monotonic: clock.monotonic(), wall: clock.wall() }
    }
}

/// Allocates addresses of the site's subnets.
#[derive(Debug)]
pub struct Allocator {
    subnets: Vec<Subnet>,
    /// The leases.
    pub leases: Leases,
    /// The granted addresses, which are not leased.
    pub grants: GrantedAddresses,
    index: Arc<Index>,
    unknown: Arc<UnknownClients>,
    enrolments: RateLimiter<()>,
}

/// A request, the reservation in its machine's record, and the link that received it.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    /// The request.
    pub request: &'a Request,
    /// The reservation in the machine's record, if it has one.
    pub record: Option<&'a Reservation>,
    /// The link that received the request.
    pub link: &'a Link,
}

/// The result of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// No pool address: the record answers the request, if there is one.
    Unallocated,
    /// This reservation answers the request.
    Address(Box<Reservation>),
    /// A client without a record gets a boot file and no address.
    BootOnly,
}

/// The changes that an allocation requires before its reply is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationEffects {
    /// True if the client has no record and has to be remembered.
    pub is_unknown: bool,
    /// True if the client is enrolled: it takes one token of the rate limit.
    pub enrols: bool,
    /// The address that is offered: it is held for the client for a minute.
    pub offer: Option<Ipv4Addr>,
}

impl Allocator {
    /// Allocates in `subnets` and stores `leases`; addresses that `index` reserves are left out.
    pub fn new(
        subnets: Vec<Subnet>,
        leases: Leases,
        index: Arc<Index>,
        unknown: Arc<UnknownClients>,
    ) -> Self {
        let enrolments = RateLimiter::new(Rate::per_second(MAX_ENROLMENTS_PER_SECOND));
        let grants = GrantedAddresses::default();
        Self { subnets, leases, grants, index, unknown, enrolments }
    }

    /// Returns the networks.
    pub fn subnets(&self) -> &[Subnet] {
        &self.subnets
    }

    /// Updates the metrics of pools and unknown clients repeatedly, and logs an error if a pool is exhausted.
    pub async fn report(&self, metrics: Metrics, clock: Clock) {
        let mut tick = tokio::time::interval(METRICS_INTERVAL);
        loop {
            tick.tick().await;
            for subnet in self.subnets.iter().filter(|subnet| !subnet.is_empty()) {
                let name = subnet.network.to_string();
                let free = self.leases.table(|table| table.free(subnet, clock.wall()));
                if free == 0 {
                    tracing::error!(subnet = name, "pool exhausted: every address is taken");
                }
                metrics.free_addresses.get_or_create(&[("subnet", name)]).set(gauge(free));
            }
            metrics.unknown_clients.set(gauge(self.unknown.count()));
        }
    }

    /// Returns the policy of the subnet of `source` if a machine without a record gets the generic script there. `named` is the MAC in its
    /// request, and `holder` the client that leases `source`: an enrolled machine requests from its leased address.
    pub fn boots_unknown(
        &self,
        named: Option<Mac>,
        source: IpAddr,
        holder: Option<Mac>,
    ) -> Option<Unknown> {
        let policy = self.subnet_with(source)?.unknown;
        let boots = match policy {
            Unknown::Generic => true,
            Unknown::Enrol => {
                holder.is_some_and(|holder| named.is_none_or(|named| named == holder))
            }
            Unknown::Ignore | Unknown::Report => false,
        };
        boots.then_some(policy)
    }

    /// Returns the subnet that has the address `source`.
    pub fn subnet_with(&self, source: IpAddr) -> Option<&Subnet> {
        let IpAddr::V4(address) = source else { return None };
        self.subnet(address)
    }

    /// Returns the client that leases `source` and the network of that, if its subnet enrols machines without a record and the client is
    /// the one that the request names. Otherwise as [`boots_unknown`](Self::boots_unknown).
    pub fn enrols(
        &self,
        named: Option<Mac>,
        source: IpAddr,
        holder: Option<Mac>,
    ) -> Option<(Mac, Ipv4Net)> {
        let IpAddr::V4(address) = source else { return None };
        let subnet = self.subnet(address).filter(|subnet| subnet.unknown == Unknown::Enrol)?;
        let holder = holder.filter(|holder| named.is_none_or(|named| named == *holder))?;
        Some((holder, subnet.network))
    }

    /// Returns the client's subnet, and the address that it has there or had last.
    pub fn pool(
        &self,
        applicant: Applicant<'_>,
        now: SystemTime,
    ) -> Option<(&Subnet, Option<(Ipv4Addr, Lease)>)> {
        let (subnet, mac) = (self.subnet_of(applicant)?, Mac(applicant.request.mac));
        Some((subnet, self.leases.table(|table| table.of(subnet, mac, now))))
    }

    /// Decides the allocation for a request. Changes nothing; `effects` is set even if the request is dropped.
    pub fn allocate(
        &self,
        applicant: Applicant<'_>,
        effects: &mut AllocationEffects,
        now: Timestamps,
    ) -> Result<Allocation, DropReason> {
        let Applicant { request, record, link } = applicant;
        if link.mode != Mode::Reservation {
            return Ok(Allocation::Unallocated);
        }
        let requests =
            matches!(request.packet.kind(), Some(MessageType::Discover | MessageType::Request));
        effects.is_unknown = record.is_none() && requests && self.index.is_synced();
        let Some(subnet) = self.subnet_of(applicant) else { return Ok(Allocation::Unallocated) };
        let own = record.and_then(|record| record.address);
        let elsewhere = record.is_some_and(|record| record.disabled || record.proxy);
        if elsewhere || own.is_some_and(|own| subnet.network.contains(&own.addr())) {
            return Ok(Allocation::Unallocated);
        }
        match subnet.unknown {
            _ if record.is_some() => {}
            Unknown::Enrol => {}
            Unknown::Generic => return Ok(Allocation::BootOnly),
            Unknown::Ignore | Unknown::Report => return Ok(Allocation::Unallocated),
        }
        let address = self.leases.table(|table| {
            let had = table.of(subnet, Mac(request.mac), now.wall);
            // Until leases and records have been read once, it is not known which addresses are taken.
            let renews = had.is_some_and(|(_, lease)| lease.state == State::Bound);
            if !self.leases.is_ready() || !(self.index.is_synced() || renews) {
                return Err(DropReason::NotReady);
            }
            self.address(applicant, subnet, had, table, effects, now)
        })?;
        Ok(Allocation::Address(Box::new(reservation(applicant, subnet, address))))
    }

    /// Selects the address of `subnet` that the client has or is offered.
    fn address(
        &self,
        applicant: Applicant<'_>,
        subnet: &Subnet,
        had: Option<(Ipv4Addr, Lease)>,
        table: &Table,
        effects: &mut AllocationEffects,
        now: Timestamps,
    ) -> Result<Option<Ipv4Addr>, DropReason> {
        let Applicant { request, record, link } = applicant;
        let (mac, options) = (Mac(request.mac), &request.packet.options);
        let wanted = options.address(code::REQUESTED_ADDRESS);
        let reserved = |address: Ipv4Addr| {
            self.index.is_reserved(address.into())
                || self.index.is_of_other_instance(address.into(), mac)
                || self.grants.contains(address)
        };
        let usable = |address| address != link.id && !reserved(address);
        let had = had.filter(|(own, lease)| usable(*own) && lease.state != State::Declined);
        let enrols = had.is_none() && record.is_none();
        // Checked before the search: a forged MAC must not cost a search of a full pool.
        let enrolment_is_exhausted = enrols && self.enrolments.is_exhausted(&(), now.monotonic);
        match request.packet.kind() {
            Some(MessageType::Discover) => {
                if enrolment_is_exhausted {
                    return Err(DropReason::EnrolmentRate);
                }
                effects.enrols = enrols;
                let chosen = table.choose(subnet, mac, wanted, usable, now.wall);
                effects.offer = chosen;
                chosen.map(Some).ok_or(DropReason::PoolExhausted)
            }
            // An offer from before our restart is still valid if nobody has the address.
            Some(MessageType::Request)
                if had.is_none() && options.get(code::SERVER_IDENTIFIER).is_some() =>
            {
                let free = |address| table.state(address, now.wall).is_none_or(Lease::is_over);
                let own =
                    wanted.filter(|own| subnet.pool_contains(*own) && usable(*own) && free(*own));
                if own.is_some() && enrolment_is_exhausted {
                    return Err(DropReason::EnrolmentRate);
                }
                effects.enrols = enrols && own.is_some();
                Ok(own)
            }
            _ => Ok(had.map(|(address, _)| address)),
        }
    }

    /// Makes the changes of an allocation, except [`record_unknown`](Self::record_unknown). [`DropReason::Busy`]: another
    /// request was given the address meanwhile; evaluate the request again.
    pub fn apply(
        &self,
        request: &Request,
        effects: &AllocationEffects,
        now: Timestamps,
    ) -> Result<(), DropReason> {
        if effects.enrols {
            let taken = self.enrolments.take((), now.monotonic);
            taken.map_err(|_| DropReason::EnrolmentRate)?;
        }
        let offer = |own| self.leases.table(|table| table.offer(own, Mac(request.mac), now.wall));
        let offered = effects.offer.is_none_or(offer);
        offered.then_some(()).ok_or(DropReason::Busy)
    }

    /// Returns the client's subnet.
    fn subnet_of(&self, applicant: Applicant<'_>) -> Option<&Subnet> {
        let Applicant { request, link, .. } = applicant;
        let selected = request.relayed(link).link;
        self.subnet(selected.or(request.relay()).unwrap_or(link.id))
    }

    fn subnet(&self, address: Ipv4Addr) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.network.contains(&address))
    }

    /// Remembers a client without a record, whose request was dropped for the reason `dropped` if it was.
    pub fn record_unknown(
        &self,
        applicant: Applicant<'_>,
        dropped: Option<DropReason>,
        now: SystemTime,
    ) {
        let Applicant { request, link, .. } = applicant;
        let vendor_class = request.packet.options.get(code::VENDOR_CLASS).unwrap_or_default();
        let subnet = self.subnet_of(applicant);
        let uuid = request.uuid().map(|octets| HardwareId::from_bytes(octets).to_string());
        let client = UnknownMachine {
            uuid: uuid.unwrap_or_default(),
            reason: reason(subnet, dropped).into(),
            relay: request.relay().map_or_else(String::new, |relay| relay.to_string()),
            circuit_id: request.relayed(link).circuit_id.unwrap_or_default().to_vec(),
            architectures: request.architectures().into_iter().map(u32::from).collect(),
            vendor_class: String::from_utf8_lossy(vendor_class).into_owned(),
            subnet: subnet.map_or_else(String::new, |subnet| subnet.network.to_string()),
            server_address: link.id.to_string(),
            ..UnknownMachine::default()
        };
        let is_logged = self.unknown.record(Mac(request.mac), client, now);
        let is_logged = is_logged && !request.is_infiniband();
        if is_logged && subnet.is_some_and(|subnet| subnet.unknown != Unknown::Ignore) {
            let (mac, relay) = (Mac(request.mac), request.packet.giaddr);
            tracing::info!(%mac, %relay, "DHCP request of a machine without a record");
        }
    }
}

/// Returns why a client of `subnet` has no record.
fn reason(subnet: Option<&Subnet>, dropped: Option<DropReason>) -> Reason {
    match (subnet.map(|subnet| subnet.unknown), dropped) {
        (_, Some(DropReason::Infiniband)) => Reason::Infiniband,
        (None, _) => Reason::NoSubnet,
        (Some(Unknown::Ignore | Unknown::Report | Unknown::Generic), _) => Reason::Policy,
        (Some(Unknown::Enrol), Some(DropReason::PoolExhausted)) => Reason::PoolExhausted,
        (Some(Unknown::Enrol), Some(DropReason::EnrolmentRate)) => Reason::TooMany,
        (Some(Unknown::Enrol), _) => Reason::NoReport,
    }
}

/// Returns the reservation of `address`, which may be none, for a client of `subnet`.
fn reservation(
    applicant: Applicant<'_>,
    subnet: &Subnet,
    address: Option<Ipv4Addr>,
) -> Reservation {
    let Applicant { request, record, link } = applicant;
    let requested = request.packet.options.address(code::REQUESTED_ADDRESS);
    let wanted = request.client_address().or(requested);
    let max = u32::try_from(subnet.lease.as_secs()).unwrap_or(u32::MAX);
    let boots = request.class.boots();
    let pool = PoolTerms {
        lease_seconds: if boots { max.min(link.boot_lease_seconds.max(1)) } else { max },
        is_authoritative: record.is_some()
            || wanted.is_some_and(|wanted| subnet.pool_contains(wanted)),
    };
    let mut own = record.cloned().unwrap_or_else(|| Reservation::new(request.mac, None));
    let or = |own: &mut Vec<Ipv4Addr>, default: &[Ipv4Addr]| {
        if own.is_empty() {
            own.extend(default);
        }
    };
    or(&mut own.name_servers, &subnet.name_servers);
    or(&mut own.time_servers, &subnet.time_servers);
    if own.domain.is_empty() {
        own.domain.clone_from(&subnet.domain);
    }
    let prefix = subnet.network.prefix_len();
    Reservation {
        address: address.and_then(|address| Ipv4Net::new(address, prefix).ok()),
        gateway: subnet.gateway,
        pool: Some(pool),
        ..own
    }
}

#[cfg(test)]
pub(crate) mod tests;
