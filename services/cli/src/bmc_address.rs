//! Addresses of BMCs, as people write them.

use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::{Ipmi, Protocol, Redfish};

/// The scheme of an address over IPMI.
const IPMI_SCHEME: &str = "ipmi://";
/// The path below which a Redfish service has its systems.
const SYSTEMS: &str = "/redfish/v1/Systems/";

/// Parses the URL of a Redfish service, which may name a system by its path, or ipmi://HOST\[:PORT\].
pub(crate) fn protocol(address: &str) -> anyhow::Result<Protocol> {
    if let Some(host) = address.strip_prefix(IPMI_SCHEME) {
        return Ok(Protocol::Ipmi(ipmi(host.trim_end_matches('/'), None)?));
    }
    anyhow::ensure!(
        address.starts_with("https://") || address.starts_with("http://"),
        "{address:?} is not the address of a BMC: https://HOST[:PORT] or ipmi://HOST[:PORT]"
    );
    let (url, system) = address.split_once(SYSTEMS).unwrap_or((address, ""));
    let system_id = system.trim_end_matches('/').to_owned();
    Ok(Protocol::Redfish(Redfish { url: url.to_owned(), system_id, ..Redfish::default() }))
}

/// Parses HOST, HOST:PORT, an IPv6 address or \[ADDRESS\]:PORT.
pub(crate) fn ipmi(address: &str, cipher_suite: Option<u32>) -> anyhow::Result<Ipmi> {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port: u16 = port.parse().map_err(|_| anyhow::anyhow!("{port:?} is not a port"))?;
            (host, u32::from(port))
        }
        Some(_) | None => (address, 0),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Ipmi { host, port, cipher_suite: cipher_suite.unwrap_or_default() })
}

/// Returns the address of `bmc`.
pub(crate) fn text(bmc: &pb::Bmc) -> String {
    match &bmc.protocol {
        Some(Protocol::Redfish(redfish)) => redfish.url.clone(),
        Some(Protocol::Ipmi(Ipmi { host, port: 0, .. })) => format!("ipmi://{host}"),
        Some(Protocol::Ipmi(Ipmi { host, port, .. })) if host.contains(':') => {
            format!("ipmi://[{host}]:{port}")
        }
        Some(Protocol::Ipmi(Ipmi { host, port, .. })) => format!("ipmi://{host}:{port}"),
        None => String::new(), // a protocol that only a newer server knows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipmi_address_may_have_a_port() {
        for (text, host, port) in [
            ("192.0.2.1", "192.0.2.1", 0),
            ("bmc1:6230", "bmc1", 6230),
            ("2001:db8::1", "2001:db8::1", 0),
            ("[2001:db8::1]:623", "2001:db8::1", 623),
        ] {
            let ipmi = ipmi(text, None).unwrap();
            assert_eq!((ipmi.host.as_str(), ipmi.port), (host, port));
        }
        assert!(ipmi("bmc1:x", None).is_err());
    }

    #[test]
    fn the_scheme_selects_the_protocol_and_the_path_the_system() {
        let redfish = |text| match protocol(text).unwrap() {
            Protocol::Redfish(redfish) => (redfish.url, redfish.system_id),
            Protocol::Ipmi(_) => panic!("{text}"),
        };
        let url = "https://192.0.2.1:8000".to_owned();
        assert_eq!(redfish("https://192.0.2.1:8000"), (url.clone(), String::new()));
        let system = "https://192.0.2.1:8000/redfish/v1/Systems/node7/";
        assert_eq!(redfish(system), (url, "node7".into()));
        assert!(matches!(protocol("ipmi://bmc1:6230").unwrap(), Protocol::Ipmi(_)));
        for wrong in ["192.0.2.1", "ftp://192.0.2.1", "ipmi://bmc1:x", ""] {
            assert!(protocol(wrong).is_err(), "{wrong}");
        }
    }
}
