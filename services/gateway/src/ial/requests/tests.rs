use serde_json::{Value, json};

use super::*;

fn provision() -> Value {
    json!({
        "hostname": "Edge-17.fleet-a.example.net", "model_id": "m2.16c128", "location_id": "kir1", "zone_id": "kir1-b",
        "model_features": {"raid": "raid1", "hypervisor": true},
        "provision_options": {"encrypt_storage": false, "colour": [1]},
        "location_configuration": {"format": 1, "tenant": "", "location": "kir1", "version": "a.3"},
        "cycle": {
            "server_id": "66b204d7a9d34e5b7c083311", "model_class": "m2", "model_category": "bare-metal",
            "model_id": "66b1f3f0a9d34e5b7c082044", "location_id": "66b1f3a1a9d34e5b7c08200c"
        }
    })
}

fn release() -> Value {
    json!({
        "kind": "ipv4", "ip_id": "ip-4c21", "ip_assignment_id": "ipa-90f3", "cidr": "198.51.100.52/32",
        "nat_private_ip": null, "zone_id": null, "server_id": "srv-01j9x4k7", "location_id": "kir1",
        "location_configuration": null,
        "cycle": {"pool_id": "66b20a90a9d34e5b7c083a7e", "server_id": "66b204d7a9d34e5b7c083311",
            "server_model_class": "", "server_model_category": "", "location_id": ""}
    })
}

/// Reads `document` with the member `name` replaced, or removed by `None`.
fn fault<T: std::fmt::Debug>(
    mut document: Value,
    name: &str,
    value: Option<Value>,
    read: fn(&Object<'_>) -> Result<T, Fault>,
) -> (Code, String) {
    let members = document.as_object_mut().unwrap();
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    let text = json!({"request": document}).to_string();
    let wrapper = Object::document(text.as_bytes()).unwrap();
    let fault = read(&wrapper.required_object("request").unwrap()).unwrap_err();
    (fault.code, fault.source.unwrap())
}

fn read<T>(document: &Value, read: fn(&Object<'_>) -> Result<T, Fault>) -> T {
    read(&Object::document(document.to_string().as_bytes()).unwrap()).unwrap()
}

#[test]
fn the_example_of_a_provision_is_read() {
    let read = read(&provision(), Provision::read);
    assert_eq!(read.hostname, "edge-17.fleet-a.example.net");
    assert_eq!(read.options.json, r#"{"encrypt_storage":false,"colour":[1]}"#);
    assert_eq!(read.meta.server, Some(PlatformId::test("66b204d7a9d34e5b7c083311")));
    assert_eq!(read.configuration.unwrap().version.as_deref(), Some("a.3"));
}

#[test]
fn explicit_nulls_and_absent_keys_are_the_same() {
    let mut document = provision();
    for (name, value) in [
        ("zone_id", json!(null)),
        ("provision_options", json!(null)),
        ("location_configuration", json!(null)),
        ("model_features", json!({"raid": null, "hypervisor": null, "extra": null})),
        ("cycle", json!({"server_id": "000000000000000000000000", "model_id": null})),
    ] {
        document[name] = value;
    }
    let provision = read(&document, Provision::read);
    assert_eq!((provision.zone, provision.configuration), (None, None));
    assert_eq!(provision.meta, ServerMeta::default());
    for name in ["zone_id", "provision_options", "location_configuration", "cycle"] {
        document.as_object_mut().unwrap().remove(name);
    }
    read(&document, Provision::read);
}

#[test]
fn required_keys_are_named() {
    for name in ["hostname", "model_id", "location_id"] {
        for value in [None, Some(json!(null)), Some(json!(""))] {
            let expected = (Code::MissingArgument, format!("/request/{name}"));
            assert_eq!(fault(provision(), name, value, Provision::read), expected);
        }
    }
    let missing = (Code::MissingArgument, "/request/model_features".to_owned());
    assert_eq!(fault(provision(), "model_features", Some(json!(null)), Provision::read), missing);
    for name in ["kind", "ip_id", "ip_assignment_id", "cidr", "server_id", "location_id"] {
        for value in [None, Some(json!(null)), Some(json!(""))] {
            let expected = (Code::MissingArgument, format!("/request/{name}"));
            assert_eq!(fault(release(), name, value, Release::read), expected);
        }
    }
}

#[test]
fn values_of_other_types_are_refused_and_nothing_is_converted() {
    for (name, value, place) in [
        ("hostname", json!(1), "hostname"),
        ("model_features", json!("x"), "model_features"),
        ("model_features", json!({"raid": 1}), "model_features/raid"),
        ("model_features", json!({"hypervisor": "true"}), "model_features/hypervisor"),
        ("provision_options", json!([]), "provision_options"),
        ("provision_options", json!({"storage_size": "1"}), "provision_options/storage_size"),
        ("zone_id", json!({}), "zone_id"),
        ("location_configuration", json!("x"), "location_configuration"),
        ("cycle", json!([]), "cycle"),
        ("cycle", json!({"server_id": 7}), "cycle/server_id"),
    ] {
        let expected = (Code::InvalidSyntax, format!("/request/{place}"));
        assert_eq!(fault(provision(), name, Some(value), Provision::read), expected);
    }
}

#[test]
fn values_that_cannot_be_used_are_named() {
    let long = "x".repeat(65);
    for (name, value, place) in [
        ("hostname", json!("-a"), "hostname"),
        ("hostname", json!("a_b"), "hostname"),
        ("location_configuration", json!({"format": 2}), "location_configuration/format"),
        ("location_configuration", json!({}), "location_configuration/format"),
        ("location_configuration", json!({"format": "1"}), "location_configuration/format"),
        ("cycle", json!({"server_id": long}), "cycle/server_id"),
    ] {
        let expected = (Code::InvalidArgument, format!("/request/{place}"));
        assert_eq!(fault(provision(), name, Some(value), Provision::read), expected);
    }
    for (name, value) in [
        ("kind", "IPv4"),
        ("kind", "ipv5"),
        ("cidr", "198.51.100.52"),
        ("cidr", "198.51.100.52/33"),
        ("nat_private_ip", "10.0.0.1/8"),
    ] {
        let expected = (Code::InvalidArgument, format!("/request/{name}"));
        assert_eq!(fault(release(), name, Some(json!(value)), Release::read), expected);
    }
    let large = json!({"x": "y".repeat(5000)});
    let expected = (Code::MaxExceeded, "/request/provision_options".to_owned());
    assert_eq!(fault(provision(), "provision_options", Some(large), Provision::read), expected);
}
