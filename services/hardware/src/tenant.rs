//! The part of a machine that the tenant of the instance on it sees.

use tinwright::TenantName;
use tinwright::hardware::v1 as pb;
use tinwright::instance::v1::Instance;

/// Returns what a tenant sees of `machine`: id, name, state and Ethernet addresses.
pub(crate) fn view(machine: pb::Hardware) -> pb::Hardware {
    let mac = |interface: pb::Interface| pb::Interface { mac: interface.mac, ..Default::default() };
    pb::Hardware {
        id: machine.id,
        name: machine.name,
        state: machine.state,
        interfaces: machine.interfaces.into_iter().map(mac).collect(),
        ..pb::Hardware::default()
    }
}

/// True if a caller who is limited to the objects of `tenant` sees the machine with this occupant.
pub(crate) fn sees(tenant: &TenantName, occupant: Option<&Instance>) -> bool {
    occupant.is_some_and(|occupant| occupant.tenant == tenant.as_str())
}
