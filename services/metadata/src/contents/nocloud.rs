//! cloud-init's seed (NoCloud): four files below a URL.
//!
//! All four always exist, if only empty: cloud-init repeats the request for a missing one ten times.

mod network;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::tree::Body;

/// Returns the file at `path` below the seed's URL.
pub(super) fn get(machine: &Machine, path: &[&str]) -> Option<Body> {
    let instance = machine.instance.as_ref();
    match path {
        [] => Some("meta-data\nnetwork-config\nuser-data\nvendor-data".to_owned().into()),
        ["meta-data"] => Some(Body::yaml(&meta_data(machine))),
        ["user-data"] => Some(Body::octets(machine.user_data().unwrap_or_default())),
        ["vendor-data"] => {
            Some(Body::octets(instance.map(|i| i.vendor_data.clone()).unwrap_or_default()))
        }
        ["network-config"] => Some(network_config(machine)),
        _ => None,
    }
}

fn meta_data(machine: &Machine) -> Value {
    let mut meta_data = json!({ "instance-id": machine.instance_id() });
    let (hostname, keys) = (machine.hostname(), machine.ssh_keys());
    if !hostname.is_empty() {
        meta_data["local-hostname"] = hostname.into();
    }
    if !keys.is_empty() {
        meta_data["public-keys"] = json!(keys);
    }
    meta_data
}

/// Returns the owner's own network configuration, else the one of the record; empty if there is none.
fn network_config(machine: &Machine) -> Body {
    let own = machine.instance.as_ref().map(|instance| &instance.network_config);
    match own.filter(|own| !own.0.is_empty()) {
        Some(own) => Body::octets(own.clone()),
        None if machine.nics.is_empty() => String::new().into(),
        None => Body::yaml(&network::config(machine)),
    }
}
