//! The image from which a machine is booted by virtual media, as its policy names it.

use crate::hardware::v1::Hardware;
use crate::hardware::v1::policy::BootMethod;

/// The part of a URL that stands for the machine's MAC.
const MAC: &str = "{mac}";
/// A MAC of the usual length, for a machine that has no interface yet.
const ANY_MAC: &str = "00-00-00-00-00-00";

/// Returns `template` with the MAC `mac`, in any notation with colons; with dashes, since a colon in a path confuses some BMCs.
fn with_mac(template: &str, mac: &str) -> String {
    template.replace(MAC, &mac.replace(':', "-"))
}

/// Returns `template` with some MAC, for checks.
pub fn example_url(template: &str) -> String {
    with_mac(template, ANY_MAC)
}

/// Returns the URL of the image that `machine` is booted from; none if it boots from the network.
pub fn url_for(machine: &Hardware) -> Option<String> {
    let policy = machine.policy.as_ref()?;
    if policy.boot_method() != BootMethod::VirtualMedia || policy.boot_image_url.is_empty() {
        return None;
    }
    let mac = machine.interfaces.first().map_or(ANY_MAC, |interface| &interface.mac);
    Some(with_mac(&policy.boot_image_url, mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::v1::{Interface, Policy};

    #[test]
    fn the_url_has_the_mac_of_the_first_interface_only_if_the_policy_says_virtual_media() {
        let machine = |method: BootMethod| {
            let interface = |mac: &str| Interface { mac: mac.to_owned(), ..Interface::default() };
            let policy = Policy {
                boot_method: method.into(),
                boot_image_url: "http://192.0.2.1/iso/{mac}/osie.iso".into(),
                ..Policy::default()
            };
            Hardware {
                interfaces: ["02:00:00:00:00:07", "02:00:00:00:00:08"].map(interface).into(),
                policy: Some(policy),
                ..Hardware::default()
            }
        };
        let url = url_for(&machine(BootMethod::VirtualMedia));
        assert_eq!(url.as_deref(), Some("http://192.0.2.1/iso/02-00-00-00-00-07/osie.iso"));
        assert_eq!(url_for(&machine(BootMethod::Network)), None);
        assert_eq!(url_for(&machine(BootMethod::Unspecified)), None);
        assert_eq!(url_for(&Hardware::default()), None);
    }
}
