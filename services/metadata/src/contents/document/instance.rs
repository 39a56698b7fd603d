//! The instance with the field names of Tinkerbell's hardware record.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};
use tinwright::instance::v1::State;

use super::object;
use crate::contents::RequestContext;
use crate::machine::{Address, Instance, Machine};

/// The key of user data that is text.
pub(super) const USER_DATA: &str = "userdata";
/// The key of other user data, in base64.
pub(super) const USER_DATA_BYTES: &str = "userdata_bytes";

/// Returns the fields of the instance; of a machine without one, its id and host name. `extra` of the owner's record (`storage`,
/// …) is added, and never replaces a field.
pub(super) fn instance(machine: &Machine, context: RequestContext) -> Map<String, Value> {
    let Some(instance) = &machine.instance else {
        return object(&json!({ "id": machine.instance_id(), "hostname": machine.hostname() }));
    };
    let mut all = object(&instance.extra);
    all.extend(object(&fields(machine, instance)));
    if let Some(data) = machine.user_data() {
        // JSON has no bytes: a replaced one would damage an archive.
        match str::from_utf8(&data.0) {
            Ok(text) => all.insert(USER_DATA.into(), text.into()),
            Err(_) => all.insert(USER_DATA_BYTES.into(), BASE64_STANDARD.encode(&data.0).into()),
        };
    }
    // A log-in secret: only for the installer, which writes it to the disk.
    let password = instance.crypted_root_password.expose();
    if context.trusted && is_being_installed(instance.state) && !password.is_empty() {
        // Tinkerbell's and Equinix Metal's names.
        all.insert("crypted_root_password".into(), password.as_str().into());
        all.insert("password_hash".into(), password.as_str().into());
    }
    all
}

/// True if an instance in this state is not on the disk yet.
fn is_being_installed(state: State) -> bool {
    matches!(state, State::Queued | State::Provisioning | State::Reinstalling)
}

fn fields(machine: &Machine, instance: &Instance) -> Value {
    let attached = machine.nics.iter().flat_map(|nic| &nic.attached);
    let addresses: Value = instance.addresses.iter().chain(attached).map(address).collect();
    let os = operating_system(machine);
    json!({
        "id": machine.instance_id(),
        "state": instance.state.word(),
        "hostname": machine.hostname(),
        "allow_pxe": is_being_installed(instance.state),
        "rescue": false,
        "network_ready": true,
        "operating_system": os,
        "operating_system_version": os,
        "ips": addresses,
        "ip_addresses": addresses,
        "tags": instance.tags,
        "ssh_keys": machine.ssh_keys(),
    })
}

/// Returns the operating system and the state of its licence.
pub(super) fn operating_system(machine: &Machine) -> Value {
    let Some(os) = machine.instance.as_ref().map(|instance| &instance.os) else { return json!({}) };
    json!({
        "slug": os.slug,
        "os_slug": os.slug,
        "distro": os.distro,
        "version": os.version,
        "image_tag": os.image_tag,
        "license_activation": { "state": machine.extra("/license_activation/state") },
    })
}

/// Returns an address with the names and forms of all clients.
pub(super) fn address(address: &Address) -> Value {
    let v4 = address.ip.is_ipv4();
    json!({
        "address": address.ip,
        "netmask": address.network().netmask(),
        "cidr": address.prefix_length,
        "gateway": address.gateway,
        "family": if v4 { 4 } else { 6 },
        "address_family": if v4 { 4 } else { 6 },
        "public": address.public,
        "management": address.management,
    })
}
