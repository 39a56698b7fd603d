//! The options of a reply (docs/reference/dhcp.md, "Options").

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use ipnet::Ipv4Net;

use crate::config::{Link, Reservation, StaticRoute};
use crate::options::{Options, code};
use crate::packet::Packet;
use crate::request::{ClientClass, Request};

/// The MTUs that are sent: from the least that IPv4 requires to the most that Ethernet carries.
const SENT_MTU_OCTETS: RangeInclusive<u16> = 576..=9216;
/// A lease that does not end (RFC 2131 section 3.3).
const INFINITE_LEASE_SECONDS: u32 = u32::MAX;
/// Option 175, tag 176: do not wait for a ProxyDHCP server.
const NO_PROXY: [u8; 3] = [176, 1, 1];
const METADATA: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 169, 254), 32);
const DEFAULT_ROUTE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);

/// Echoes what every reply repeats unchanged (RFC 6842, RFC 3046, RFC 4578).
pub(crate) fn echo(options: &mut Options, request: &Packet) {
    for code in [code::CLIENT_IDENTIFIER, code::RELAY_AGENT, code::CLIENT_UUID] {
        options.set_some(code, request.options.get(code));
    }
}

/// Sets the options that describe the client's network.
pub(crate) fn network(options: &mut Options, request: &Packet, own: &Reservation, link: &Link) {
    if let Some(network) = own.address {
        options.set(code::SUBNET_MASK, network.netmask().octets());
        // On a point-to-point network every address is a host's.
        let broadcast = (network.prefix_len() < 31).then(|| network.broadcast().octets());
        options.set_some(code::BROADCAST_ADDRESS, broadcast);
    }
    options.set_some(code::ROUTER, own.gateway.map(|gateway| gateway.octets()));
    options.set_addresses(code::NAME_SERVERS, either(&own.name_servers, &link.name_servers));
    options.set_some(code::LOG_SERVERS, link.log_server.map(|server| server.octets()));
    options.set_some(code::HOST_NAME, Some(own.hostname.as_str()));
    let domain = if own.domain.is_empty() { &link.domain } else { &own.domain };
    options.set_some(code::DOMAIN_NAME, Some(domain.as_str()));
    if wants(request, code::INTERFACE_MTU) {
        let mtu = own.mtu.filter(|mtu| SENT_MTU_OCTETS.contains(mtu));
        options.set_some(code::INTERFACE_MTU, mtu.map(u16::to_be_bytes));
    }
    if wants(request, code::NTP_SERVERS) {
        options.set_addresses(code::NTP_SERVERS, either(&own.time_servers, &link.time_servers));
    }
    if wants(request, code::DOMAIN_SEARCH) {
        options.set_some(code::DOMAIN_SEARCH, Some(search_list(&link.search)));
    }
    if wants(request, code::CLASSLESS_ROUTES) {
        options.set_some(code::CLASSLESS_ROUTES, Some(routes(own, link)));
    }
    if lists(request, code::MS_CLASSLESS_ROUTES) {
        options.set_some(code::MS_CLASSLESS_ROUTES, Some(routes(own, link)));
    }
}

/// Returns the record's own servers, or the link's.
fn either<'a>(own: &'a [Ipv4Addr], link: &'a [Ipv4Addr]) -> &'a [Ipv4Addr] {
    if own.is_empty() { link } else { own }
}

/// Sets the boot options that are sent only where we assign the address too.
pub(crate) fn boot_extras(packet: &mut Packet, request: &Request) {
    if !packet.siaddr.is_unspecified() && lists(&request.packet, code::TFTP_SERVERS) {
        packet.options.set(code::TFTP_SERVERS, packet.siaddr.octets());
    }
    if let ClientClass::Ipxe { .. } = request.class {
        packet.options.set(code::IPXE, NO_PROXY);
    }
}

/// Sets the lease times. A lease is never of zero seconds.
pub(crate) fn lease(options: &mut Options, class: ClientClass, own: &Reservation, link: &Link) {
    let seconds = match own.pool {
        Some(pool) => pool.lease_seconds,
        None if class.boots() => link.boot_lease_seconds,
        None => own.lease_seconds,
    };
    lease_times(options, if seconds == 0 { link.lease_seconds.max(1) } else { seconds });
}

/// Sets a lease of `seconds` and the times of its renewal.
pub(crate) fn lease_times(options: &mut Options, seconds: u32) {
    options.set(code::LEASE_TIME, seconds.to_be_bytes());
    if seconds != INFINITE_LEASE_SECONDS {
        options.set(code::RENEWAL_TIME, (seconds / 2).to_be_bytes());
        options.set(code::REBINDING_TIME, (seconds - seconds / 8).to_be_bytes());
    }
}

/// True if the parameter request list of `request` has option `wanted`.
fn lists(request: &Packet, wanted: u8) -> bool {
    request.options.get(code::PARAMETER_REQUEST_LIST).is_some_and(|list| list.contains(&wanted))
}

/// True if the parameter request list of `request` has option `wanted`, or is absent.
fn wants(request: &Packet, wanted: u8) -> bool {
    request.options.get(code::PARAMETER_REQUEST_LIST).is_none() || lists(request, wanted)
}

/// Returns option 121. It repeats the default route: a client that takes this option ignores option 3 (RFC 3442).
fn routes(own: &Reservation, link: &Link) -> Vec<u8> {
    let near = |router: &Ipv4Addr| own.address.is_none_or(|own| own.contains(router));
    // A client behind a relay could not reach it: the router has to be its neighbour.
    let router = link.metadata_router.filter(near);
    let metadata = router.map(|gateway| StaticRoute { destination: METADATA, gateway });
    let mut routes: Vec<_> = own.routes.iter().copied().chain(metadata).collect();
    let has_default = routes.iter().any(|route| route.destination.prefix_len() == 0);
    if let Some(gateway) = own.gateway.filter(|_| !routes.is_empty() && !has_default) {
        routes.push(StaticRoute { destination: DEFAULT_ROUTE, gateway });
    }
    let mut encoded = Vec::new();
    for StaticRoute { destination, gateway } in routes {
        let prefix = destination.prefix_len();
        let significant = usize::from(prefix.div_ceil(8));
        encoded.push(prefix);
        encoded.extend(destination.network().octets().into_iter().take(significant));
        encoded.extend(gateway.octets());
    }
    encoded
}

/// Returns option 119: domain names in DNS encoding, uncompressed. Names that DNS cannot encode are left out.
fn search_list(domains: &[String]) -> Vec<u8> {
    domains.iter().filter_map(|domain| dns_name(domain)).flatten().collect()
}

fn dns_name(domain: &str) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for label in domain.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        name.push(length);
        name.extend(label.as_bytes());
    }
    name.push(0);
    (name.len() <= 255).then_some(name)
}
