//! The parts of machines, locations and models that tenants see.

use tinwright::hardware::v1 as pb;

/// Returns what a tenant sees of `machine`: id, name, state, location, zone and Ethernet addresses.
pub(crate) fn view(machine: pb::Hardware) -> pb::Hardware {
    let mac = |interface: pb::Interface| pb::Interface { mac: interface.mac, ..Default::default() };
    pb::Hardware {
        id: machine.id,
        name: machine.name,
        state: machine.state,
        location_id: machine.location_id,
        zone: machine.zone,
        interfaces: machine.interfaces.into_iter().map(mac).collect(),
        ..pb::Hardware::default()
    }
}

/// Returns what a tenant sees of `location`: id, name, zones, geography and annotations.
pub(crate) fn location_view(location: pb::Location) -> pb::Location {
    let pb::Location { id, name, zones, geography, annotations, .. } = location;
    pb::Location { id, name, zones, geography, annotations, ..pb::Location::default() }
}

/// Returns what a tenant sees of `model`: id, name, description, annotations, and the constraints, without those on the site's labels.
pub(crate) fn model_view(model: pb::Model) -> pb::Model {
    let pb::Model { id, name, description, annotations, mut constraints, .. } = model;
    if let Some(constraints) = &mut constraints {
        constraints.labels.clear();
    }
    pb::Model { id, name, description, annotations, constraints, ..pb::Model::default() }
}
