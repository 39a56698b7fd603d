//! The instance, in the words of Tinkerbell's hardware record.

use serde_json::{Map, Value, json};
use tinwright::instance::v1::State;

use crate::contents::Asked;
use crate::machine::{Address, Instance, Machine};

/// What is said of the instance; of a machine without one, only who it is. What the owner's record says besides
/// (`storage`, …) stands among the fields, and never in place of one.
pub(super) fn instance(machine: &Machine, asked: Asked) -> Map<String, Value> {
    let Some(instance) = &machine.instance else {
        let id = machine.instance_id();
        return Map::from_iter([
            ("id".to_owned(), id.into()),
            ("hostname".to_owned(), machine.hostname().into()),
        ]);
    };
    let mut said = match &instance.extra {
        Value::Object(extra) => extra.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    said.extend(fields(machine, instance));
    if let Some(data) = machine.user_data() {
        said.insert("userdata".into(), String::from_utf8_lossy(&data.0).into());
    }
    // Whoever knows it can log in: it is for the one who writes it to the disk (specification, section 7.2).
    let password = instance.crypted_root_password.expose();
    if asked.trusted && is_being_installed(instance.state) && !password.is_empty() {
        // Both names are read: Tinkerbell's and Equinix Metal's.
        said.insert("crypted_root_password".into(), password.as_str().into());
        said.insert("password_hash".into(), password.as_str().into());
    }
    said
}

/// Whether an instance in this state is on its way to the disk.
fn is_being_installed(state: State) -> bool {
    matches!(state, State::Queued | State::Provisioning)
}

fn fields(machine: &Machine, instance: &Instance) -> Map<String, Value> {
    let addresses: Vec<_> = instance.addresses.iter().map(address).collect();
    let os = operating_system(machine);
    Map::from_iter([
        ("id".to_owned(), json!(machine.instance_id())),
        ("state".to_owned(), json!(instance.state.word())),
        ("hostname".to_owned(), json!(machine.hostname())),
        ("allow_pxe".to_owned(), json!(is_being_installed(instance.state))),
        ("rescue".to_owned(), json!(false)),
        ("network_ready".to_owned(), json!(true)),
        ("operating_system".to_owned(), os.clone()),
        ("operating_system_version".to_owned(), os),
        ("ips".to_owned(), json!(addresses)),
        ("ip_addresses".to_owned(), json!(addresses)),
        ("tags".to_owned(), json!(instance.tags)),
        ("ssh_keys".to_owned(), json!(machine.ssh_keys())),
    ])
}

/// What is on the disk, with what its licence says.
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

/// An address in all the ways its readers want it.
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
