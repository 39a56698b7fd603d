//! Machines by their names, MACs, addresses and ids.

use runtime::Channel;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::{HardwareId, Mac, check};

use crate::connect::View;
use crate::failure::Missing;
use crate::output;
use crate::resource::Resource as _;

/// Returns the id of the machine `name`, if the server knows one. It may have no records of machines.
pub(crate) async fn known_id(channel: &Channel, name: &str) -> Option<String> {
    pb::Hardware::find(channel, name, View::Basic).await.ok().map(|machine| machine.id)
}

/// Returns the reserved address of the first interface of `machine`; empty if it has none.
pub(crate) fn address(machine: &pb::Hardware) -> String {
    let first = machine.interfaces.first();
    let address = first.and_then(|it| Some(it.dhcp.as_ref()?.address.as_ref()?.address.clone()));
    address.unwrap_or_default()
}

/// Returns what the machine `name`, or the machine of this reference, is looked up by.
pub(super) fn by(name: &str) -> anyhow::Result<By> {
    let name = output::referenced::<pb::Hardware>(name);
    if name.parse::<HardwareId>().is_ok() {
        Ok(By::Id(name.into()))
    } else if name.parse::<Mac>().is_ok() {
        Ok(By::Mac(name.into()))
    } else if name.parse::<std::net::IpAddr>().is_ok() {
        Ok(By::Address(name.into()))
    } else {
        let invalid = format!("{name:?} is not the id, name, MAC or address of a machine");
        Ok(By::Name(check::label(name).map_err(|_| Missing(invalid))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_found_by_id_name_mac_or_address() {
        let id = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";
        assert_eq!(by(id).unwrap(), By::Id(id.into()));
        assert_eq!(by("02:00:00:00:00:01").unwrap(), By::Mac("02:00:00:00:00:01".into()));
        assert_eq!(by("2001:db8::1").unwrap(), By::Address("2001:db8::1".into()));
        let wrong = by("rack 1").unwrap_err().to_string();
        assert_eq!(wrong, "\"rack 1\" is not the id, name, MAC or address of a machine");
        assert_eq!(by("Rack1").unwrap(), By::Name("rack1".into()));
        assert_eq!(by("hardware/node-1").unwrap(), By::Name("node-1".into()));
    }
}
