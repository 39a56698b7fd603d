//! Addresses of the installed system.

use std::net::IpAddr;

use tinwright::check;
use tinwright::instance::v1::instance::Ip;
use tinwright::instance::v1::instance::ip::{Family, Flag};
use tinwright::status::Violations;

/// Converts `ip` to its stored form, or adds its violations.
pub(super) fn normalize(ip: &mut Ip, wrong: &mut Violations) {
    if let Some(address) = wrong.normalize("address", &mut ip.address, check::address) {
        normalize_family(ip, address, wrong);
        normalize_prefix(ip, address, wrong);
    }
    if let Some(flags) = wrong.take("flags", normalize_flags(&ip.flags)) {
        ip.flags = flags;
    }
}

fn normalize_family(ip: &mut Ip, address: IpAddr, wrong: &mut Violations) {
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    if ip.family() != Family::Unspecified && ip.family() != family
        || Family::try_from(ip.family).is_err()
    {
        wrong.add("family", format!("is not the family of {address}"));
    }
    ip.family = family.into();
}

fn normalize_prefix(ip: &mut Ip, address: IpAddr, wrong: &mut Violations) {
    let max_bits = if address.is_ipv4() { 32 } else { 128 };
    if ip.prefix_length > max_bits {
        return wrong
            .add("prefix_length", format!("{} is not between 1 and {max_bits}", ip.prefix_length));
    }
    if ip.prefix_length == 0 {
        ip.prefix_length = max_bits;
    }
    if let Some(gateway) = wrong.normalize_optional("gateway", &mut ip.gateway, check::address) {
        wrong.take("gateway", check_gateway(address, gateway, ip.prefix_length, max_bits));
    }
}

/// Passes if the gateway is inside the prefix. It may be outside if the prefix has no room for one (RFC 3021), or if it is
/// link-local (IPv6).
fn check_gateway(address: IpAddr, gateway: IpAddr, bits: u32, max_bits: u32) -> Result<(), String> {
    if address.is_ipv4() != gateway.is_ipv4() {
        return Err(format!("{gateway} is of another family than {address}"));
    }
    let may_be_outside = bits + 1 >= max_bits || gateway.is_ipv6() && check::is_link_local(gateway);
    if may_be_outside || check::same_network(address, gateway, bits) {
        Ok(())
    } else {
        Err(format!("{gateway} is outside of {address}/{bits}"))
    }
}

/// Returns each flag once, ascending. The elements are combined as bits: a client may send one number for several.
fn normalize_flags(sent: &[i32]) -> Result<Vec<i32>, String> {
    const ALL: i32 = Flag::Public as i32 | Flag::Management as i32;
    let bits = sent.iter().fold(0, |bits, flag| bits | flag);
    if bits & !ALL != 0 {
        return Err(format!("{sent:?} has bits besides public (1) and management (2)"));
    }
    let flags = [Flag::Public, Flag::Management].map(|flag| flag as i32);
    Ok(flags.into_iter().filter(|flag| bits & flag != 0).collect())
}
