//! What is said of the networks in which addresses are lent, checked: the sections `[[subnets]]` of the file.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use netboot::pool::{Range, Subnet, Unknown};
use serde::Deserialize;

/// A network, as it is said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// As `ADDRESS/BITS`.
    pub network: String,
    /// Its default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// What is lent, as `FIRST-LAST`.
    #[serde(default)]
    pub ranges: Vec<String>,
    /// What of it is not.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// For how long; an hour if it is not said.
    pub lease_seconds: Option<u64>,
    /// Name servers of machines whose record names none.
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
    /// NTP servers of machines whose record names none.
    #[serde(default)]
    pub time_servers: Vec<Ipv4Addr>,
    /// Domain of machines whose record names none.
    pub domain: Option<String>,
    /// What is done with machines without a record.
    #[serde(default)]
    pub unknown: Policy,
}

/// What is done with machines without a record, as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing.
    #[default]
    Ignore,
    /// The log tells of them.
    Report,
    /// An address, and the generic script.
    Enrol,
    /// The generic script, without an address.
    Generic,
}

impl From<Policy> for Unknown {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Ignore => Self::Ignore,
            Policy::Report => Self::Report,
            Policy::Enrol => Self::Enrol,
            Policy::Generic => Self::Generic,
        }
    }
}

/// The networks that were said, checked.
pub(super) fn checked(said: Vec<Said>) -> anyhow::Result<Vec<Subnet>> {
    let mut subnets: Vec<Subnet> = Vec::new();
    for one in said {
        let name = one.network.clone();
        let subnet = subnet(one).with_context(|| format!("subnets: {name}"))?;
        let meets = |other: &Subnet| super::overlap(subnet.network, other.network);
        anyhow::ensure!(!subnets.iter().any(meets), "subnets: {name} overlaps another one");
        subnets.push(subnet);
    }
    Ok(subnets)
}

fn subnet(said: Said) -> anyhow::Result<Subnet> {
    let ranges = |field: &str, texts: Vec<String>| -> anyhow::Result<Vec<Range>> {
        let read = |text: String| text.parse().with_context(|| field.to_owned());
        texts.into_iter().map(read).collect()
    };
    let network: Ipv4Net = said.network.parse().context("network")?;
    let subnet = Subnet {
        gateway: said.gateway,
        excluded: ranges("excluded", said.excluded)?,
        lease: Duration::from_secs(said.lease_seconds.unwrap_or(3600)),
        name_servers: said.name_servers,
        time_servers: said.time_servers,
        domain: said.domain.map_or(Ok(String::new()), |name| {
            tinwright::check::hostname(&name).context("domain")
        })?,
        unknown: said.unknown.into(),
        ..Subnet::new(network, ranges("ranges", said.ranges)?)
    };
    subnet.check()?;
    let lends = !subnet.is_empty();
    anyhow::ensure!(lends || subnet.unknown != Unknown::Enrol, "ranges: enrolling takes addresses");
    Ok(subnet)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Deserialize)]
    struct File {
        subnets: Vec<Said>,
    }

    fn load(text: &str) -> anyhow::Result<Vec<Subnet>> {
        checked(toml::from_str::<File>(text)?.subnets)
    }

    #[test]
    fn everything_that_can_be_said_reaches_the_subnet() {
        let subnets = load(
            "[[subnets]]\nnetwork = '192.0.2.0/24'\ngateway = '192.0.2.1'\nranges = ['192.0.2.100-192.0.2.199']\n\
             excluded = ['192.0.2.150']\nlease_seconds = 600\nname_servers = ['192.0.2.53']\n\
             time_servers = ['192.0.2.123']\ndomain = 'lab.example'\nunknown = 'enrol'\n\
             [[subnets]]\nnetwork = '198.51.100.0/24'",
        )
        .unwrap();
        let [first, second] = &subnets[..] else { panic!("two") };
        assert_eq!((first.gateway, first.len()), (Some([192, 0, 2, 1].into()), 100));
        assert!(first.lends([192, 0, 2, 151].into()) && !first.lends([192, 0, 2, 150].into()));
        assert_eq!((first.lease.as_secs(), first.unknown), (600, Unknown::Enrol));
        assert_eq!(first.name_servers, [Ipv4Addr::new(192, 0, 2, 53)]);
        assert_eq!(first.time_servers, [Ipv4Addr::new(192, 0, 2, 123)]);
        assert_eq!(first.domain, "lab.example");
        assert_eq!((second.lease.as_secs(), second.unknown), (3600, Unknown::Ignore));
    }

    #[test]
    fn what_cannot_be_served_is_refused_by_name() {
        let why = |text: &str| format!("{:#}", load(&format!("[[subnets]]\n{text}")).unwrap_err());
        assert_eq!(
            why("network = '192.0.2.0/24'\nranges = ['198.51.100.1-198.51.100.9']"),
            "subnets: 192.0.2.0/24: ranges: 198.51.100.1-198.51.100.9 is not in the network"
        );
        assert_eq!(
            why("network = '192.0.2.0/24'\nunknown = 'enrol'"),
            "subnets: 192.0.2.0/24: ranges: enrolling takes addresses"
        );
        assert_eq!(
            why("network = '192.0.2.0/24'\n[[subnets]]\nnetwork = '192.0.2.128/25'"),
            "subnets: 192.0.2.128/25 overlaps another one"
        );
        assert!(why("network = '192.0.2.0/24'\nrange = []").contains("range"));
    }
}
