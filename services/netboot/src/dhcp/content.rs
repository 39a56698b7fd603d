//! What an answer tells (netboot specification, section 3.6).

use std::net::Ipv4Addr;

use super::boot::Boot;
use super::client::Class;
use super::options::{Options, code};
use super::packet::Packet;
use super::site::{Link, Network, Reservation, Route};

/// The only MTUs worth telling: what IPv4 must carry, up to what Ethernet can.
const MTU: std::ops::RangeInclusive<u16> = 576..=9216;
/// A lease that does not end (RFC 2131, section 3.3).
const FOREVER: u32 = u32::MAX;
/// Option 175, tag 176: do not wait for a ProxyDHCP server.
const NO_PROXY: [u8; 3] = [176, 1, 1];
const METADATA: Network = Network { address: Ipv4Addr::new(169, 254, 169, 254), prefix: 32 };
const EVERYWHERE: Network = Network { address: Ipv4Addr::UNSPECIFIED, prefix: 0 };

/// What the client said, in every answer unchanged (RFC 6842, RFC 3046, RFC 4578).
pub(super) fn echo(options: &mut Options, request: &Packet) {
    for code in [code::CLIENT_IDENTIFIER, code::RELAY_AGENT, code::CLIENT_UUID] {
        options.set_some(code, request.options.get(code));
    }
}

/// Header fields and options about booting.
pub(super) fn booting(packet: &mut Packet, boot: &Boot<'_>) {
    let options = &mut packet.options;
    options.set_some(code::VENDOR_CLASS, boot.vendor_class);
    options.set_some(code::VENDOR_SPECIFIC, Some(&boot.vendor_specific[..]));
    options.set_some(code::TFTP_SERVER_NAME, boot.server_name);
    options.set_some(code::BOOT_FILE_NAME, boot.file.as_deref());
    packet.siaddr = boot.next_server.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let file = boot.file.as_deref().unwrap_or_default().as_bytes();
    // A name that leaves no room for its NUL stands in option 67 alone, never cut.
    if let Some((head, [_, ..])) = packet.file.split_at_mut_checked(file.len()) {
        head.copy_from_slice(file);
    }
}

/// How the client's network is: what it asks for, and what any client wants.
pub(super) fn network(options: &mut Options, request: &Packet, machine: &Reservation, link: &Link) {
    if let Some(network) = machine.address {
        options.set(code::SUBNET_MASK, network.mask().octets());
        options
            .set_some(code::BROADCAST_ADDRESS, broadcast(network).map(|address| address.octets()));
    }
    options.set_some(code::ROUTER, machine.gateway.map(|gateway| gateway.octets()));
    let name_servers = either(&machine.name_servers, &link.name_servers);
    options.set_addresses(code::NAME_SERVERS, name_servers);
    options.set_some(code::LOG_SERVERS, link.log_server.map(|server| server.octets()));
    options.set_some(code::HOST_NAME, Some(machine.hostname.as_str()));
    let domain = if machine.domain.is_empty() { &link.domain } else { &machine.domain };
    options.set_some(code::DOMAIN_NAME, Some(domain.as_str()));
    if wants(request, code::INTERFACE_MTU) {
        options.set_some(
            code::INTERFACE_MTU,
            machine.mtu.filter(|mtu| MTU.contains(mtu)).map(u16::to_be_bytes),
        );
    }
    if wants(request, code::NTP_SERVERS) {
        let time_servers = either(&machine.time_servers, &link.time_servers);
        options.set_addresses(code::NTP_SERVERS, time_servers);
    }
    if wants(request, code::DOMAIN_SEARCH) {
        options.set_some(code::DOMAIN_SEARCH, Some(search_list(&link.search)));
    }
    if wants(request, code::CLASSLESS_ROUTES) {
        options.set_some(code::CLASSLESS_ROUTES, Some(routes(machine, link)));
    }
    if asks(request, code::MS_CLASSLESS_ROUTES) {
        options.set_some(code::MS_CLASSLESS_ROUTES, Some(routes(machine, link)));
    }
}

