//! The rules of JSON: what is read from requests, and what responses have.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{ACCEPT_JSON, JSON_BODY, answer, echo, echo_body, post};
use http::{HeaderMap, HeaderValue, Method};
use imageapi::{DecodeOptions, Operation, Request, Secrets, decode, encode};
use serde_json::{Value, json};
use tinwright::node::v1::attachment::{self, Local, Rbd, RbdOptions};
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::Call;
use tinwright::node::v1::image_result::{Attachments, Containers, Mounts, Result as Object};
use tinwright::node::v1::{Attachment, Container, ImageResult, Mount, mount};

/// The local attachment that `body` is decoded to.
fn local(body: &str) -> String {
    match post("/attach", body.as_bytes()) {
        Ok(Call::CreateAttachment(Attachment {
            definition: Some(attachment::Definition::Local(Local { path })),
            ..
        })) => path,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn names_match_without_case_and_the_last_duplicate_counts() {
    assert_eq!(local(r#"{"Kind": "local", "LOCAL": {"pAtH": "/dev/a"}}"#), "/dev/a");
    assert_eq!(
        local(r#"{"kind": "rbd", "kind": "local", "local": {"path": "a", "Path": "b"}}"#),
        "b"
    );
    assert_eq!(local(r#"{"kind": "local", "local": {"path": "a"}, "local": {"path": "b"}}"#), "b");
    assert_eq!(local(r#"{"id": 5, "ID": null, "kind": "local", "local": {"path": "a"}}"#), "a");
    let partitions = r#"{"kind": "loopback", "loopback": {"path": "p", "base": "root", "readpartitions": true}}"#;
    assert_eq!(echo_body("/attach", partitions)["loopback"]["readPartitions"], true);
}

#[test]
fn unknown_properties_are_ignored_whatever_they_have() {
    let body = r#"{"kind": "local", "colour": {"path": [1, 2.5, {"deep": null}]}, "attach_id": "x",
        "local": {"path": "a", "kind": 7}}"#;
    assert_eq!(local(body), "a");
    let hooks = r#"{"command": "c", "mount": {"id": 1}, "hooks": {"init": 5}}"#;
    assert!(post("/container", hooks.as_bytes()).is_ok());
}

#[test]
fn null_is_the_same_as_absent() {
    let body = r#"{"command": "c", "mount": {"id": 1}, "name": null, "namespaces": null,
        "systemd": null, "state": null, "id": null, "refs": null, "logfile": null}"#;
    let absent = r#"{"command": "c", "mount": {"id": 1}}"#;
    assert_eq!(post("/container", body.as_bytes()), post("/container", absent.as_bytes()));
    let body = r#"{"kind": "nfs", "nfs": {"host": "h", "path": "p", "ro": null, "version": null, "options": null}}"#;
    let absent = r#"{"kind": "nfs", "nfs": {"host": "h", "path": "p"}}"#;
    assert_eq!(post("/mount", body.as_bytes()), post("/mount", absent.as_bytes()));
    assert_eq!(post("/attach", b"null"), post("/attach", b"{}"));
}

#[test]
fn integers_have_64_bits() {
    for number in [i64::MAX, i64::MIN, -1, 0] {
        let body = format!(
            r#"{{"kind": "iscsi", "iscsi": {{"host": "h", "initiator": "i", "target": "t", "port": {number}}}}}"#
        );
        assert_eq!(echo_body("/attach", &body)["iscsi"]["port"], number);
    }
}

#[test]
fn an_object_with_an_id_is_a_reference_and_the_rest_of_it_is_ignored() {
    let body = r#"{"command": "c", "mount": {"id": 7, "kind": "rbd", "nfs": null}}"#;
    assert!(post("/container", body.as_bytes()).is_err(), "the rest is validated");
    let body = r#"{"command": "c", "mount": {"id": 7, "kind": "uri", "overlay": {"lower": []}}}"#;
    let Ok(Call::CreateContainer(container)) = post("/container", body.as_bytes()) else {
        panic!()
    };
    assert_eq!(container.mount, Some(Mount { id: 7, ..Mount::default() }));
    let negative = r#"{"kind": "attach", "attach": {"fs_type": "ext4", "attach": {"id": -7}}}"#;
    assert_eq!(echo_body("/mount", negative)["attach"]["attach"], json!({"id": -7}));
}

#[test]
fn definitions_that_are_not_used_are_in_the_response() {
    let body = r#"{"kind": "bind", "nfs": {"host": "h", "path": "p"}, "overlay": {"lower": [{"id": 1}, null]},
        "bind": {"base": "root", "path": "/a", "ro": false, "mount": {"kind": "uri"}}, "new": {"a": 1}}"#;
    let expected = json!({"kind": "bind", "nfs": {"host": "h", "options": null, "path": "p"},
        "overlay": {"lower": [{"id": 1}, null]},
        "bind": {"base": "root", "path": "/a", "ro": false, "mount": {"kind": "uri"}}});
    assert_eq!(echo_body("/mount", body), expected);
    // In nested objects, too, and of any kind; not beside the id of a reference.
    let body = json!({"kind": "attach", "attach": {"fs_type": "xfs", "mount_options": null, "attach":
        {"kind": "local", "local": {"path": "/a"}, "loopback": {"base": "mount", "path": "b"}}}});
    let container = json!({"command": "c", "mount": body, "namespaces": null});
    assert_eq!(echo_body("/container", &container.to_string()), container);
    let reference = json!({"command": "c", "mount": {"id": 7, "nfs": {"host": "h", "path": "p"}}});
    assert_eq!(echo_body("/container", &reference.to_string())["mount"], json!({"id": 7}));
}

#[test]
fn definitions_that_are_not_used_are_validated() {
    let body = |unused: &str| {
        format!(r#"{{"kind": "local", "local": {{"path": "/a"}}, "loopback": {unused}}}"#)
    };
    let refused = |unused: &str| common::post_error("/attach", &body(unused));
    assert_eq!(refused(r#"{"base": "root"}"#).0, 422);
    assert_eq!(refused(r#"{"base": "disk", "path": "p"}"#).1, 606);
    assert_eq!(refused("7").0, 400);
    for unused in ["null", r#"{"base": "mount", "path": "p"}"#] {
        assert!(post("/attach", body(unused).as_bytes()).is_ok(), "{unused}");
    }
}

#[test]
fn a_definition_that_is_not_used_has_no_key() {
    let options = json!({"name": "n", "secret": "hunter2"});
    let rbd = json!({"image": "i", "monitors": ["1.2.3.4"], "pool": "p", "options": options});
    let device = json!({"kind": "rbd", "rbd": rbd});
    let attach = json!({"attach": device, "fs_type": "xfs", "mount_options": ["ro"]});
    let bind = json!({"base": "root", "path": "p", "mount": {"kind": "attach", "attach": attach}});
    let body = json!({"kind": "bind", "bind": bind, "attach": attach}).to_string();
    let shown = format!("{:?}", post("/mount", body.as_bytes()).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    let shown = echo_body("/mount", &body);
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert_eq!(shown["attach"]["attach"]["rbd"]["options"], json!({"name": "n"}));
    assert_eq!(shown["bind"]["mount"]["attach"], shown["attach"]);
}

#[test]
fn text_that_is_no_unused_definition_is_not_shown() {
    for text in [
        "x",
        "[]",
        r#"{"refs": 7, "id": 9, "kind": "rbd", "device_file": "/b", "local": null}"#,
        r#"{"local": {"path": "/b"}}"#,
        r#"{"local": 7}"#,
    ] {
        let local = attachment::Definition::Local(Local { path: "/a".into() });
        let it = Attachment {
            definition: Some(local),
            unused_definitions: text.into(),
            ..Attachment::default()
        };
        let result = ImageResult { result: Some(Object::Attachment(it)) };
        let shown = answer(&encode(Operation::CreateAttachment, result, Secrets::Shown)).1;
        assert_eq!(shown, json!({"kind": "local", "local": {"path": "/a"}}), "{text}");
    }
}

#[test]
fn required_and_list_properties_are_always_present() {
    let encoded = |operation, object| {
        answer(&encode(operation, ImageResult { result: Some(object) }, Secrets::Shown)).1
    };
    let container = encoded(Operation::CreateContainer, Object::Container(Container::default()));
    assert_eq!(container, json!({"command": "", "mount": null, "namespaces": null}));
    let mount = |definition| {
        let mount = Mount { definition: Some(definition), ..Mount::default() };
        encoded(Operation::CreateMount, Object::Mount(mount))
    };
    let attach = mount(mount::Definition::Attach(Box::default()));
    let expected = json!({"attach": null, "fs_type": "", "mount_options": null});
    assert_eq!(attach["attach"], expected);
    let nfs = mount(mount::Definition::Nfs(mount::Nfs::default()));
    assert_eq!(nfs["nfs"], json!({"host": "", "options": null, "path": ""}));
    let overlay = mount(mount::Definition::Overlay(mount::Overlay::default()));
    assert_eq!(overlay["overlay"], json!({"lower": null}));
    let bind = mount(mount::Definition::Bind(Box::default()));
    assert_eq!(bind["bind"], json!({"base": null, "path": ""}));
    let attachment = |definition| {
        let attachment = Attachment { definition: Some(definition), ..Attachment::default() };
        encoded(Operation::CreateAttachment, Object::Attachment(attachment))
    };
    let rbd = attachment(attachment::Definition::Rbd(Rbd::default()));
    assert_eq!(rbd["rbd"], json!({"image": "", "monitors": null, "pool": ""}));
    let iscsi = attachment(attachment::Definition::Iscsi(attachment::Iscsi::default()));
    assert_eq!(iscsi["iscsi"], json!({"host": "", "initiator": "", "target": ""}));
    let local = attachment(attachment::Definition::Local(Local::default()));
    assert_eq!(local["local"], json!({"path": ""}));
    let loopback = attachment(attachment::Definition::Loopback(Box::default()));
    assert_eq!(loopback["loopback"], json!({"base": null, "path": ""}));
}

#[test]
fn properties_with_a_default_are_present_exactly_if_they_were_given() {
    let cases = [
        (
            "/mount",
            json!({"kind": "bind", "bind": {"base": "root", "path": "p", "recursive": false, "ro": false}}),
        ),
        ("/mount", json!({"kind": "bind", "bind": {"base": "root", "path": "p"}})),
        (
            "/mount",
            json!({"kind": "nfs", "nfs": {"host": "h", "options": null, "path": "p", "ro": false, "version": ""}}),
        ),
        (
            "/attach",
            json!({"kind": "loopback", "loopback": {"base": "root", "path": "p", "readPartitions": false}}),
        ),
        (
            "/attach",
            json!({"kind": "iscsi", "iscsi": {"host": "h", "initiator": "i", "max_comands": 0,
                "port": 0, "queue_depth": 0, "scheduler": "", "target": "t"}}),
        ),
    ];
    for (path, body) in cases {
        assert_eq!(echo_body(path, &body.to_string()), body);
    }
}

#[test]
fn other_properties_are_left_out_when_they_are_zero() {
    let body = r#"{"command": "c", "mount": {"id": 1, "kind": ""}, "name": "", "systemd": false,
        "state": "", "id": 0, "namespaces": []}"#;
    let expected = json!({"command": "c", "mount": {"id": 1}, "namespaces": null});
    assert_eq!(echo_body("/container", body), expected);
    let body = r#"{"kind": "rbd", "rbd": {"image": "i", "monitors": ["1.2.3.4"], "pool": "p", "snapshot": "",
        "device_id": 0, "options": {"name": "n", "secret": "s", "ip": "", "ro": false, "queue_depth": 0}}}"#;
    let expected = json!({"image": "i", "monitors": ["1.2.3.4"], "pool": "p",
        "options": {"name": "n", "secret": "s"}});
    assert_eq!(echo_body("/attach", body)["rbd"], expected);
    let body =
        r#"{"kind": "iscsi", "iscsi": {"host": "h", "initiator": "i", "lun": 0, "target": "t"}}"#;
    let expected = json!({"host": "h", "initiator": "i", "target": "t"});
    assert_eq!(echo_body("/attach", body)["iscsi"], expected);
}

/// All options of an RBD image, each with a value of its own.
fn rbd_options() -> Value {
    let mut options =
        json!({"fsid": "f", "ip": "1.2.3.4", "name": "n", "secret": "s", "namespace": "ns"});
    let switches = "share noshare crc nocrc ceph_requires_signatures noceph_requires_signatures \
        tcp_nodelay notcp_nodelay cephx_sign_messages nocephx_sign_messages force rw ro \
        lock_on_read exclusive notrim abort_on_full";
    for switch in switches.split_whitespace() {
        options[switch] = true.into();
    }
    let numbers = "mount_timeout osdkeepalive osd_idle_ttl queue_depth lock_timeout alloc_size";
    for (index, number) in numbers.split_whitespace().enumerate() {
        options[number] = (index + 1).into();
    }
    options
}

#[test]
fn every_property_of_a_request_is_in_the_response() {
    let rbd = json!({"kind": "rbd", "rbd": {"image": "i", "monitors": ["1.2.3.4", "5.6.7.8"],
        "options": rbd_options(), "pool": "p", "snapshot": "s"}});
    let iscsi = json!({"kind": "iscsi", "iscsi": {"host": "h", "initiator": "i", "lun": 1,
        "max_comands": 2, "port": 3, "queue_depth": 4, "scheduler": "s", "target": "t"}});
    let nfs = json!({"kind": "nfs", "nfs": {"host": "h", "options": ["a", "b"], "path": "p",
        "ro": true, "version": "3"}});
    let loopback = json!({"kind": "loopback", "loopback": {"base": "mount", "mount": nfs,
        "path": "p", "readPartitions": true}});
    let attach = |device: &Value| {
        json!({"kind": "attach", "attach": {"attach": device, "fs_type": "f",
            "mount_options": ["ro", ""]}})
    };
    let bind = json!({"kind": "bind", "bind": {"base": "mount", "mount": attach(&loopback),
        "path": "p", "recursive": true, "ro": true}});
    let local = json!({"kind": "local", "local": {"path": "p"}});
    let lower = json!([bind, attach(&rbd), attach(&iscsi), attach(&local), {"id": 9}]);
    let namespaces = json!(["uts", "cgroup", "ipc", "net", "mnt", "pid", "time", "user"]);
    let container = json!({"command": "c", "mount": {"kind": "overlay", "overlay": {"lower": lower}},
        "name": "n", "namespaces": namespaces, "state": "running", "systemd": true});
    assert_eq!(echo_body("/container", &container.to_string()), container);
    for state in ["created", "running"] {
        let body = json!({"command": "c", "mount": {"id": 1}, "namespaces": null, "state": state});
        assert_eq!(echo_body("/container", &body.to_string()), body);
    }
}

#[test]
fn what_the_server_sets_is_in_the_response() {
    let rbd = Rbd { device_id: 3, ..Rbd::default() };
    let attachment = Attachment {
        id: 1,
        device_file: "/dev/rbd3".into(),
        refs: 2,
        definition: Some(attachment::Definition::Rbd(rbd)),
        ..Attachment::default()
    };
    let mount = mount::AttachmentMount { attach: Some(Box::new(attachment)), ..Default::default() };
    let mount = Mount {
        id: 4,
        mountpoint: "/m".into(),
        refs: 5,
        definition: Some(mount::Definition::Attach(Box::new(mount))),
        ..Mount::default()
    };
    let overlay =
        mount::Overlay { lower: vec![mount], workdir: "/w".into(), upperdir: "/u".into() };
    let mount = Mount { definition: Some(mount::Definition::Overlay(overlay)), ..Mount::default() };
    let container = Container {
        id: 6,
        mount: Some(mount),
        state: State::Stopping.into(),
        logfile: "/l".into(),
        refs: 7,
        ..Container::default()
    };
    let result = ImageResult { result: Some(Object::Container(container)) };
    let (status, body) = answer(&encode(Operation::SetContainerState, result, Secrets::Masked));
    let attachment = json!({"device_file": "/dev/rbd3", "id": 1, "kind": "rbd", "refs": 2,
        "rbd": {"device_id": 3, "image": "", "monitors": null, "pool": ""}});
    let lower = json!({"id": 4, "kind": "attach", "mountpoint": "/m", "refs": 5,
        "attach": {"attach": attachment, "fs_type": "", "mount_options": null}});
    let mount = json!({"kind": "overlay",
        "overlay": {"lower": [lower], "upperdir": "/u", "workdir": "/w"}});
    let expected = json!({"command": "", "id": 6, "logfile": "/l", "mount": mount,
        "namespaces": null, "refs": 7, "state": "stopping"});
    assert_eq!((status, body), (200, expected));
}

#[test]
fn lists_are_arrays_which_can_be_empty() {
    let encoded = |operation, object| {
        let response = encode(operation, ImageResult { result: Some(object) }, Secrets::Masked);
        (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
    };
    let attachments = |attachments| Object::Attachments(Attachments { attachments });
    let list = encoded(Operation::ListAttachments, attachments(vec![]));
    assert_eq!(list, (200, "[]\n".into()));
    let one = Attachment { id: 1, ..Attachment::default() };
    let list = encoded(Operation::ListAttachments, attachments(vec![one.clone(), one]));
    assert_eq!(list, (200, "[{\"id\":1},{\"id\":1}]\n".into()));
    let mounts = Object::Mounts(Mounts { mounts: vec![Mount { id: 2, ..Mount::default() }] });
    assert_eq!(encoded(Operation::ListMounts, mounts), (200, "[{\"id\":2}]\n".into()));
    let containers = Object::Containers(Containers { containers: vec![] });
    assert_eq!(encoded(Operation::ListContainers, containers), (200, "[]\n".into()));
}

#[test]
fn d11_secrets_are_masked_unless_they_are_to_be_shown() {
    let rbd = json!({"kind": "rbd", "rbd": {"image": "i", "monitors": ["1.2.3.4"], "pool": "p",
        "options": {"name": "n", "secret": "hunter2"}}});
    let mount = json!({"kind": "attach", "attach": {"attach": rbd, "fs_type": "xfs"}});
    let bind = json!({"kind": "bind", "bind": {"base": "mount", "mount": mount, "path": "p"}});
    let loopback =
        json!({"kind": "loopback", "loopback": {"base": "mount", "mount": bind, "path": "p"}});
    let mount = json!({"kind": "attach", "attach": {"attach": loopback, "fs_type": "ext4"}});
    let overlay = json!({"kind": "overlay", "overlay": {"lower": [mount]}});
    let container = json!({"command": "c", "mount": overlay}).to_string();
    let body = |secrets| {
        String::from_utf8(echo("/container", &container, secrets).body().to_vec()).unwrap()
    };
    assert!(body(Secrets::Shown).contains("hunter2"));
    let masked = body(Secrets::Masked);
    assert!(!masked.contains("secret") && masked.contains(r#""options":{"name":"n"}"#), "{masked}");
    // A masked object cannot be sent back.
    let options = RbdOptions { name: "n".into(), ..RbdOptions::default() };
    assert!(options.secret.is_empty());
    let masked: Value = serde_json::from_str(&masked).unwrap();
    assert_eq!(common::post_error("/container", &masked.to_string()).0, 400);
}

#[test]
fn d32_names_may_have_all_digits_and_128_characters() {
    for name in ["n2", "node-0123456789", "a.b_c", &"n".repeat(128)] {
        let body = json!({"command": "c", "mount": {"id": 1}, "name": name});
        assert_eq!(echo_body("/container", &body.to_string())["name"], name);
    }
}

#[test]
fn x8_monitors_with_a_port_are_accepted_by_a_switch_only() {
    let mut headers = HeaderMap::new();
    for (name, value) in [ACCEPT_JSON, JSON_BODY] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let decoded = |monitor: &str, rbd_monitor_ports| {
        let body = json!({"kind": "rbd", "rbd": {"image": "i", "monitors": [monitor], "pool": "p",
            "options": {"name": "n", "secret": "s"}}});
        let request =
            Request { method: &Method::POST, path: "/attach", query: None, headers: &headers };
        decode(&request, body.to_string().as_bytes(), DecodeOptions { rbd_monitor_ports })
    };
    for monitor in ["192.0.2.1:6789", "[2001:db8::1]", "[2001:db8::1]:3300"] {
        assert!(decoded(monitor, true).is_ok(), "{monitor}");
        assert_eq!(decoded(monitor, false).unwrap_err().code, 605, "{monitor}");
    }
    assert!(decoded("192.0.2.1", true).is_ok());
    assert_eq!(decoded("mon.example:6789", true).unwrap_err().code, 605);
}
