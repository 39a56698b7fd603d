//! The options of the gateway.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use runtime::client_address::TrustedProxies;

use super::{Options, Service, Split, metadata};

/// The word that stands for no address.
const NONE: &str = "none";
/// The port that is recommended for an address without one.
const USUAL_PORT: u16 = 8080;

/// Checked settings of the gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its addresses, besides inherited sockets.
    pub listen: Vec<SocketAddr>,
    /// The security of its connections.
    pub transport: GatewayTransport,
    /// Proxies that are trusted to name the client's address.
    pub trusted_proxies: TrustedProxies,
    /// True if the listings of IAL need credentials.
    pub ial_catalogue_private: bool,
}

/// The security of the gateway's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayTransport {
    /// TLS with a certificate of the site's authority.
    Site,
    /// TLS with the operator's certificate.
    KeyPair {
        /// The certificate chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// No TLS, on loopback.
    Plaintext,
}

impl Gateway {
    /// Checks the options. Returns none if no gateway is served here.
    pub(super) fn new(options: &Options, split: &Split) -> anyhow::Result<Option<Self>> {
        let listen = &options.gateway_listen;
        if !split.serves(Service::Gateway) || listen.iter().any(|address| address == NONE) {
            let alone = listen.len() <= 1 || !listen.iter().any(|address| address == NONE);
            anyhow::ensure!(alone, "gateway_listen has addresses besides {NONE}");
            return Ok(None);
        }
        let address = |text: &String| match text.parse::<IpAddr>() {
            Ok(address) => {
                let address = SocketAddr::from((address, USUAL_PORT));
                anyhow::bail!("gateway_listen: add a port: {address}")
            }
            Err(_) => text.parse().with_context(|| format!("gateway_listen: {text:?}")),
        };
        let listen = listen.iter().map(address).collect::<anyhow::Result<Vec<SocketAddr>>>()?;
        let transport = transport(options)?;
        let exposed = listen.iter().find(|address| !address.ip().is_loopback());
        if let (GatewayTransport::Plaintext, Some(exposed)) = (&transport, exposed) {
            anyhow::bail!(
                "gateway_plaintext is for loopback only, but gateway_listen is {exposed}"
            );
        }
        let proxies = metadata::trusted(&options.gateway_trusted_proxies);
        let trusted_proxies = proxies.context("gateway_trusted_proxies")?;
        let ial_catalogue_private = options.gateway_ial_catalogue_private;
        Ok(Some(Self { listen, transport, trusted_proxies, ial_catalogue_private }))
    }
}

fn transport(options: &Options) -> anyhow::Result<GatewayTransport> {
    let Options { gateway_certificate, gateway_key, gateway_plaintext, .. } = options;
    match (gateway_certificate.clone(), gateway_key.clone(), gateway_plaintext) {
        (None, None, true) => Ok(GatewayTransport::Plaintext),
        (None, None, false) => Ok(GatewayTransport::Site),
        (Some(certificate), Some(key), false) => Ok(GatewayTransport::KeyPair { certificate, key }),
        (_, _, true) => anyhow::bail!("gateway_plaintext is given besides a certificate"),
        (Some(_), None, false) => {
            anyhow::bail!("gateway_certificate is given, but gateway_key is not")
        }
        (None, Some(_), false) => {
            anyhow::bail!("gateway_key is given, but gateway_certificate is not")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    fn gateway(text: &str) -> Result<Option<Gateway>, String> {
        let options = options(text).unwrap();
        let split = Split::new(&options).unwrap();
        Gateway::new(&options, &split).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn it_listens_on_loopback_with_the_sites_certificate_unless_set_otherwise() {
        let default = gateway("").unwrap().unwrap();
        assert_eq!(default.listen, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(default.transport, GatewayTransport::Site);
        assert!(gateway("gateway_listen = ['none']").unwrap().is_none());
        assert!(gateway("gateway_listen = []").unwrap().unwrap().listen.is_empty());
        assert!(gateway("only = ['netboot']\npeers = ['https://a:1']").unwrap().is_none());
        let own = gateway("gateway_certificate = '/c'\ngateway_key = '/k'").unwrap().unwrap();
        let (certificate, key) = ("/c".into(), "/k".into());
        assert_eq!(own.transport, GatewayTransport::KeyPair { certificate, key });
    }

    #[test]
    fn wrong_combinations_are_refused() {
        for (text, error) in [
            ("gateway_listen = 'none,127.0.0.1:1'", "gateway_listen has addresses besides none"),
            ("gateway_listen = ['127.0.0.1']", "gateway_listen: add a port: 127.0.0.1:8080"),
            ("gateway_listen = ['x']", "gateway_listen: \"x\": invalid socket address syntax"),
            (
                "gateway_listen = ['none', '127.0.0.1:1']",
                "gateway_listen has addresses besides none",
            ),
            (
                "gateway_listen = ['0.0.0.0:8080']\ngateway_plaintext = true",
                "gateway_plaintext is for loopback only, but gateway_listen is 0.0.0.0:8080",
            ),
            ("gateway_key = '/k'", "gateway_key is given, but gateway_certificate is not"),
            ("gateway_certificate = '/k'", "gateway_certificate is given, but gateway_key is not"),
            (
                "gateway_certificate = '/c'\ngateway_key = '/k'\ngateway_plaintext = true",
                "gateway_plaintext is given besides a certificate",
            ),
            (
                "gateway_trusted_proxies = ['0.0.0.0/0']",
                "gateway_trusted_proxies: 0.0.0.0/0 would trust everybody: name the proxies themselves",
            ),
        ] {
            assert_eq!(gateway(text).unwrap_err(), error, "{text}");
        }
    }
}
