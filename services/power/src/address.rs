//! The address of a BMC, and the system behind it: no two records have the same.
//!
//! A record without a system means the only one of its BMC, so it shares its machine with any other record of that BMC.

use std::fmt;
use std::net::IpAddr;

use data_encoding::HEXLOWER;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;

/// The UDP port of IPMI over a network (IPMI 2.0, 13.1).
pub(crate) const DEFAULT_IPMI_PORT: u16 = 623;

/// Address of a BMC and its system, in the form in which addresses are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    protocol: &'static str,
    host: String,
    port: u16,
    /// Empty: the only one.
    system: String,
}

impl Address {
    /// Returns the address of `bmc`; none if its record has none.
    pub(crate) fn of(bmc: &pb::Bmc) -> Option<Self> {
        match bmc.protocol.as_ref()? {
            Protocol::Redfish(redfish) => {
                let url: Url = redfish.url.parse().ok()?;
                Some(Self {
                    protocol: "redfish",
                    host: canonical_host(url.host_str()?),
                    port: url.port_or_known_default()?,
                    system: last_segment(&redfish.system_id).to_owned(),
                })
            }
            Protocol::Ipmi(ipmi) => Some(Self {
                protocol: "ipmi",
                host: canonical_host(&ipmi.host),
                port: port(ipmi),
                system: String::new(),
            }),
        }
    }

    /// True if both may be the BMC of one machine.
    pub(crate) fn may_share_machine(&self, other: &Self) -> bool {
        let (own, its) = (&self.system, &other.system);
        self.endpoint() == other.endpoint() && (own == its || own.is_empty() || its.is_empty())
    }

    /// Returns the value of the index of addresses.
    pub(crate) fn key(&self) -> String {
        digest_of(&format!("{}/{}", self.endpoint(), self.system))
    }

    /// Returns the value of the index of BMCs, whatever their systems.
    pub(crate) fn endpoint_key(&self) -> String {
        digest_of(&self.endpoint())
    }

    fn endpoint(&self) -> String {
        format!("{}/{}/{}", self.protocol, self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, host, port, system } = self;
        write!(f, "{protocol} at {host} port {port}")?;
        if !system.is_empty() {
            write!(f, ", system {system}")?;
        }
        Ok(())
    }
}

/// Returns the UDP port of a checked IPMI service.
pub(crate) fn port(ipmi: &pb::bmc::Ipmi) -> u16 {
    u16::try_from(ipmi.port).ok().filter(|port| *port != 0).unwrap_or(DEFAULT_IPMI_PORT)
}

/// Returns a host name in lower case without the root's dot, or an IP address in its shortest form.
fn canonical_host(text: &str) -> String {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => bare.trim_end_matches('.').to_ascii_lowercase(),
    }
}

/// Returns the id of a system that is named by its path.
fn last_segment(system: &str) -> &str {
    system.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Returns a digest: a host name and a system may be longer than a key.
fn digest_of(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redfish(url: &str, system: &str) -> Address {
        let redfish =
            pb::bmc::Redfish { url: url.into(), system_id: system.into(), ..Default::default() };
        Address::of(&pb::Bmc { protocol: Some(Protocol::Redfish(redfish)), ..Default::default() })
            .unwrap()
    }

    fn ipmi(host: &str, port: u32) -> Address {
        let ipmi = pb::bmc::Ipmi { host: host.into(), port, ..Default::default() };
        Address::of(&pb::Bmc { protocol: Some(Protocol::Ipmi(ipmi)), ..Default::default() })
            .unwrap()
    }

    #[test]
    fn spellings_of_one_address_are_one() {
        let one = redfish("https://bmc1.example.org", "");
        assert_eq!(one, redfish("https://BMC1.example.org.:443", ""));
        assert_eq!(redfish("https://[2001:db8::1]", "1"), redfish("https://[2001:DB8:0::1]", "1"));
        assert_eq!(
            redfish("https://192.0.2.1", "1"),
            redfish("https://192.0.2.1", "/redfish/v1/Systems/1/")
        );
        assert_eq!(ipmi("192.0.2.1", 0), ipmi("::ffff:192.0.2.1", 623));
        assert_eq!(one.key(), redfish("https://bmc1.example.org/", "").key());
    }

    #[test]
    fn a_record_without_a_system_shares_its_machine_with_every_other_of_its_bmc() {
        let [any, one, two] = ["", "1", "2"].map(|system| redfish("https://192.0.2.1", system));
        assert!(any.may_share_machine(&one) && two.may_share_machine(&any));
        assert!(!one.may_share_machine(&two));
        assert!(!any.may_share_machine(&redfish("https://192.0.2.1:8000", "")));
        assert!(!any.may_share_machine(&ipmi("192.0.2.1", 0)));
        assert_ne!(one.key(), two.key());
        assert_eq!(one.endpoint_key(), two.endpoint_key());
    }
}
