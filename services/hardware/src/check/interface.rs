//! Interfaces: addresses, DHCP, network boot.

use tinwright::check::{self, InvalidValue};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::netboot::LocalBoot;
use tinwright::mac::Mac;
use tinwright::status::Violations;

use super::{enum_value, relay_port};

/// The longest lease: the number of seconds that means infinity (RFC 2131 §3.3).
const INFINITE_LEASE_SECONDS: i64 = 0xffff_ffff;
/// The longest boot file name in DHCP's own field.
const MAX_BOOT_FILE_BYTES: usize = 127;
/// The most servers of a kind, and the most routes.
const MAX_ENTRIES: usize = 16;
/// The longest script.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;

/// Converts `interface` to its stored form, or adds its violations.
pub(super) fn normalize(interface: &mut pb::Interface, wrong: &mut Violations) {
    wrong.normalize("mac", &mut interface.mac, str::parse::<Mac>);
    if !interface.name.is_empty() {
        wrong.take("name", check_name(&interface.name));
    }
    wrong.nest("dhcp", &mut interface.dhcp, normalize_dhcp);
    wrong.nest("netboot", &interface.netboot, check_netboot);
    wrong.nest("relay_port", &mut interface.relay_port, relay_port::normalize);
}

/// Passes for a name that Linux allows for an interface.
pub(super) fn check_name(name: &str) -> Result<(), InvalidValue> {
    check::length(name, 15)?; // IFNAMSIZ less its zero byte
    check::script_word(name)
}

fn normalize_dhcp(dhcp: &mut pb::Dhcp, wrong: &mut Violations) {
    wrong.nest("address", &mut dhcp.address, normalize_address);
    wrong.normalize_optional("hostname", &mut dhcp.hostname, check::hostname);
    wrong.normalize_optional("domain_name", &mut dhcp.domain_name, check::hostname);
    let lease = dhcp.lease_time.as_ref().map_or(0, |time| time.seconds);
    if !(0..=INFINITE_LEASE_SECONDS).contains(&lease) {
        wrong.add(
            "lease_time",
            format!("{lease} s is not between 0 and {INFINITE_LEASE_SECONDS} s"),
        );
    }
    normalize_servers(dhcp, wrong);
    if dhcp.vlan_id > 4094 {
        wrong.add("vlan_id", format!("{} is not between 0 and 4094", dhcp.vlan_id));
    }
    if dhcp.mtu != 0 && !(576..=9216).contains(&dhcp.mtu) {
        wrong.add("mtu", format!("{} is not between 576 and 9216", dhcp.mtu));
    }
    if dhcp.proxy && dhcp.disabled {
        wrong.add("proxy", "is set together with disabled: set one of them");
    }
    check_boot_server(dhcp, wrong);
}

fn normalize_servers(dhcp: &mut pb::Dhcp, wrong: &mut Violations) {
    wrong.each("name_servers", &mut dhcp.name_servers, MAX_ENTRIES, |server, wrong| {
        wrong.normalize("", server, check::address);
    });
    let host = |text: &str| {
        check::address(text).map(|address| address.to_string()).or_else(|_| check::hostname(text))
    };
    wrong.each("time_servers", &mut dhcp.time_servers, MAX_ENTRIES, |server, wrong| {
        wrong.normalize("", server, host);
    });
    wrong.each("classless_routes", &mut dhcp.classless_routes, MAX_ENTRIES, |route, wrong| {
        wrong.take("", normalize_route(route));
    });
}

fn check_boot_server(dhcp: &pb::Dhcp, wrong: &mut Violations) {
    if dhcp.tftp_server_name.is_empty() != dhcp.boot_file_name.is_empty() {
        wrong.add("boot_file_name", "belongs to tftp_server_name: set both or neither");
    }
    if !dhcp.tftp_server_name.is_empty() {
        wrong.take("tftp_server_name", check::hostname(&dhcp.tftp_server_name));
    }
    if !dhcp.boot_file_name.is_empty() {
        wrong.take("boot_file_name", check::length(&dhcp.boot_file_name, MAX_BOOT_FILE_BYTES));
        wrong.take("boot_file_name", check::script_word(&dhcp.boot_file_name));
    }
}

fn normalize_address(address: &mut pb::Address, wrong: &mut Violations) {
    let own = wrong.normalize("address", &mut address.address, check::address);
    let Some(own) = own else { return };
    let max_bits = if own.is_ipv4() { 32 } else { 128 };
    let bits = address.prefix_length;
    if !(1..=max_bits).contains(&bits) {
        wrong.add("prefix_length", format!("{bits} is not between 1 and {max_bits}"));
    }
    let gateway = wrong.normalize_optional("gateway", &mut address.gateway, check::address);
    let Some(gateway) = gateway else { return };
    // The router of a point-to-point or host prefix (RFC 3021) may be outside it, and so may a link-local one.
    let may_be_outside = bits >= max_bits - 1 || check::is_link_local(gateway);
    if own.is_ipv4() != gateway.is_ipv4() {
        wrong.add("gateway", format!("{gateway} is of another family than {own}"));
    } else if !may_be_outside && !check::same_network(own, gateway, bits) {
        wrong.add("gateway", format!("{gateway} is outside {own}/{bits}"));
    }
}

fn normalize_route(route: &mut pb::Route) -> Result<(), InvalidValue> {
    route.destination = check::network(&route.destination)?;
    route.gateway = check::address(&route.gateway)?.to_string();
    Ok(())
}

fn check_netboot(netboot: &pb::Netboot, wrong: &mut Violations) {
    wrong.nest("ipxe", &netboot.ipxe, check_ipxe);
    wrong.nest("boot_once", &netboot.boot_once, |script, wrong| {
        check_ipxe(script, wrong);
        if script.url.is_empty() && script.contents.is_empty() {
            wrong.add("", "has neither url nor contents");
        }
    });
    wrong.take("local_boot", enum_value::<LocalBoot>(netboot.local_boot));
    wrong.nest("osie", &netboot.osie, check_osie);
}

fn check_ipxe(ipxe: &pb::Ipxe, wrong: &mut Violations) {
    let pb::Ipxe { url, contents, binary } = ipxe;
    if !url.is_empty() && !contents.is_empty() {
        wrong.add("contents", "is set together with url: set one of them");
    }
    if !url.is_empty() {
        wrong.take("url", check::script_url(url, &["http", "https", "tftp"]));
    }
    wrong.take("contents", check::length(contents, MAX_SCRIPT_BYTES));
    if !contents.is_empty() && !contents.starts_with("#!ipxe") {
        wrong.add("contents", "does not begin with #!ipxe");
    }
    if !binary.is_empty() {
        wrong.take("binary", check::file_name(binary));
    }
}

fn check_osie(osie: &pb::Osie, wrong: &mut Violations) {
    let pb::Osie { base_url, kernel, initrd, kernel_params } = osie;
    if !base_url.is_empty() {
        wrong.take("base_url", check::url(base_url, &["http", "https"]));
    }
    for (field, name) in [("kernel", kernel), ("initrd", initrd)] {
        if !name.is_empty() {
            wrong.take(field, check::file_name(name));
        }
    }
    super::check_kernel_params("kernel_params", kernel_params, wrong);
}
