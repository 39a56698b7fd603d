//! `meta-data/network/interfaces/macs/<mac>/`: the interfaces an operating system should set up.
//!
//! cloud-init makes each a DHCP interface, with every address of `local-ipv4s` but the first as a static one beside it.
//! A `vpc-id` keeps SDKs from taking the machine for one of EC2's first, flat network.

use tinwright::Mac;

use super::row::{Row, Stars, text};
use super::{Body, identity, lines};
use crate::machine::{Address, Machine, Nic};

pub(super) const ROWS: &[Row] = &[
    Row::each("meta-data/network/interfaces/macs/*/device-number", macs, device_number),
    Row::each("meta-data/network/interfaces/macs/*/interface-id", macs, |m, at| {
        text(identity::derived("eni", &[&m.id.to_string(), &nic(m, at)?.mac.to_string()]))
    }),
    Row::each("meta-data/network/interfaces/macs/*/ipv4-associations/*", translated, association),
    Row::each("meta-data/network/interfaces/macs/*/ipv6s", macs, |m, at| {
        text(addresses(m, at, Family::V6)?)
    }),
    Row::each("meta-data/network/interfaces/macs/*/local-hostname", macs, |m, at| {
        nic(m, at).and_then(|_| text(m.hostname()))
    }),
    Row::each("meta-data/network/interfaces/macs/*/local-ipv4s", macs, |m, at| {
        text(addresses(m, at, Family::V4)?)
    }),
    Row::each("meta-data/network/interfaces/macs/*/mac", macs, |m, at| text(nic(m, at)?.mac)),
    Row::each("meta-data/network/interfaces/macs/*/network-card", macs, zero),
    Row::each("meta-data/network/interfaces/macs/*/network-card-index", macs, zero),
    Row::each("meta-data/network/interfaces/macs/*/owner-id", macs, |m, at| {
        let tenant = nic(m, at).map(|_| m.instance.as_ref().map_or("", |i| &i.tenant))?;
        text(if tenant.is_empty() { "0" } else { tenant })
    }),
    Row::each("meta-data/network/interfaces/macs/*/public-ipv4s", macs, |m, at| {
        let public = m.public_ipv4s_of(nic(m, at)?);
        text(lines(public.iter().map(ToString::to_string)))
    }),
    Row::each("meta-data/network/interfaces/macs/*/subnet-id", macs, |m, at| {
        let network = m.addresses_of(nic(m, at)?).first()?.network();
        text(identity::derived("subnet", &[&m.facility, &network.to_string()]))
    }),
    Row::each("meta-data/network/interfaces/macs/*/subnet-ipv4-cidr-block", macs, |m, at| {
        network(m, at, Family::V4)
    }),
    Row::each("meta-data/network/interfaces/macs/*/subnet-ipv6-cidr-block", macs, |m, at| {
        network(m, at, Family::V6)
    }),
    Row::each("meta-data/network/interfaces/macs/*/subnet-ipv6-cidr-blocks", macs, |m, at| {
        network(m, at, Family::V6)
    }),
    Row::each("meta-data/network/interfaces/macs/*/vpc-id", macs, |m, at| {
        nic(m, at).and_then(|_| text(identity::derived("vpc", &[&m.facility])))
    }),
    Row::each("meta-data/network/interfaces/macs/*/vpc-ipv4-cidr-block", macs, |m, at| {
        network(m, at, Family::V4)
    }),
    Row::each("meta-data/network/interfaces/macs/*/vpc-ipv4-cidr-blocks", macs, |m, at| {
        network(m, at, Family::V4)
    }),
    Row::each("meta-data/network/interfaces/macs/*/vpc-ipv6-cidr-blocks", macs, |m, at| {
        network(m, at, Family::V6)
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Family {
    V4,
    V6,
}

fn macs(machine: &Machine, _: Stars) -> Vec<String> {
    machine.used_nics().iter().map(|nic| nic.mac.to_string()).collect()
}

/// The interface the first star names, in any notation.
fn nic<'m>(machine: &'m Machine, stars: Stars) -> Option<&'m Nic> {
    let mac: Mac = stars.first()?.parse().ok()?;
    machine.used_nics().into_iter().find(|nic| nic.mac == mac)
}

/// 0 for the primary interface, then the order of the record. cloud-init orders its routes by it.
fn device_number(machine: &Machine, stars: Stars) -> Option<Body> {
    let mac = nic(machine, stars)?.mac;
    text(machine.used_nics().iter().position(|nic| nic.mac == mac)?)
}

fn zero(machine: &Machine, stars: Stars) -> Option<Body> {
    nic(machine, stars).and_then(|_| text(0))
}

fn of_family(machine: &Machine, stars: Stars, family: Family) -> Option<Vec<Address>> {
    let mut addresses = machine.addresses_of(nic(machine, stars)?);
    addresses.retain(|address| address.ip.is_ipv4() == (family == Family::V4));
    Some(addresses)
}

fn addresses(machine: &Machine, stars: Stars, family: Family) -> Option<String> {
    let of_family = of_family(machine, stars, family)?;
    // First what DHCP gives.
    let lent = nic(machine, stars)?.leased.filter(|_| family == Family::V4);
    let all = lent.into_iter().chain(of_family.iter().map(|address| address.ip));
    Some(lines(all.map(|ip| ip.to_string())))
}

fn network(machine: &Machine, stars: Stars, family: Family) -> Option<Body> {
    text(of_family(machine, stars, family)?.first()?.network())
}

/// For the last star the public addresses of the interface, for the one before the interfaces.
fn translated(machine: &Machine, stars: Stars) -> Vec<String> {
    if stars.is_empty() {
        return macs(machine, stars);
    }
    let public = nic(machine, stars).map(|nic| machine.public_ipv4s_of(nic));
    public.into_iter().flatten().map(|ip| ip.to_string()).collect()
}

/// The private address a public one leads to.
fn association(machine: &Machine, stars: Stars) -> Option<Body> {
    let nic = nic(machine, stars)?;
    let public = machine.public_ipv4s_of(nic);
    let asked = stars.get(1)?;
    public.iter().find(|ip| ip.to_string() == *asked)?;
    let own = machine.addresses_of(nic).into_iter();
    text(own.map(|a| a.ip).find(|ip| ip.is_ipv4() && !public.contains(ip))?)
}
