//! OpenStack's documents, for images that look for them.

mod network;

use aws_lc_rs::rand;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::tags;
use crate::machine::Machine;
use crate::tree::Body;

/// The versions there are, oldest first; all of them say the same.
const VERSIONS: [&str; 10] = [
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "latest",
];

/// How many random bytes an instance is given to begin with.
const SEED: usize = 512;

/// What stands at `path` below `/openstack`.
pub(super) fn get(machine: &Machine, path: &[&str]) -> Option<Body> {
    match path {
        [] => Some(VERSIONS.join("\n").into()),
        [version, rest @ ..] if VERSIONS.contains(version) => document(machine, rest),
        _ => None,
    }
}

fn document(machine: &Machine, path: &[&str]) -> Option<Body> {
    match path {
        [] => Some(listing(machine)),
        ["meta_data.json"] => Some(Body::json(&meta_data(machine))),
        ["network_data.json"] => Some(Body::json(&network::data(machine))),
        ["user_data"] => machine.user_data().map(Body::octets),
        ["vendor_data.json"] => Some(Body::json(&vendor_data(machine))),
        ["vendor_data2.json"] => Some(Body::json(&json!({}))),
        // One could be left here by an instance, for its owner to fetch; none is kept.
        ["password"] => Some(String::new().into()),
        _ => None,
    }
}

fn listing(machine: &Machine) -> Body {
    let user_data = machine.user_data().map(|_| "user_data");
    let names = ["meta_data.json", "network_data.json", "password"].into_iter().chain(user_data);
    let names: Vec<_> = names.chain(["vendor_data.json", "vendor_data2.json"]).collect();
    names.join("\n").into()
}

fn meta_data(machine: &Machine) -> Value {
    let (names, keys) = (machine.key_names(), machine.ssh_keys());
    let named = || names.iter().zip(&keys);
    let by_name: Value = named().map(|(name, key)| (name.clone(), json!(key))).collect();
    let list = named().map(|(name, key)| json!({ "name": name, "type": "ssh", "data": key }));
    let list: Vec<_> = list.collect();
    let hostname = machine.hostname();
    json!({
        "uuid": machine.instance_id(),
        "name": hostname.split('.').next(),
        "hostname": hostname,
        "availability_zone": machine.availability_zone(),
        "launch_index": 0,
        "project_id": machine.instance.as_ref().map_or("", |instance| &instance.tenant),
        "public_keys": by_name,
        "keys": list,
        "meta": tags::pairs(machine),
        "devices": [],
        "random_seed": seed(),
    })
}

/// Fresh random bytes; nothing where the system has none.
fn seed() -> Option<String> {
    let mut seed = [0; SEED];
    rand::fill(&mut seed).ok()?;
    Some(BASE64_STANDARD.encode(seed))
}

/// A JSON object as it is. Anything else is for cloud-init, which finds it under this name.
fn vendor_data(machine: &Machine) -> Value {
    let data = machine.instance.as_ref().map(|instance| &instance.vendor_data.0);
    let Some(data) = data.filter(|data| !data.is_empty()) else { return json!({}) };
    match serde_json::from_slice::<Value>(data) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => json!({ "cloud-init": String::from_utf8_lossy(data) }),
    }
}
