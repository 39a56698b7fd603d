//! The networks whose addresses are leased: the sections `[[subnets]]` of the file.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use netboot::pool::{Range, Subnet, Unknown};
use serde::Deserialize;

/// The options of a network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubnetOptions {
    /// The network as `ADDRESS/BITS`.
    pub network: String,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// The leased ranges as `FIRST-LAST`.
    #[serde(default)]
    pub ranges: Vec<String>,
    /// Addresses and ranges that are never leased.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// The duration of leases in seconds; 3600 if it is not set.
    #[serde(default = "default_lease_seconds")]
    pub lease_seconds: u64,
    /// Name servers of machines whose record has none.
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
    /// NTP servers of machines whose record has none.
    #[serde(default)]
    pub time_servers: Vec<Ipv4Addr>,
    /// The domain of machines whose record has none.
    pub domain: Option<String>,
    /// The policy for machines without a record.
    #[serde(default)]
    pub unknown: UnknownPolicy,
}

/// The policy for machines without a record, as the operator names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownPolicy {
    /// They get nothing.
    #[default]
    Ignore,
    /// They get nothing and are logged.
    Report,
    /// They get an address and the generic script.
    Enrol,
    /// They get the generic script without an address.
    Generic,
}

impl From<UnknownPolicy> for Unknown {
    fn from(policy: UnknownPolicy) -> Self {
        match policy {
            UnknownPolicy::Ignore => Self::Ignore,
            UnknownPolicy::Report => Self::Report,
            UnknownPolicy::Enrol => Self::Enrol,
            UnknownPolicy::Generic => Self::Generic,
        }
    }
}

fn default_lease_seconds() -> u64 {
    3600
}

/// Checks the networks, which must not overlap.
pub(super) fn subnets(sections: Vec<SubnetOptions>) -> anyhow::Result<Vec<Subnet>> {
    let mut subnets: Vec<Subnet> = Vec::new();
    for section in sections {
        let name = section.network.clone();
        let subnet = subnet(section).with_context(|| format!("subnets: {name}"))?;
        let overlaps = |other: &Subnet| super::overlap(subnet.network, other.network);
        anyhow::ensure!(!subnets.iter().any(overlaps), "subnets: {name} overlaps another one");
        subnets.push(subnet);
    }
    Ok(subnets)
}

fn subnet(options: SubnetOptions) -> anyhow::Result<Subnet> {
    let ranges = |option: &str, texts: Vec<String>| -> anyhow::Result<Vec<Range>> {
        let parse = |text: String| text.parse().with_context(|| option.to_owned());
        texts.into_iter().map(parse).collect()
    };
    let network = options.network.parse::<Ipv4Net>().context("network")?.trunc();
    let subnet = Subnet {
        gateway: options.gateway,
        excluded: ranges("excluded", options.excluded)?,
        lease: Duration::from_secs(options.lease_seconds),
        name_servers: options.name_servers,
        time_servers: options.time_servers,
        domain: options.domain.map_or(Ok(String::new()), |name| {
            tinwright::check::hostname(&name).context("domain")
        })?,
        unknown: options.unknown.into(),
        ..Subnet::new(network, ranges("ranges", options.ranges)?)
    };
    subnet.check()?;
    let has_ranges = !subnet.is_empty();
    anyhow::ensure!(
        has_ranges || subnet.unknown != Unknown::Enrol,
        "ranges: enrolling takes addresses"
    );
    Ok(subnet)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Deserialize)]
    struct File {
        subnets: Vec<SubnetOptions>,
    }

    fn load(text: &str) -> anyhow::Result<Vec<Subnet>> {
        super::subnets(toml::from_str::<File>(text)?.subnets)
    }

    #[test]
    fn every_option_is_set_on_the_subnet() {
        let subnets = load(
            "[[subnets]]\nnetwork = '192.0.2.0/24'\ngateway = '192.0.2.1'\nranges = ['192.0.2.100-192.0.2.199']\n\
             excluded = ['192.0.2.150']\nlease_seconds = 600\nname_servers = ['192.0.2.53']\n\
             time_servers = ['192.0.2.123']\ndomain = 'lab.example'\nunknown = 'enrol'\n\
             [[subnets]]\nnetwork = '198.51.100.0/24'",
        )
        .unwrap();
        let [first, second] = &subnets[..] else { panic!("two") };
        assert_eq!((first.gateway, first.len()), (Some([192, 0, 2, 1].into()), 100));
        assert!(
            first.pool_contains([192, 0, 2, 151].into())
                && !first.pool_contains([192, 0, 2, 150].into())
        );
        assert_eq!((first.lease.as_secs(), first.unknown), (600, Unknown::Enrol));
        assert_eq!(first.name_servers, [Ipv4Addr::new(192, 0, 2, 53)]);
        assert_eq!(first.time_servers, [Ipv4Addr::new(192, 0, 2, 123)]);
        assert_eq!(first.domain, "lab.example");
        assert_eq!((second.lease.as_secs(), second.unknown), (3600, Unknown::Ignore));
    }

    #[test]
    fn an_invalid_subnet_is_refused_by_its_network() {
        let error_of =
            |text: &str| format!("{:#}", load(&format!("[[subnets]]\n{text}")).unwrap_err());
        assert_eq!(
            error_of("network = '192.0.2.0/24'\nranges = ['198.51.100.1-198.51.100.9']"),
            "subnets: 192.0.2.0/24: ranges: 198.51.100.1-198.51.100.9 is not in the network"
        );
        assert_eq!(
            error_of("network = '192.0.2.0/24'\nunknown = 'enrol'"),
            "subnets: 192.0.2.0/24: ranges: enrolling takes addresses"
        );
        assert_eq!(
            error_of("network = '192.0.2.0/24'\n[[subnets]]\nnetwork = '192.0.2.128/25'"),
            "subnets: 192.0.2.128/25 overlaps another one"
        );
        assert!(error_of("network = '192.0.2.0/24'\nrange = []").contains("range"));
    }
}
