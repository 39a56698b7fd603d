//! The errors of bodies: status, code and message (docs/imageapi.md).
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{answer, error, post, post_error, request};
use http::Response;
use imageapi::{ApiError, Operation, Secrets, canonical_text, encode};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Message;
use tinwright::node::v1::{ImageError, ImageResult, Mount};

/// An RBD attachment with `changes` at its end, which win over what is before.
fn rbd(changes: &str) -> String {
    format!(
        r#"{{"kind": "rbd", "rbd": {{"monitors": ["192.0.2.1"], "pool": "p", "image": "i",
        "options": {{"name": "n", "secret": "s"}} {changes}}}}}"#
    )
}

fn check_422(path: &str, body: &str, code: u64, message: &str) {
    assert_eq!(post_error(path, body), (422, code, message.to_owned()), "{body}");
}

#[test]
fn missing_or_null_required_properties_are_602() {
    let cases = [
        ("/attach", "", "attach"),
        ("/mount", "", "mount"),
        ("/container", "  \n", "container"),
        ("/container", "{}", "command"),
        ("/container", "null", "command"),
        ("/container", r#"{"command": null, "mount": {"id": 1}}"#, "command"),
        ("/container", r#"{"command": "c"}"#, "mount"),
        ("/attach", r#"{"kind": "local", "local": {}}"#, "path"),
        ("/attach", r#"{"kind": "local", "local": {"path": null}}"#, "path"),
        ("/attach", r#"{"iscsi": {"initiator": "i", "target": "t"}}"#, "host"),
        ("/attach", r#"{"iscsi": {"host": "h", "target": "t"}}"#, "initiator"),
        ("/attach", r#"{"iscsi": {"host": "h", "initiator": "i"}}"#, "target"),
        ("/attach", r#"{"loopback": {"path": "p"}}"#, "base"),
        ("/attach", r#"{"loopback": {"base": "root"}}"#, "path"),
        ("/attach", &rbd(r#", "monitors": null"#), "monitors"),
        ("/attach", &rbd(r#", "pool": null"#), "pool"),
        ("/attach", &rbd(r#", "image": null"#), "image"),
        ("/mount", r#"{"attach": {"fs_type": "ext4"}}"#, "attach"),
        ("/mount", r#"{"attach": {"attach": {"id": 1}}}"#, "fs_type"),
        ("/mount", r#"{"bind": {"path": "p"}}"#, "base"),
        ("/mount", r#"{"bind": {"base": "root"}}"#, "path"),
        ("/mount", r#"{"nfs": {"path": "p"}}"#, "host"),
        ("/mount", r#"{"nfs": {"host": "h"}}"#, "path"),
        ("/mount", r#"{"overlay": {}}"#, "lower"),
        ("/mount", r#"{"overlay": {"lower": null}}"#, "lower"),
    ];
    for (path, body, name) in cases {
        check_422(path, body, 602, &format!("{name} in body is required"));
    }
}

#[test]
fn wrong_texts_are_603_to_606() {
    let ipv4 = r"should match '^(?:[0-9]{1,3}\.){3}[0-9]{1,3}$'";
    let name = "name in body should match '^[A-Za-z0-9._-]*$'";
    let long =
        format!(r#"{{"command": "c", "mount": {{"id": 1}}, "name": "{}"}}"#, "n".repeat(129));
    let named =
        |name: &str| format!(r#"{{"command": "c", "mount": {{"id": 1}}, "name": "{name}"}}"#);
    let in_container = |rest: &str| format!(r#"{{"command": "c", "mount": {{"id": 1}}, {rest}}}"#);
    let cases: [(&str, String, u64, String); 18] = [
        ("/container", long, 603, "name in body should be at most 128 chars long".into()),
        (
            "/attach",
            rbd(r#", "pool": """#),
            604,
            "pool in body should be at least 1 chars long".into(),
        ),
        (
            "/attach",
            rbd(r#", "image": """#),
            604,
            "image in body should be at least 1 chars long".into(),
        ),
        ("/container", named("a b"), 605, name.into()),
        ("/container", named("a/b"), 605, name.into()),
        ("/container", named("é"), 605, name.into()),
        ("/container", named(r"a\n"), 605, name.into()),
        (
            "/attach",
            rbd(r#", "monitors": ["192.0.2.1:6789"]"#),
            605,
            format!("monitors.0 in body {ipv4}"),
        ),
        (
            "/attach",
            rbd(r#", "monitors": ["192.0.2.1", "mon"]"#),
            605,
            format!("monitors.1 in body {ipv4}"),
        ),
        ("/attach", rbd(r#", "monitors": [null]"#), 605, format!("monitors.0 in body {ipv4}")),
        ("/attach", rbd(r#", "options": {"ip": "::1"}"#), 605, format!("ip in body {ipv4}")),
        (
            "/attach",
            r#"{"kind": "usb"}"#.into(),
            606,
            "kind in body should be one of [iscsi local loopback rbd]".into(),
        ),
        (
            "/mount",
            r#"{"kind": "NFS"}"#.into(),
            606,
            "kind in body should be one of [attach bind nfs overlay uri]".into(),
        ),
        (
            "/mount",
            r#"{"bind": {"base": "", "path": "p"}}"#.into(),
            606,
            "base in body should be one of [root mount]".into(),
        ),
        (
            "/attach",
            r#"{"loopback": {"base": "x", "path": "p"}}"#.into(),
            606,
            "base in body should be one of [root mount]".into(),
        ),
        (
            "/container",
            in_container(r#""state": "paused""#),
            606,
            "state in body should be one of [created running stopping exited dead]".into(),
        ),
        (
            "/container",
            in_container(r#""namespaces": ["pid", "all"]"#),
            606,
            "namespaces.1 in body should be one of [cgroup ipc net mnt pid time user uts]".into(),
        ),
        (
            "/container",
            in_container(r#""namespaces": [null]"#),
            606,
            "namespaces.0 in body should be one of [cgroup ipc net mnt pid time user uts]".into(),
        ),
    ];
    for (path, body, code, message) in cases {
        check_422(path, &body, code, &message);
    }
}

#[test]
fn read_only_properties_are_619() {
    let container = r#"{"command": "c", "mount": {"id": 1}"#;
    let cases = [
        ("/attach", r#"{"kind": "local", "device_file": "/dev/sda"}"#.to_owned(), "device_file"),
        ("/attach", r#"{"kind": "local", "refs": 1}"#.to_owned(), "refs"),
        ("/attach", rbd(r#", "device_id": 3"#), "device_id"),
        ("/mount", r#"{"mountpoint": "/m"}"#.to_owned(), "mountpoint"),
        ("/mount", r#"{"refs": -1}"#.to_owned(), "refs"),
        ("/mount", r#"{"overlay": {"lower": [], "workdir": "/w"}}"#.to_owned(), "workdir"),
        ("/mount", r#"{"overlay": {"lower": [], "upperdir": "/u"}}"#.to_owned(), "upperdir"),
        ("/mount", r#"{"overlay": {"lower": [{}, {"refs": 2}]}}"#.to_owned(), "refs"),
        ("/container", format!(r#"{container}, "logfile": "/l"}}"#), "logfile"),
        ("/container", format!(r#"{container}, "refs": 5}}"#), "refs"),
        ("/container", r#"{"command": "c", "mount": {"id": 1, "refs": 5}}"#.to_owned(), "refs"),
    ];
    for (path, body, name) in cases {
        check_422(path, &body, 619, &format!("{name} in body is readOnly"));
    }
    // Zero is unset.
    assert!(
        post("/container", format!(r#"{container}, "refs": 0, "logfile": ""}}"#).as_bytes())
            .is_ok()
    );
}

#[test]
fn the_first_fault_in_alphabetical_order_is_reported_and_read_only_ones_last() {
    let first = |path, body: &str| post_error(path, body).2;
    assert_eq!(first("/container", r#"{"name": "a b"}"#), "command in body is required");
    let nested = r#"{"command": "c", "mount": {"nfs": {}}, "name": "a b"}"#;
    assert_eq!(first("/container", nested), "host in body is required");
    let read_only = r#"{"logfile": "/l", "command": "c", "mount": {"id": 1}, "name": "a b"}"#;
    assert!(first("/container", read_only).starts_with("name in body should match"));
    let deep = r#"{"refs": 1, "local": {}, "device_file": "/dev/x"}"#;
    assert_eq!(first("/attach", deep), "path in body is required");
    assert_eq!(
        first("/attach", r#"{"refs": 1, "local": {"path": "p"}, "device_file": "/dev/x"}"#),
        "device_file in body is readOnly"
    );
    // 422 comes before 400 and 501.
    assert_eq!(first("/mount", r#"{"id": 7, "kind": "x"}"#).split(' ').next(), Some("kind"));
}

#[test]
fn what_is_not_json_of_the_right_types_is_400() {
    let cases = [
        ("/attach", "{"),
        ("/attach", "attach"),
        ("/attach", "[]"),
        ("/attach", "\"text\""),
        ("/attach", "7"),
        ("/attach", r#"{"id": "5"}"#),
        ("/attach", r#"{"id": 5.0}"#),
        ("/attach", r#"{"id": 1e2}"#),
        ("/attach", r#"{"id": 9223372036854775808}"#),
        ("/attach", r#"{"id": true}"#),
        ("/attach", r#"{"kind": 1}"#),
        ("/attach", r#"{"local": "path"}"#),
        ("/attach", r#"{"local": []}"#),
        ("/attach", r#"{"loopback": {"readPartitions": "true"}}"#),
        ("/attach", r#"{"rbd": {"monitors": "192.0.2.1"}}"#),
        ("/attach", r#"{"rbd": {"monitors": [1]}}"#),
        ("/mount", r#"{"overlay": {"lower": {}}}"#),
        ("/mount", r#"{"overlay": {"lower": ["a"]}}"#),
        ("/container", r#"{"systemd": 1}"#),
        ("/container", r#"{"colour": red}"#),
        // An error in a duplicate that another one replaces.
        ("/attach", r#"{"id": "5", "id": 5}"#),
        // Text after the value.
        ("/attach", r#"{} {}"#),
        ("/attach", "{}x"),
    ];
    for (path, body) in cases {
        let (status, code, message) = post_error(path, body);
        assert_eq!((status, code), (400, 400), "{body}");
        let start = format!("parsing {} body from \"\" failed, because ", &path[1..]);
        assert!(message.starts_with(&start) && message.len() > start.len(), "{message}");
    }
}

#[test]
fn no_error_has_a_secret() {
    let secrets = [
        rbd(r#", "options": {"name": "hunter2", "secret": ["hunter2"]}"#),
        rbd(r#", "options": {"secret": "hunter2", "crc": "hunter2"}"#),
        rbd(r#", "options": {"secret": "hunter2"}"#),
        rbd(r#", "options": {"secret": "hunter2"#),
        rbd(r#", "monitors": ["hunter2"]"#),
    ];
    for body in secrets {
        let (_, _, message) = post_error("/attach", &body);
        assert!(!message.contains("hunter2"), "{message}");
        let shown = format!("{:?}", post("/attach", body.as_bytes()));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let shown =
        format!("{:?}", post("/attach", rbd("").replace("\"s\"", "\"hunter2\"").as_bytes()));
    assert!(shown.starts_with("Ok") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn contradictory_or_incomplete_definitions_are_400() {
    let lower = |count: usize| {
        let lower = vec![r#"{"id": 1}"#; count].join(",");
        format!(r#"{{"kind": "overlay", "overlay": {{"lower": [{lower}]}}}}"#)
    };
    let container = r#"{"command": "c", "mount": {"id": 1}"#;
    let cases = [
        ("/attach", r#"{"kind": "local"}"#.to_owned()),
        ("/attach", r#"{"kind": "iscsi", "local": {"path": "p"}}"#.to_owned()),
        ("/attach", r#"{"id": 7, "kind": "local", "local": {"path": "p"}}"#.to_owned()),
        (
            "/attach",
            r#"{"kind": "loopback", "loopback": {"base": "mount", "path": "p"}}"#.to_owned(),
        ),
        ("/attach", rbd(r#", "monitors": []"#)),
        ("/attach", rbd(r#", "options": null"#)),
        ("/attach", rbd(r#", "options": {"name": "n"}"#)),
        ("/attach", rbd(r#", "options": {"secret": "s"}"#)),
        ("/attach", rbd(r#", "options": {"name": "n", "secret": ""}"#)),
        ("/mount", r#"{"id": -1}"#.to_owned()),
        ("/mount", r#"{"kind": "nfs"}"#.to_owned()),
        ("/mount", r#"{"kind": "bind", "bind": {"base": "mount", "path": "p"}}"#.to_owned()),
        ("/mount", lower(0)),
        ("/mount", lower(65)),
        ("/mount", r#"{"kind": "overlay", "overlay": {"lower": [null]}}"#.to_owned()),
        ("/container", format!(r#"{container}, "id": 3}}"#)),
        ("/container", format!(r#"{container}, "state": "stopping"}}"#)),
        ("/container", format!(r#"{container}, "state": "exited"}}"#)),
        ("/container", format!(r#"{container}, "state": "dead"}}"#)),
        ("/container", r#"{"command": "c", "mount": {"kind": "nfs"}}"#.to_owned()),
    ];
    for (path, body) in cases {
        let (status, code, message) = post_error(path, &body);
        assert_eq!((status, code), (400, 400), "{body}");
        assert!(message.starts_with("invalid data type: "), "{message}");
    }
    assert!(post("/mount", lower(64).as_bytes()).is_ok());
}

#[test]
fn a_kind_without_a_driver_is_501() {
    let nested = r#"{"command": "c", "mount": {"kind": "uri"}}"#;
    let device = r#"{"kind": "attach", "attach": {"fs_type": "ext4", "attach": {}}}"#;
    let cases = [
        ("/attach", "{}"),
        ("/attach", "null"),
        ("/attach", r#"{"kind": "", "local": {"path": "p"}}"#),
        ("/mount", "{}"),
        ("/mount", r#"{"nfs": {"host": "h", "path": "p"}}"#),
        ("/mount", r#"{"kind": "uri"}"#),
        ("/mount", device),
        ("/container", nested),
    ];
    for (path, body) in cases {
        let (status, code, message) = post_error(path, body);
        assert_eq!((status, code), (501, 501), "{body}");
        assert!(message.starts_with("no driver found for this object type: "), "{message}");
    }
}

/// An overlay in an overlay, and so on, with `depth` mounts, inside of a container.
fn nested(depth: usize) -> String {
    let open = r#"{"kind": "overlay", "overlay": {"lower": ["#.repeat(depth - 1);
    let mount = format!("{open}{}{}", r#"{"id": 1}"#, "]}}".repeat(depth - 1));
    format!(r#"{{"command": "c", "mount": {mount}}}"#)
}

#[test]
fn f8_objects_are_nested_32_deep_at_most() {
    assert!(post("/container", nested(31).as_bytes()).is_ok());
    let (status, code, message) = post_error("/container", &nested(32));
    assert_eq!((status, code), (400, 400));
    assert_eq!(message, "invalid data type: objects are nested deeper than 32");
    for depth in [40, 50, 100_000] {
        let body = nested(depth);
        let refused = request("POST", "/container", &[common::JSON_BODY], body.as_bytes());
        assert_eq!(error(refused.unwrap_err()).0, 400, "{depth}");
    }
}

#[test]
fn errors_of_the_node_have_the_status_of_their_reason() {
    let cases = [
        (Reason::Invalid, 400, "invalid data type"),
        (Reason::NotFound, 404, "not found"),
        (Reason::Busy, 409, "object is busy"),
        (Reason::Internal, 500, "internal server error"),
        (Reason::Unspecified, 500, "internal server error"),
        (Reason::Failed, 500, "operation failed"),
        (Reason::NoDriver, 501, "no driver found for this object type"),
    ];
    let response = |reason: i32, message: String| {
        let error = Message::Error(ImageError { reason, message });
        let result = ImageResult { result: Some(error) };
        answer(&encode(Operation::DeleteMount, result, Secrets::Masked))
    };
    for (reason, status, text) in cases {
        assert_eq!(canonical_text(reason), text);
        let body = serde_json::json!({"code": status, "message": text});
        assert_eq!(response(reason.into(), String::new()), (status, body));
        let cause = format!("{text}: mount 7");
        let body = serde_json::json!({"code": status, "message": cause});
        assert_eq!(response(reason.into(), cause), (status, body));
    }
    assert_eq!(response(99, "odd".into()).0, 500);
}

#[test]
fn a_result_of_another_operation_is_an_internal_error() {
    for result in [None, Some(Message::Mount(Mount::default()))] {
        let response = encode(Operation::CreateContainer, ImageResult { result }, Secrets::Masked);
        let (status, body) = answer(&response);
        assert_eq!((status, body["code"].as_u64()), (500, Some(500)));
    }
}

#[test]
fn the_bodies_of_errors_are_those_of_the_examples() {
    let busy = ImageError { reason: Reason::Busy.into(), message: String::new() };
    let body = |error: ApiError| Response::from(error).into_body();
    assert_eq!(body(busy.into()), "{\"code\":409,\"message\":\"object is busy\"}\n");
    let required = post("/attach", br#"{"local": {}}"#).unwrap_err();
    assert_eq!(body(required), "{\"code\":602,\"message\":\"path in body is required\"}\n");
}
