//! What may be said of the metadata service besides where it listens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::Context as _;
use clap::ValueEnum;
use metadata::Endpoints;
use metadata::guard::SourceCheck;
use runtime::client_address::TrustedProxies;
use runtime::network;
use serde::Deserialize;

use super::{Flags, Service, Split};

/// What a machine is known by besides its address, as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// By its Ethernet address where it is on our link, else by its address alone.
    #[default]
    OnLink,
    /// By its address alone.
    Address,
    /// By its Ethernet address, so that it has to be on our link.
    Neighbour,
}

/// Paths with their filters, as they are said: by Hegel's users in one JSON object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Paths(BTreeMap<String, String>);

impl FromStr for Paths {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// The metadata service, checked.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The interface that is given 169.254.169.254.
    pub link_local: Option<String>,
    /// Where Hegel's gRPC listens.
    pub grpc_listen: Vec<SocketAddr>,
    /// What machines are known by.
    pub source_check: SourceCheck,
    /// The site's own paths.
    pub endpoints: Endpoints,
    /// Whose word on who asks is believed.
    pub trusted_proxies: TrustedProxies,
    /// Whether secrets are kept from what was passed on.
    pub refuse_forwarded: bool,
    /// The hosts that may be asked for; empty for any.
    pub allowed_hosts: Vec<String>,
}

impl Metadata {
    /// What `flags` or else `file` say; nothing where the service is not here.
    pub(super) fn load(flags: &Flags, file: &Flags, split: &Split) -> anyhow::Result<Self> {
        if !split.serves(Service::Metadata) {
            return Ok(Self::default());
        }
        let source = flags.metadata_source_check.or(file.metadata_source_check).unwrap_or_default();
        let grpc = flags.metadata_grpc_listen.as_ref().or(file.metadata_grpc_listen.as_ref());
        let own = &flags.metadata_custom_endpoints;
        let Paths(own) =
            own.as_ref().or(file.metadata_custom_endpoints.as_ref()).cloned().unwrap_or_default();
        let proxies = flags.metadata_trusted_proxies.clone();
        let proxies = proxies.or(file.metadata_trusted_proxies.clone()).unwrap_or_default();
        let hosts = flags.metadata_allowed_hosts.clone();
        let refuse = flags.metadata_refuse_forwarded.or(file.metadata_refuse_forwarded);
        Ok(Self {
            link_local: flags.metadata_link_local.clone().or(file.metadata_link_local.clone()),
            grpc_listen: grpc.cloned().unwrap_or_default(),
            source_check: match source {
                Source::OnLink => SourceCheck::OnLink,
                Source::Address => SourceCheck::Address,
                Source::Neighbour => SourceCheck::Neighbour,
            },
            endpoints: Endpoints::new(&own, metadata::is_reserved_path)
                .context("metadata_custom_endpoints")?,
            trusted_proxies: trusted(proxies).context("metadata_trusted_proxies")?,
            refuse_forwarded: refuse.unwrap_or(true),
            allowed_hosts: hosts.or(file.metadata_allowed_hosts.clone()).unwrap_or_default(),
        })
    }

    /// Whether it listens anywhere, besides where `metadata_listen` says.
    pub(super) fn listens(&self) -> bool {
        self.link_local.is_some() || !self.grpc_listen.is_empty()
    }
}

/// The proxies at `networks`.
fn trusted(networks: Vec<String>) -> anyhow::Result<TrustedProxies> {
    let networks =
        networks.iter().map(|text| network::parse(text)).collect::<Result<Vec<_>, _>>()?;
    Ok(TrustedProxies::new(networks)?)
}
