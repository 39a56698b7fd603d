//! `meta-data/network/interfaces/macs/<mac>/`: the interfaces an operating system should set up.
//!
//! cloud-init makes each a DHCP interface, with every address of `local-ipv4s` but the first as a static one beside it.
//! A `vpc-id` keeps SDKs from taking the machine for one of EC2's first, flat network.

use super::row::{Row, Stars, macs, nic, text};
use super::{Body, identity, lines};
use crate::machine::{Address, Machine, Nic};

pub(super) const ROWS: &[Row] = &[
    // cloud-init orders its routes by it: 0 for the primary interface, then the order of the record.
    Row::nic("meta-data/network/interfaces/macs/*/device-number", |m, nic| {
        text(m.used_nics().iter().position(|used| used.mac == nic.mac)?)
    }),
    Row::nic("meta-data/network/interfaces/macs/*/interface-id", |m, nic| {
        text(identity::derived("eni", &[&m.id.to_string(), &nic.mac.to_string()]))
    }),
    Row::each(
        "meta-data/network/interfaces/macs/*/ipv4-associations/*",
        association_names,
        association,
    ),
    Row::nic("meta-data/network/interfaces/macs/*/ipv6s", |m, nic| {
        text(lines(of_family(m, nic, Family::V6).iter().map(|address| address.ip.to_string())))
    }),
    Row::nic("meta-data/network/interfaces/macs/*/local-hostname", |m, _| text(m.hostname())),
    Row::nic("meta-data/network/interfaces/macs/*/local-ipv4s", |m, nic| {
        // The address that DHCP gives comes first.
        let own = of_family(m, nic, Family::V4);
        let all = nic.leased.into_iter().chain(own.iter().map(|address| address.ip));
        text(lines(all.map(|ip| ip.to_string())))
    }),
    Row::nic("meta-data/network/interfaces/macs/*/mac", |_, nic| text(nic.mac)),
    Row::nic("meta-data/network/interfaces/macs/*/network-card", |_, _| text(0)),
    Row::nic("meta-data/network/interfaces/macs/*/network-card-index", |_, _| text(0)),
    Row::nic("meta-data/network/interfaces/macs/*/owner-id", |m, _| {
        let tenant = m.instance.as_ref().map_or("", |instance| &instance.tenant);
        text(if tenant.is_empty() { "0" } else { tenant })
    }),
    Row::nic("meta-data/network/interfaces/macs/*/public-ipv4s", |m, nic| {
        text(lines(m.public_ipv4s_of(nic).iter().map(ToString::to_string)))
    }),
    Row::nic("meta-data/network/interfaces/macs/*/subnet-id", |m, nic| {
        let network = m.addresses_of(nic).first()?.network();
        text(identity::derived("subnet", &[&m.facility, &network.to_string()]))
    }),
    Row::nic("meta-data/network/interfaces/macs/*/subnet-ipv4-cidr-block", ipv4_network),
    Row::nic("meta-data/network/interfaces/macs/*/subnet-ipv6-cidr-block", ipv6_network),
    Row::nic("meta-data/network/interfaces/macs/*/subnet-ipv6-cidr-blocks", ipv6_network),
    Row::nic("meta-data/network/interfaces/macs/*/vpc-id", |m, _| {
        text(identity::derived("vpc", &[&m.facility]))
    }),
    Row::nic("meta-data/network/interfaces/macs/*/vpc-ipv4-cidr-block", ipv4_network),
    Row::nic("meta-data/network/interfaces/macs/*/vpc-ipv4-cidr-blocks", ipv4_network),
    Row::nic("meta-data/network/interfaces/macs/*/vpc-ipv6-cidr-blocks", ipv6_network),
];

#[derive(Clone, Copy, PartialEq)]
enum Family {
    V4,
    V6,
}

fn of_family(machine: &Machine, nic: &Nic, family: Family) -> Vec<Address> {
    let mut addresses = machine.addresses_of(nic);
    addresses.retain(|address| address.ip.is_ipv4() == (family == Family::V4));
    addresses
}

fn ipv4_network(machine: &Machine, nic: &Nic) -> Option<Body> {
    text(of_family(machine, nic, Family::V4).first()?.network())
}

fn ipv6_network(machine: &Machine, nic: &Nic) -> Option<Body> {
    text(of_family(machine, nic, Family::V6).first()?.network())
}

/// Returns the public addresses of the interface; without a star the interfaces.
fn association_names(machine: &Machine, stars: Stars) -> Vec<String> {
    if stars.is_empty() {
        return macs(machine);
    }
    let public = nic(machine, stars).map(|nic| machine.public_ipv4s_of(nic));
    public.into_iter().flatten().map(|ip| ip.to_string()).collect()
}

/// Returns the private address that a public one leads to.
fn association(machine: &Machine, stars: Stars) -> Option<Body> {
    let nic = nic(machine, stars)?;
    let public = machine.public_ipv4s_of(nic);
    let name = stars.get(1)?;
    public.iter().find(|ip| ip.to_string() == *name)?;
    let own = machine.addresses_of(nic).into_iter();
    text(own.map(|a| a.ip).find(|ip| ip.is_ipv4() && !public.contains(ip))?)
}
