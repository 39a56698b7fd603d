//! Everything a machine may read, by path.
//!
//! ```text
//! /nocloud/…               cloud-init's seed: meta-data, user-data, vendor-data, network-config
//! /openstack/…             OpenStack's documents
//! /metadata  /userdata     Tinkerbell's and Equinix Metal's
//! /instance-identity.pem   by what the signatures under identity documents are checked
//! the site's own           what a filter makes of Tinkerbell's document (see [`Endpoints`])
//! anything else            the EC2 tree
//! ```
//!
//! All of it is said of the same [`Machine`], so no two documents can disagree.

pub mod document;
mod nocloud;
mod openstack;
mod tags;
mod yaml;

use std::net::IpAddr;
use std::time::SystemTime;

use axum::http::uri::Authority;
use runtime::boot_token::{BootTokens, Purpose};
use serde_json::Value;

use crate::endpoints::Endpoints;
use crate::machine::{Machine, UserData};
use crate::tree::signed::Signer;
use crate::tree::{self, Body, Kind};

/// Where machines find us who were told nothing else.
const LINK_LOCAL: &str = "http://169.254.169.254";

/// What the site adds to what machines are told.
#[derive(Debug, Default)]
pub struct Contents {
    /// Signs identity documents, where the site has a key for that.
    pub signer: Option<Signer>,
    /// Opens what boot scripts carry: who shows that may be told secrets.
    pub boot_tokens: Option<BootTokens>,
    /// The site's own paths. What stands there takes time to make, so [`Contents::get`] knows nothing of them.
    pub endpoints: Endpoints,
}

/// How it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What the client calls us, if it said so: a host, with or without a port.
    pub host: Option<&'a str>,
    /// Whether whoever asks has shown that it may be told secrets (see [`Contents::trusts`]).
    pub trusted: bool,
}

impl Asked<'_> {
    /// Where we are, as the client calls us: a URL without a path.
    fn base(&self) -> String {
        let named = self.host.and_then(|host| host.parse::<Authority>().ok());
        named.map_or_else(|| LINK_LOCAL.to_owned(), |host| format!("http://{host}"))
    }
}

/// A family of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// EC2's tree.
    Ec2,
    /// cloud-init's seed, of the machine that asks, or of the one that has a secret name.
    NoCloud,
    /// OpenStack's documents.
    OpenStack,
    /// Tinkerbell's and Equinix Metal's.
    Json,
}

impl Contents {
    /// What `machine` finds at `path`, or `None` if there is nothing.
    pub fn get(&self, machine: &Machine, path: &[&str], asked: Asked) -> Option<Body> {
        match path {
            ["nocloud", rest @ ..] => nocloud::get(machine, without_name(rest)),
            ["openstack", rest @ ..] => openstack::get(machine, rest),
            ["metadata"] => Some(Body::json(&document::whole(machine, asked))),
            ["userdata"] => machine.user_data().map(Body::octets),
            ["instance-identity.pem"] => {
                Some(self.signer.as_ref()?.certificate().to_owned().into())
            }
            _ => tree::get(machine, path, self.signer.as_ref()),
        }
    }

    /// Which family `path` belongs to.
    pub fn family(&self, path: &[&str]) -> Family {
        match path {
            ["nocloud", ..] => Family::NoCloud,
            ["openstack", ..] => Family::OpenStack,
            ["metadata" | "userdata"] => Family::Json,
            _ if self.endpoints.at(path).is_some() => Family::Json,
            _ => Family::Ec2,
        }
    }

    /// Whether what stands at `path` must not be told to somebody who asks through the machine (specification, M2a).
    pub fn is_secret(&self, path: &[&str]) -> bool {
        match self.family(path) {
            Family::Ec2 => tree::is_secret(path),
            // User data, vendor data and keys are all over them.
            Family::NoCloud | Family::OpenStack | Family::Json => true,
        }
    }

    /// Whether `token` is one that a boot script gave to `machine`, at `address`, and not long ago: the machine is being
    /// installed by us.
    pub fn trusts(&self, machine: &Machine, address: IpAddr, token: &str, now: SystemTime) -> bool {
        let opened = self.boot_tokens.as_ref();
        let opened = opened.and_then(|tokens| tokens.open(Purpose::Identity, token, now).ok());
        opened.is_some_and(|opened| {
            (opened.claims.hardware, opened.claims.address) == (machine.id, address)
        })
    }
}

/// Whether something stands at `path`, or may, whatever the site adds.
pub(crate) fn is_ours(path: &[&str]) -> bool {
    match path {
        [] | ["nocloud" | "openstack", ..] => true,
        ["metadata" | "userdata" | "instance-identity.pem"] => true,
        [version, ..] => tree::is_version(version),
    }
}

/// The secret name of a machine that `path` has, where it has one: `/nocloud/<lookup id>/…`.
pub fn lookup_id<'a>(path: &[&'a str]) -> Option<&'a str> {
    match path {
        ["nocloud", name, ..] if is_lookup_id(name) => Some(*name),
        _ => None,
    }
}

/// `path` as a log may show it: a secret name opens what it names.
pub fn shown(path: &str) -> String {
    let mut segments: Vec<_> = path.split('/').collect();
    for segment in segments.iter_mut().filter(|segment| is_lookup_id(segment)) {
        *segment = "…";
    }
    segments.join("/")
}

fn without_name<'p, 'a>(path: &'p [&'a str]) -> &'p [&'a str] {
    match path {
        [name, rest @ ..] if is_lookup_id(name) => rest,
        _ => path,
    }
}

/// 128 bits in hex.
fn is_lookup_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Body {
    /// An owner's bytes.
    pub(crate) fn octets(data: UserData) -> Self {
        Self { bytes: data.0, kind: Kind::Octets }
    }

    /// A JSON value.
    pub(crate) fn json(value: &Value) -> Self {
        Self { bytes: value.to_string().into(), kind: Kind::Json }
    }

    /// The same value in YAML.
    fn yaml(value: &Value) -> Self {
        Self { bytes: yaml::text(value).into(), kind: Kind::Yaml }
    }
}

#[cfg(test)]
mod tests;
