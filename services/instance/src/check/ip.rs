//! Addresses of the installed system.

use std::net::IpAddr;

use tinwright::check;
use tinwright::instance::v1::instance::Ip;
use tinwright::instance::v1::instance::ip::{Family, Flag};
use tinwright::status::Violations;

/// Puts `ip` into its stored form. Answers what is wrong with it.
pub(super) fn normalize(ip: &mut Ip) -> Violations {
    let mut wrong = Violations::default();
    if let Some(address) = wrong.take("address", check::address(&ip.address)) {
        ip.address = address.to_string();
        normalize_family(ip, address, &mut wrong);
        normalize_prefix(ip, address, &mut wrong);
    }
    if let Some(flags) = wrong.take("flags", flags(&ip.flags)) {
        ip.flags = flags;
    }
    wrong
}

fn normalize_family(ip: &mut Ip, address: IpAddr, wrong: &mut Violations) {
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    if ip.family() != Family::Unspecified && ip.family() != family
        || Family::try_from(ip.family).is_err()
    {
        wrong.add("family", format!("is not that of {address}"));
    }
    ip.family = family.into();
}

fn normalize_prefix(ip: &mut Ip, address: IpAddr, wrong: &mut Violations) {
    let most = if address.is_ipv4() { 32 } else { 128 };
    if ip.prefix_length > most {
        return wrong
            .add("prefix_length", format!("{} is not between 1 and {most}", ip.prefix_length));
    }
    if ip.prefix_length == 0 {
        ip.prefix_length = most;
    }
    if !ip.gateway.is_empty()
        && let Some(gateway) = wrong.take("gateway", check::address(&ip.gateway))
    {
        ip.gateway = gateway.to_string();
        wrong.take("gateway", reachable(address, gateway, ip.prefix_length, most));
    }
}

/// A gateway is inside the prefix, but where the prefix has no room for one or it is link-local (IPv6).
fn reachable(address: IpAddr, gateway: IpAddr, bits: u32, most: u32) -> Result<(), String> {
    if address.is_ipv4() != gateway.is_ipv4() {
        return Err(format!("{gateway} is of another family than {address}"));
    }
    let elsewhere = bits + 1 >= most || gateway.is_ipv6() && check::is_link_local(gateway);
    if elsewhere || check::same_network(address, gateway, bits) {
        Ok(())
    } else {
        Err(format!("{gateway} is outside of {address}/{bits}"))
    }
}

/// Each flag once, ascending. The elements are joined as bits: a peer may have sent one number for several.
fn flags(given: &[i32]) -> Result<Vec<i32>, String> {
    const ALL: i32 = Flag::Public as i32 | Flag::Management as i32;
    let bits = given.iter().fold(0, |bits, flag| bits | flag);
    if bits & !ALL != 0 {
        return Err(format!("{given:?} has bits besides public (1) and management (2)"));
    }
    let flags = [Flag::Public, Flag::Management].map(|flag| flag as i32);
    Ok(flags.into_iter().filter(|flag| bits & flag != 0).collect())
}
