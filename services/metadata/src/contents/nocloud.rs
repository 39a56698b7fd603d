//! cloud-init's seed (NoCloud): four files below a URL that the machine was told.
//!
//! All four are always there, if only empty: cloud-init asks ten times more, seconds apart, for one that is not.

mod network;

use serde_json::{Map, Value, json};

use crate::machine::{Machine, UserData};
use crate::tree::Body;

/// What stands at `path` below the seed's URL.
pub(super) fn get(machine: &Machine, path: &[&str]) -> Option<Body> {
    let instance = machine.instance.as_ref();
    match path {
        [] => Some("meta-data\nnetwork-config\nuser-data\nvendor-data".to_owned().into()),
        ["meta-data"] => Some(Body::yaml(&meta_data(machine))),
        ["user-data"] => Some(Body::octets(machine.user_data().unwrap_or_default())),
        ["vendor-data"] => {
            Some(Body::octets(instance.map_or_else(UserData::default, |i| i.vendor_data.clone())))
        }
        ["network-config"] => Some(network_config(machine)),
        _ => None,
    }
}

fn meta_data(machine: &Machine) -> Value {
    let mut known = Map::new();
    known.insert("instance-id".into(), machine.instance_id().into());
    let hostname = machine.hostname();
    if !hostname.is_empty() {
        known.insert("local-hostname".into(), hostname.into());
    }
    let keys = machine.ssh_keys();
    if !keys.is_empty() {
        known.insert("public-keys".into(), json!(keys));
    }
    known.into()
}

/// The owner's own, else the one that follows from the record; empty if nothing does.
fn network_config(machine: &Machine) -> Body {
    let own = machine.instance.as_ref().map(|instance| &instance.network_config);
    match own.filter(|own| !own.0.is_empty()) {
        Some(own) => Body::octets(own.clone()),
        None if machine.nics.is_empty() => String::new().into(),
        None => Body::yaml(&network::config(machine)),
    }
}
