//! OpenStack's documents, for images with that data source.

mod network;

use aws_lc_rs::rand;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::tree::Body;

/// The listing of `/openstack`: the versions, oldest first. All have the same content.
const LISTING: &str = "2012-08-10\n2013-04-04\n2013-10-17\n2015-10-15\n2016-06-30\n2016-10-06\n\
    2017-02-22\n2018-08-27\n2020-10-14\nlatest";

/// The length of the random seed.
const RANDOM_SEED_BYTES: usize = 512;

/// Returns the document at `path` below `/openstack`.
pub(super) fn get(machine: &Machine, path: &[&str]) -> Option<Body> {
    match path {
        [] => Some(LISTING.to_owned().into()),
        [version, rest @ ..] if LISTING.lines().any(|known| known == *version) => {
            document(machine, rest)
        }
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
        // In OpenStack an instance may leave a password here for its owner. None is stored.
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
    let list: Value = list.collect();
    let mut tags = Map::new();
    for (key, value) in machine.tag_pairs() {
        // Of two tags with one key the first counts.
        tags.entry(key).or_insert_with(|| value.into());
    }
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
        "meta": tags,
        "devices": [],
        "random_seed": seed(),
    })
}

/// Returns new random bytes; none if the system fails.
fn seed() -> Option<String> {
    let mut seed = [0; RANDOM_SEED_BYTES];
    rand::fill(&mut seed).ok()?;
    Some(BASE64_STANDARD.encode(seed))
}

/// Returns vendor data: a JSON object unchanged, anything else under `cloud-init`, the key that cloud-init reads.
fn vendor_data(machine: &Machine) -> Value {
    let data = machine.instance.as_ref().map(|instance| &instance.vendor_data.0);
    let Some(data) = data.filter(|data| !data.is_empty()) else { return json!({}) };
    match serde_json::from_slice::<Value>(data) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => json!({ "cloud-init": String::from_utf8_lossy(data) }),
    }
}
