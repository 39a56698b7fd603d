//! The options of the metadata service, besides `metadata_listen`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::Context as _;
use clap::ValueEnum;
use metadata::Endpoints;
use runtime::client_address::TrustedProxies;
use runtime::neighbour::SourceCheck;
use runtime::network;
use serde::Deserialize;

use super::{Options, Service, Split};

/// The identification of callers, as the operator names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// By the Ethernet address if the caller is on our link, otherwise by the IP address alone.
    #[default]
    OnLink,
    /// By the IP address alone.
    Address,
    /// By the Ethernet address: the caller must be on our link.
    Neighbour,
}

impl From<Source> for SourceCheck {
    fn from(source: Source) -> Self {
        match source {
            Source::OnLink => Self::OnLink,
            Source::Address => Self::Address,
            Source::Neighbour => Self::Neighbour,
        }
    }
}

/// Paths with their filters: a section of the file, or one JSON object in a text, as in Hegel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "PathsFormat")]
pub struct Paths(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum PathsFormat {
    Json(String),
    Section(BTreeMap<String, String>),
}

impl TryFrom<PathsFormat> for Paths {
    type Error = serde_json::Error;

    fn try_from(paths: PathsFormat) -> Result<Self, Self::Error> {
        match paths {
            PathsFormat::Json(text) => text.parse(),
            PathsFormat::Section(paths) => Ok(Self(paths)),
        }
    }
}

impl FromStr for Paths {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

/// Checked settings of the metadata service.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The interface that gets 169.254.169.254.
    pub link_local: Option<String>,
    /// Addresses of Hegel's gRPC.
    pub grpc_listen: Vec<SocketAddr>,
    /// The identification of callers.
    pub source_check: SourceCheck,
    /// The paths that the site adds.
    pub endpoints: Endpoints,
    /// Proxies that are trusted to name the caller.
    pub trusted_proxies: TrustedProxies,
    /// True if user data and keys are withheld from forwarded requests.
    pub refuse_forwarded: bool,
    /// The accepted host names; empty for any.
    pub allowed_hosts: Vec<String>,
}

impl Metadata {
    /// Checks the options. Returns the default if another process serves metadata.
    pub(super) fn new(options: &Options, split: &Split) -> anyhow::Result<Self> {
        if !split.serves(Service::Metadata) {
            return Ok(Self::default());
        }
        let Paths(paths) = options.metadata_custom_endpoints.clone().unwrap_or_default();
        let proxies = &options.metadata_trusted_proxies;
        Ok(Self {
            link_local: options.metadata_link_local.clone(),
            grpc_listen: options.metadata_grpc_listen.clone(),
            source_check: options.metadata_source_check.into(),
            endpoints: Endpoints::new(&paths, metadata::is_reserved_path)
                .context("metadata_custom_endpoints")?,
            trusted_proxies: trusted(proxies).context("metadata_trusted_proxies")?,
            refuse_forwarded: options.metadata_refuse_forwarded,
            allowed_hosts: options.metadata_allowed_hosts.clone(),
        })
    }

    /// True if the service has addresses besides `metadata_listen`.
    pub(super) fn listens(&self) -> bool {
        self.link_local.is_some() || !self.grpc_listen.is_empty()
    }
}

pub(super) fn trusted(networks: &[String]) -> anyhow::Result<TrustedProxies> {
    let networks =
        networks.iter().map(|text| network::parse(text)).collect::<Result<Vec<_>, _>>()?;
    Ok(TrustedProxies::new(networks)?)
}
