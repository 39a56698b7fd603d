//! Conversions of what people write, and errors of what they should not have written.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use tinwright::hardware::v1::{Hardware, Model};
use tinwright::instance::v1::Instance;

use super::super::descriptor;
use super::*;

fn hardware(value: Value) -> Result<Value, Vec<String>> {
    converted::<Hardware>(value)
}

fn converted<M: prost::Name>(value: Value) -> Result<Value, Vec<String>> {
    let text = |it: Problem| format!("{} {}", path_text(&it.path), it.text);
    let converted = canonical(&descriptor::<M>().unwrap(), value);
    converted.map_err(|problems| problems.into_iter().map(text).collect())
}

#[test]
fn words_durations_addresses_and_macs_are_read_as_people_write_them() {
    let people = json!({
        "state": "Provisionable", "location": "kir1",
        "policy": {"boot_method": "virtual-media", "user_data_window": "1d"},
        "interfaces": [{"mac": "02-00-5E-10-00-01", "dhcp": {"lease_time": "45m", "address": "198.51.100.11/24"}}],
    });
    let protobuf = json!({
        "state": "STATE_PROVISIONABLE", "location_id": "kir1",
        "policy": {"boot_method": "BOOT_METHOD_VIRTUAL_MEDIA", "user_data_window": "86400s"},
        "interfaces": [{
            "mac": "02:00:5e:10:00:01",
            "dhcp": {"lease_time": "2700s", "address": {"address": "198.51.100.11", "prefix_length": 24}},
        }],
    });
    assert_eq!(hardware(people), Ok(protobuf.clone()));
    assert_eq!(hardware(protobuf.clone()), Ok(protobuf), "protobuf's own form is read, too");
}

#[test]
fn an_address_may_have_its_prefix_length_and_a_gateway_beside_it() {
    let ips = |ip: Value| converted::<Instance>(json!({ "ips": [ip] }));
    let wanted =
        json!({"ips": [{"address": "2001:db8::1", "prefix_length": 64, "gateway": "fe80::1"}]});
    assert_eq!(ips(json!({"address": "2001:db8::1/64", "gateway": "fe80::1"})), Ok(wanted));
    let wrong = ips(json!({"address": "192.0.2.1/x"})).unwrap_err();
    assert_eq!(
        wrong,
        ["ips[0].address is \"192.0.2.1/x\", not an address such as 198.51.100.11/24"]
    );
    let wrong = ips(json!({"address": "192.0.2.1/24", "prefix_length": 25})).unwrap_err();
    assert_eq!(wrong, ["ips[0].address differs from prefix_length"]);
}

#[test]
fn a_wrong_secret_is_not_quoted() {
    let bmc = |value| converted::<tinwright::power::v1::Bmc>(value).unwrap_err();
    let text = "password is a number, not a text: put it in quotes";
    assert_eq!(bmc(json!({"password": 12_345_678})), [text]);
}

#[test]
fn each_wrong_field_is_named_with_what_would_fit() {
    for (value, wanted) in [
        (json!({"nmae": "a"}), "nmae unknown field: did you mean name?"),
        (json!({"colour": "red"}), "colour unknown field"),
        (
            json!({"interfaces": [{"dchp": {}}]}),
            "interfaces[0].dchp unknown field: did you mean dhcp?",
        ),
        (json!({"interfaces": {"mac": "a"}}), "interfaces is keys with values, not a list"),
        (
            json!({"interfaces": ["a"]}),
            "interfaces[0] is \"a\", not fields: mac, name, dhcp, netboot, bond, relay_port",
        ),
        (json!({"name": 7}), "name is 7, not a text: put it in quotes"),
        (json!({"labels": {"rack": true}}), "labels.rack is true, not a text: put it in quotes"),
        (json!({"labels": ["a"]}), "labels is a list, not keys with values"),
        (json!({"protect": "yes"}), "protect is \"yes\", not true or false"),
        (json!({"extra": [1]}), "extra is a list, not a text"),
        (json!({"location": "a", "location_id": "a"}), "location_id is given twice"),
        (
            json!({"interfaces": [{"dhcp": {"mtu": -1}}]}),
            "interfaces[0].dhcp.mtu is the number -1, not a whole number of at least 0 in its range",
        ),
        (
            json!({"interfaces": [{"dhcp": {"lease_time": 86400}}]}),
            "interfaces[0].dhcp.lease_time is 86400 without a unit, not a duration such as 1d, 12h, 45m or 90s: did you mean 86400s?",
        ),
        (
            json!({"interfaces": [{"dhcp": {"lease_time": "a day"}}]}),
            "interfaces[0].dhcp.lease_time is \"a day\", not a duration such as 1d, 12h, 45m or 90s",
        ),
        (
            json!({"state": "provisonable"}),
            "state is \"provisonable\", not one of enrolled, provisionable, failed, maintenance, deleting: did you mean provisionable?",
        ),
    ] {
        assert_eq!(hardware(value.clone()), Err(vec![wanted.to_owned()]), "{value}");
    }
}

#[test]
fn the_kind_of_the_image_api_is_a_field_of_its_own_in_a_stack() {
    let mount = |mount: Value| {
        let stack = json!({"name": "a", "containers": [{"name": "b", "mount": mount}]});
        converted::<tinwright::node::v1::Stack>(stack).unwrap_err()
    };
    let bind = mount(json!({"kind": "bind", "bind": {"path": "/srv"}}));
    let text = "leave it out, the field bind with the definition says it";
    assert_eq!(bind, [format!("containers[0].mount.kind unknown field: {text}")]);
    let other = mount(json!({"kind": "binds"}));
    let text = "leave it out, one of the fields attach, bind, nfs, overlay says it";
    assert_eq!(other, [format!("containers[0].mount.kind unknown field: {text}")]);
}

#[test]
fn all_wrong_fields_are_named_at_once() {
    let wrong = hardware(json!({"nmae": "a", "state": 1.5, "protect": 1})).unwrap_err();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let large = json!({"constraints": {"memory_bytes": {"min": "68719476736"}}});
    assert_eq!(converted::<Model>(large.clone()), Ok(large), "large numbers are texts in JSON");
}
