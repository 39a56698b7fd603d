//! Bundles: one file with all that a colleague needs to call a server, in YAML.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tonic::transport::Uri;

use crate::input;

/// The first lines of a bundle, for its reader.
const HEADER: &str = "# Access to a site, with a private key. Use it with: tinwright context add NAME --bundle FILE\n";

/// A server, the authority to trust, and the caller's certificate with its key.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bundle {
    /// URLs of the server and of its replicas; none if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The certificate authority (PEM).
    pub ca: String,
    /// The certificate (PEM).
    pub certificate: String,
    /// Its private key (PEM).
    pub key: String,
}

impl Bundle {
    /// Returns the text of the file.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        Ok(format!("{HEADER}{}", yaml::to_string(self)?))
    }

    /// Reads the file at `path`; standard input for `-`. Errors do not quote it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let parsed = yaml_serde::from_str(&input::text(path)?).ok();
        parsed.with_context(|| {
            format!("{} is not a bundle: `tinwright identity issue` prints one", path.display())
        })
    }
}

/// Returns the `servers` that other computers can call: none on this host's loopback.
pub(crate) fn reachable(mut servers: Vec<String>) -> Vec<String> {
    servers.retain(|url| {
        let parsed = url.parse::<Uri>().ok();
        let host = parsed.as_ref().and_then(Uri::host).unwrap_or("localhost");
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => !address.is_loopback(),
            Err(_) => host != "localhost",
        }
    });
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_that_others_can_call_are_in_a_bundle() {
        let urls = [
            "https://127.0.0.1:42113",
            "https://[::1]:1",
            "https://localhost:1",
            "https://192.0.2.1:42113",
            "https://[2001:db8::1]:1",
            "https://rack.lab",
        ];
        let left = reachable(urls.map(str::to_owned).into());
        assert_eq!(left, urls[3..]);
    }

    #[test]
    fn a_bundle_is_read_as_it_was_written_and_another_file_is_refused_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anna.bundle");
        let pem = "-----BEGIN X-----\nabc\n-----END X-----\n".to_owned();
        let bundle = Bundle {
            servers: vec!["https://rack.lab".into()],
            ca: pem.clone(),
            certificate: pem.clone(),
            key: pem,
        };
        std::fs::write(&path, bundle.text().unwrap()).unwrap();
        assert!(Bundle::read(&path).unwrap() == bundle);
        std::fs::write(&path, "key: hunter2").unwrap();
        let refused = Bundle::read(&path).err().unwrap().to_string();
        assert!(refused.contains("is not a bundle") && !refused.contains("hunter2"), "{refused}");
    }
}
