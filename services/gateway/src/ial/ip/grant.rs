//! A grant as the platform sees it. The id of an address or an assignment is a prefix and the id of the
//! grant.

use std::net::IpAddr;

use ipnet::IpNet;
use tinwright::address::v1 as addr;

use crate::ial::fault::{Code, Fault};
use crate::ial::responses::Allocated;

const IP: &str = "ip-";
const ASSIGNMENT: &str = "ipa-";

/// Returns the id of a granted address.
pub(in crate::ial) fn ip_id(grant: &addr::Grant) -> String {
    format!("{IP}{}", grant.id)
}

/// Returns the id of the grant of an address; none if no address can have the id.
pub(super) fn id_of_ip(ip: &str) -> Option<String> {
    id(ip, IP)
}

/// Returns the id of the grant of an assignment; none if no assignment can have the id.
pub(super) fn id_of_assignment(assignment: &str) -> Option<String> {
    id(assignment, ASSIGNMENT)
}

fn id(text: &str, prefix: &str) -> Option<String> {
    let id: uuid::Uuid = text.strip_prefix(prefix)?.parse().ok()?;
    Some(id.to_string())
}

/// Returns the answer for a grant.
pub(super) fn allocated(grant: &addr::Grant) -> Result<Allocated, Fault> {
    let failed = |_| Fault::new(Code::Unknown, "unexpected failure");
    let cidr: IpNet = grant.block.parse().map_err(failed)?;
    let network: Option<IpNet> = grant.network.parse().ok();
    let gateway: Option<IpAddr> = grant.gateway.parse().ok();
    Ok(Allocated {
        ip_id: ip_id(grant),
        ip_assignment_id: format!("{ASSIGNMENT}{}", grant.id),
        cidr: cidr.to_string(),
        gateway,
        network: network.map(|network| network.to_string()),
        netmask: network.map(netmask).unwrap_or_default(),
        nat_private_ip: None,
    })
}

fn netmask(network: IpNet) -> String {
    match network {
        IpNet::V4(v4) => v4.netmask().to_string(),
        IpNet::V6(v6) => v6.prefix_len().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn grant(block: &str, network: &str, gateway: &str) -> addr::Grant {
        let [block, network, gateway] = [block, network, gateway].map(str::to_owned);
        addr::Grant { id: ID.into(), block, network, gateway, ..addr::Grant::default() }
    }

    #[test]
    fn the_answer_is_that_of_the_example() {
        let grant = grant("198.51.100.52/32", "198.51.100.32/27", "198.51.100.33");
        let answer = serde_json::to_value(allocated(&grant).unwrap()).unwrap();
        let expected = json!({
            "ip_id": format!("ip-{ID}"), "ip_assignment_id": format!("ipa-{ID}"), "cidr": "198.51.100.52/32",
            "gateway": "198.51.100.33", "network": "198.51.100.32/27", "netmask": "255.255.255.224", "nat_private_ip": null
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn without_network_there_is_no_mask_and_of_ipv6_it_is_the_prefix_length() {
        let answer = allocated(&grant("2001:db8:1::/64", "2001:db8::/56", "")).unwrap();
        assert_eq!((answer.netmask.as_str(), answer.gateway), ("56", None));
        let answer = allocated(&grant("2001:db8:1::/64", "", "")).unwrap();
        assert_eq!((answer.netmask.as_str(), answer.network), ("", None));
    }

    #[test]
    fn ids_are_read_back_and_others_are_none() {
        assert_eq!(id_of_ip(&format!("ip-{ID}")).as_deref(), Some(ID));
        assert_eq!(id_of_assignment(&format!("ipa-{ID}")).as_deref(), Some(ID));
        for text in ["", "ip-", "ip-x", ID, "ipa-01890a5d-ac96-774b-bcce-b302099a8057"] {
            assert_eq!(id_of_ip(text), None, "{text}");
        }
    }
}