/// The record's own, or the link's.
fn either<'a>(own: &'a [Ipv4Addr], link: &'a [Ipv4Addr]) -> &'a [Ipv4Addr] {
    if own.is_empty() { link } else { own }
}

/// What only an answer with a boot file says, and only where we give the address too.
pub(super) fn extras(options: &mut Options, request: &Packet, boot: &Boot<'_>) {
    if let Some(server) = boot.next_server.filter(|_| asks(request, code::TFTP_SERVERS)) {
        options.set(code::TFTP_SERVERS, server.octets());
    }
    options.set_some(code::IPXE, boot.no_proxy.then_some(NO_PROXY));
}

/// The lease, never of zero seconds, and when to renew it.
pub(super) fn lease(options: &mut Options, class: Class, machine: &Reservation, link: &Link) {
    let seconds = match machine.pool {
        Some(pool) => pool.lease,
        None if class.boots() => link.boot_lease,
        None => machine.lease,
    };
    times(options, if seconds == 0 { link.lease.max(1) } else { seconds });
}

/// A lease of `seconds`, and when to renew it.
pub(super) fn times(options: &mut Options, seconds: u32) {
    options.set(code::LEASE_TIME, seconds.to_be_bytes());
    if seconds != FOREVER {
        options.set(code::RENEWAL_TIME, (seconds / 2).to_be_bytes());
        options.set(code::REBINDING_TIME, (seconds - seconds / 8).to_be_bytes());
    }
}

/// Whether `request` asks for option `wanted`.
fn asks(request: &Packet, wanted: u8) -> bool {
    request.options.get(code::PARAMETER_REQUEST_LIST).is_some_and(|list| list.contains(&wanted))
}

/// Whether `request` asks for option `wanted`, or for nothing in particular.
fn wants(request: &Packet, wanted: u8) -> bool {
    request.options.get(code::PARAMETER_REQUEST_LIST).is_none() || asks(request, wanted)
}

/// None for point-to-point networks, where every address is a host's.
fn broadcast(network: Network) -> Option<Ipv4Addr> {
    (network.prefix < 31).then(|| network.address | !network.mask())
}

/// Option 121. The default route is repeated here: who takes this option ignores option 3 (RFC 3442).
fn routes(machine: &Reservation, link: &Link) -> Vec<u8> {
    let near = |router: &Ipv4Addr| machine.address.is_none_or(|own| own.contains(*router));
    // A client behind a relay could not reach it: the router has to be its neighbour.
    let router = link.metadata_router.filter(near);
    let metadata = router.map(|gateway| Route { destination: METADATA, gateway });
    let mut routes: Vec<_> = machine.routes.iter().copied().chain(metadata).collect();
    let has_default = routes.iter().any(|route| route.destination.prefix == 0);
    if let Some(gateway) = machine.gateway.filter(|_| !routes.is_empty() && !has_default) {
        routes.push(Route { destination: EVERYWHERE, gateway });
    }
    routes
        .iter()
        .flat_map(|Route { destination, gateway }| {
            let significant = destination.prefix.min(32).div_ceil(8);
            let network = (destination.address & destination.mask()).octets();
            let network = network.into_iter().take(significant.into());
            std::iter::once(destination.prefix.min(32))
                .chain(network)
                .chain(gateway.octets())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Option 119: domain names as DNS writes them, uncompressed. A name DNS cannot write is left out.
fn search_list(domains: &[String]) -> Vec<u8> {
    domains.iter().filter_map(|domain| labels(domain)).flatten().collect()
}

fn labels(domain: &str) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for label in domain.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        name.push(length);
        name.extend(label.as_bytes());
    }
    name.push(0);
    (name.len() <= 255).then_some(name)
}
