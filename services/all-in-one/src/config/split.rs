//! Which services are here, and where the others are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Deserialize;
use tonic::transport::Uri;

use super::Flags;

/// A service that can be elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Machines.
    Hardware,
    /// What occupies them.
    Instance,
    /// What is done on them.
    Workflow,
    /// Their BMCs.
    Power,
    /// DHCP, TFTP and boot HTTP.
    Netboot,
    /// What systems are told of themselves.
    Metadata,
}

impl Service {
    /// Whom it cannot do without. Metadata asks netboot, too, where that is said to be somewhere: for what it lends.
    fn asks(self) -> &'static [Self] {
        match self {
            Self::Hardware => &[Self::Instance],
            Self::Instance => &[Self::Hardware, Self::Workflow, Self::Power],
            Self::Workflow => &[Self::Hardware, Self::Power],
            Self::Power => &[],
            Self::Netboot => &[Self::Hardware, Self::Instance, Self::Workflow],
            Self::Metadata => &[Self::Hardware, Self::Instance],
        }
    }

    /// Whether it owns what the others are told of. The others are edges.
    fn owns(self) -> bool {
        match self {
            Self::Hardware | Self::Instance | Self::Workflow | Self::Power => true,
            Self::Netboot | Self::Metadata => false,
        }
    }

    /// Whether it keeps records.
    fn keeps(self) -> bool {
        self.owns() || self == Self::Netboot
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hardware => "hardware",
            Self::Instance => "instance",
            Self::Workflow => "workflow",
            Self::Power => "power",
            Self::Netboot => "netboot",
            Self::Metadata => "metadata",
        })
    }
}

/// Where a service is, or all that are not named are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Peer {
    /// Which; all others without it.
    pub service: Option<Service>,
    /// Where: scheme, host and port.
    pub url: Uri,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (service, url) = match text.split_once('=') {
            Some((name, url)) => (Some(Service::from_str(name, false)?), url),
            None => (None, text),
        };
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
        if !matches!(uri.scheme_str(), Some("https" | "http")) {
            return Err(format!("{url} is neither https:// nor http://"));
        }
        match uri.path_and_query().map(|path| path.as_str()) {
            None | Some("/") => Ok(Self { service, url: uri }),
            Some(_) => Err(format!("{url} has a path: only scheme, host and port are wanted")),
        }
    }
}

impl TryFrom<String> for Peer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Which services are here, and where the others are.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// Those that are here, if not all are.
    pub only: Option<BTreeSet<Service>>,
    peers: BTreeMap<Service, Uri>,
}

impl Split {
    /// What was said, checked. In clear a peer may be spoken to only without `tls`.
    pub(super) fn load(flags: &Flags, file: &Flags, tls: bool) -> anyhow::Result<Self> {
        let only = flags.only.clone().or(file.only.clone());
        let only = only.map(|only| only.into_iter().collect::<BTreeSet<_>>());
        anyhow::ensure!(only.as_ref().is_none_or(|only| !only.is_empty()), "only is empty");
        let said = flags.peers.clone().or(file.peers.clone()).unwrap_or_default();
        let idle = only.is_none() && !said.is_empty();
        anyhow::ensure!(!idle, "peers is given, but only is not: every service is served here");
        let (mut split, mut others) = (Self { only, peers: BTreeMap::new() }, None);
        for Peer { service, url } in said {
            let clear = url.scheme_str() == Some("http");
            anyhow::ensure!(!(clear && tls), "peers: {url} is in clear: say insecure if it shall");
            let before = match service {
                None => others.replace(url),
                Some(service) => {
                    anyhow::ensure!(service.keeps(), "peers names {service}, which nobody asks");
                    split.peers.insert(service, url)
                }
            };
            let name = service.map_or_else(|| "the others".into(), |service| service.to_string());
            anyhow::ensure!(before.is_none(), "peers says twice where {name} is");
        }
        // What is here is asked here: one file may tell several processes where all are.
        let Self { only, peers } = &mut split;
        peers.retain(|service, _| only.as_ref().is_some_and(|only| !only.contains(service)));
        split.complete(others.as_ref())
    }

    /// With `others` for whoever is asked from here and was not named.
    fn complete(mut self, others: Option<&Uri>) -> anyhow::Result<Self> {
        let all = Service::value_variants().iter().copied();
        let here: Vec<_> = all.filter(|service| self.serves(*service)).collect();
        for asker in here {
            for asked in asker.asks() {
                if self.serves(*asked) || self.peers.contains_key(asked) {
                    continue;
                }
                let url = others.with_context(|| {
                    format!("{asker} asks {asked}, which is not served here: say where in peers")
                })?;
                self.peers.insert(*asked, url.clone());
            }
        }
        Ok(self)
    }

    /// Whether `service` is here.
    pub fn serves(&self, service: Service) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&service))
    }

    /// Whether a service is here that owns what the others are told of.
    pub fn owns(&self) -> bool {
        let mut all = Service::value_variants().iter();
        all.any(|service| service.owns() && self.serves(*service))
    }

    /// Whether a service is here that keeps records.
    pub fn keeps(&self) -> bool {
        let mut all = Service::value_variants().iter();
        all.any(|service| service.keeps() && self.serves(*service))
    }

    /// Where `service` is, if it is asked from here and is not here.
    pub fn peer(&self, service: Service) -> Option<&Uri> {
        self.peers.get(&service)
    }

    /// Passes if machines can be told where their workers find the workflow service.
    pub(super) fn reached_by_machines(&self) -> anyhow::Result<()> {
        let Some(peer) = self.peer(Service::Workflow) else { return Ok(()) };
        let host = peer.host().unwrap_or_default();
        anyhow::ensure!(
            !super::is_local(peer),
            "peers: machines that netboot boots do not reach workflow at {host}"
        );
        Ok(())
    }
}
