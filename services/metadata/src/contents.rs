//! The documents that a machine can read, by path.
//!
//! ```text
//! /nocloud/…               cloud-init's seed: meta-data, user-data, vendor-data, network-config
//! /openstack/…             OpenStack's documents
//! /metadata  /userdata     Tinkerbell's and Equinix Metal's
//! /instance-identity.pem   the certificate that verifies signatures of identity documents
//! custom endpoints         the result of a filter over Tinkerbell's document (see [`Endpoints`])
//! other paths              the EC2 tree
//! ```
//!
//! All documents are made from the same [`Machine`], so they agree.

pub mod document;
mod nocloud;
mod openstack;

use std::net::IpAddr;
use std::time::SystemTime;

use axum::http::uri::Authority;
use runtime::boot_token::{BootTokens, Purpose};
use serde_json::Value;

use crate::endpoints::Endpoints;
use crate::machine::{Machine, UserData};
use crate::tree::signed::Signer;
use crate::tree::{self, Body, Kind};

/// The address of this service for clients that send no `Host`.
const LINK_LOCAL_URL: &str = "http://169.254.169.254";

/// The site's settings for documents.
#[derive(Debug, Default)]
pub struct Contents {
    /// Signs identity documents, if the site has a key for it.
    pub signer: Option<Signer>,
    /// Opens the tokens in boot scripts. A client with such a token may read the root password.
    pub boot_tokens: Option<BootTokens>,
    /// The custom endpoints. Filters take time, so [`Contents::get`] does not serve them.
    pub endpoints: Endpoints,
}

/// The properties of a request that documents depend on.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The `Host` of the request: a host, with or without a port.
    pub host: Option<&'a str>,
    /// True if the client may read the root password (see [`Contents::trusts`]).
    pub trusted: bool,
}

impl RequestContext<'_> {
    /// Returns the URL of this service, without a path, by the client's name for it.
    fn base_url(&self) -> String {
        let host = self.host.and_then(|host| host.parse::<Authority>().ok());
        host.map_or_else(|| LINK_LOCAL_URL.to_owned(), |host| format!("http://{host}"))
    }
}

/// A family of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The EC2 tree.
    Ec2,
    /// cloud-init's seed, of the machine with the client's address or with the lookup id in the path.
    NoCloud,
    /// OpenStack's documents.
    OpenStack,
    /// Tinkerbell's and Equinix Metal's.
    Json,
}

impl Contents {
    /// Returns the document at `path` for `machine`, if there is one.
    pub fn get(&self, machine: &Machine, path: &[&str], context: RequestContext) -> Option<Body> {
        match path {
            ["nocloud", rest @ ..] => nocloud::get(machine, without_lookup_id(rest)),
            ["openstack", rest @ ..] => openstack::get(machine, rest),
            ["metadata"] => Some(Body::json(&document::whole(machine, context))),
            ["userdata"] => machine.user_data().map(Body::octets),
            ["instance-identity.pem"] => {
                Some(self.signer.as_ref()?.certificate().to_owned().into())
            }
            _ => tree::get(machine, path, self.signer.as_ref()),
        }
    }

    /// Returns the family of `path`.
    pub fn family(&self, path: &[&str]) -> Family {
        match path {
            ["nocloud", ..] => Family::NoCloud,
            ["openstack", ..] => Family::OpenStack,
            ["metadata" | "userdata"] => Family::Json,
            _ if self.endpoints.at(path).is_some() => Family::Json,
            _ => Family::Ec2,
        }
    }

    /// True if the document at `path` is secret: see `docs/reference/ec2-metadata.md`.
    pub fn is_secret(&self, path: &[&str]) -> bool {
        match self.family(path) {
            Family::Ec2 => tree::is_secret(path),
            // They contain user data, vendor data and keys.
            Family::NoCloud | Family::OpenStack | Family::Json => true,
        }
    }

    /// True if `token` is a valid token of a boot script for `machine` at `address`: the client is our installer.
    pub fn trusts(&self, machine: &Machine, address: IpAddr, token: &str, now: SystemTime) -> bool {
        let opened = self.boot_tokens.as_ref();
        let opened = opened.and_then(|tokens| tokens.open(Purpose::Identity, token, now).ok());
        opened.is_some_and(|opened| {
            (opened.claims.hardware, opened.claims.address) == (machine.id, address)
        })
    }
}

/// True if `path` is reserved for documents, so that no custom endpoint may have it.
pub(crate) fn is_reserved(path: &[&str]) -> bool {
    match path {
        [] | ["nocloud" | "openstack", ..] => true,
        ["metadata" | "userdata" | "instance-identity.pem"] => true,
        [version, ..] => tree::is_version(version),
    }
}

/// Returns the lookup id in `path`, if there is one: `/nocloud/<lookup id>/…`.
pub fn lookup_id<'a>(path: &[&'a str]) -> Option<&'a str> {
    match path {
        ["nocloud", name, ..] if is_lookup_id(name) => Some(*name),
        _ => None,
    }
}

/// Returns `path` for logs, without the lookup id, which is a secret.
pub fn redacted(path: &str) -> String {
    let mut segments: Vec<_> = path.split('/').collect();
    for segment in segments.iter_mut().filter(|segment| is_lookup_id(segment)) {
        *segment = "…";
    }
    segments.join("/")
}

fn without_lookup_id<'p, 'a>(path: &'p [&'a str]) -> &'p [&'a str] {
    match path {
        [name, rest @ ..] if is_lookup_id(name) => rest,
        _ => path,
    }
}

/// True for 128 bits in hexadecimal digits.
fn is_lookup_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Body {
    /// A body of the owner's bytes.
    pub(crate) fn octets(data: UserData) -> Self {
        Self { bytes: data.0, kind: Kind::Octets }
    }

    /// A body of JSON.
    pub(crate) fn json(value: &Value) -> Self {
        Self { bytes: value.to_string().into(), kind: Kind::Json }
    }

    /// A body of YAML.
    fn yaml(value: &Value) -> Self {
        Self { bytes: yaml::document(value).into(), kind: Kind::Yaml }
    }
}

#[cfg(test)]
mod tests;
