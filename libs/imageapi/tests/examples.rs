//! The example objects of the ImageAPI's documentation.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{echo, echo_body, post};
use http::Response;
use imageapi::{Operation, Secrets, encode};
use serde_json::{Value, json};
use tinwright::node::v1::attachment::{self, Local};
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::Call;
use tinwright::node::v1::image_result::Result as Object;
use tinwright::node::v1::mount::{AttachmentMount, Bind, Definition, Overlay};
use tinwright::node::v1::{Attachment, Base, Container, ImageResult, Mount};

/// The requests, by name: the body of `POST /container`.
const CONTAINERS: [(&str, &str); 7] = [
    ("nfs", include_str!("data/nfs.json")),
    ("nfs-overlay", include_str!("data/nfs-overlay.json")),
    ("loopback-on-nfs", include_str!("data/loopback-on-nfs.json")),
    ("iscsi", include_str!("data/iscsi.json")),
    ("rbd", include_str!("data/rbd.json")),
    ("rbd-overlay", include_str!("data/rbd-overlay.json")),
    ("deep", include_str!("data/deep.json")),
];

/// Removes what a response adds: arrays that are `null`.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(array) => array.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn the_examples_are_decoded_without_loss() {
    for (name, body) in CONTAINERS {
        let sent: Value = serde_json::from_str(body).unwrap();
        assert_eq!(without_nulls(echo_body("/container", body)), sent, "{name}");
    }
}

#[test]
fn the_answers_have_the_secrets_of_no_example() {
    for (name, body) in CONTAINERS {
        let response = echo("/container", body, Secrets::Masked);
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        assert!(!text.contains("QVFE") && !text.contains("secret"), "{name}");
        assert_eq!(body.contains("secret"), name.starts_with("rbd"), "{name}");
    }
}

/// The bytes of `text` without the white space between its parts, and with a newline.
fn compact(text: &str) -> String {
    let mut in_string = false;
    let kept = text.chars().filter(|letter| {
        in_string ^= *letter == '"';
        in_string || !letter.is_whitespace()
    });
    kept.chain(['\n']).collect()
}

fn local_disk(refs: i64) -> Attachment {
    let local = Local { path: "/dev/nvme1n1".into() };
    Attachment {
        id: 41,
        device_file: "/dev/nvme1n1".into(),
        refs,
        definition: Some(attachment::Definition::Local(local)),
        ..Attachment::default()
    }
}

fn mount(id: i64, refs: i64, directory: &str, definition: Definition) -> Mount {
    let mountpoint = format!("/var/run/imageapi/mounts/{directory}");
    Mount { id, mountpoint, refs, definition: Some(definition), ..Mount::default() }
}

fn layers(refs: i64) -> Mount {
    let bind = Bind {
        path: "/srv/site-layer".into(),
        base: Base::Root.into(),
        recursive: Some(false),
        ro: Some(true),
        ..Bind::default()
    };
    let attach = AttachmentMount {
        attach: Some(Box::new(local_disk(2))),
        fs_type: "erofs".into(),
        mount_options: vec!["ro".into()],
    };
    let overlay = Overlay {
        lower: vec![
            mount(42, 1, "mount_3305581190", Definition::Bind(Box::new(bind))),
            mount(43, 1, "mount_2207716604", Definition::Attach(Box::new(attach))),
        ],
        workdir: "/var/run/imageapi/mounts/work_1177640083".into(),
        upperdir: "/var/run/imageapi/mounts/upper_611902245".into(),
    };
    mount(44, refs, "mount_1940277316", Definition::Overlay(overlay))
}

fn check(operation: Operation, object: Object, expected: &str) {
    let result = ImageResult { result: Some(object) };
    let response: Response<_> = encode(operation, result, Secrets::Masked);
    assert_eq!(response.status(), 201);
    assert_eq!(String::from_utf8(response.body().to_vec()).unwrap(), compact(expected));
}

#[test]
fn the_answers_by_reference_are_those_of_the_examples_to_the_byte() {
    let attached = Object::Attachment(local_disk(1));
    check(Operation::CreateAttachment, attached, include_str!("data/answer-attach.json"));
    let mounted = include_str!("data/answer-mount.json");
    check(Operation::CreateMount, Object::Mount(layers(1)), mounted);
    let container = Container {
        id: 45,
        name: "svc".into(),
        mount: Some(layers(2)),
        command: "/opt/svc/run --listen 0.0.0.0:9000".into(),
        state: State::Running.into(),
        logfile: "/var/run/imageapi/logs/45-1732100455.log".into(),
        refs: 1,
        ..Container::default()
    };
    // The answer has the mount in full.
    let end = mounted.rfind("\"refs\": 1").unwrap();
    let mount = format!("{}\"refs\": 2 }}", &mounted[..end]);
    let expected = include_str!("data/answer-container.json").replace("\"MOUNT\"", &mount);
    check(Operation::CreateContainer, Object::Container(container), &expected);
}

#[test]
fn the_requests_by_reference_are_decoded() {
    let body = json!({"kind": "local", "local": {"path": "/dev/nvme1n1"}});
    assert_eq!(echo_body("/attach", &body.to_string()), body);
    let Ok(Call::CreateMount(mount)) = post("/mount", include_bytes!("data/layers.json")) else {
        panic!()
    };
    let Some(Definition::Overlay(overlay)) = mount.definition else { panic!() };
    let Some(Definition::Attach(attach)) = &overlay.lower[1].definition else { panic!() };
    assert_eq!(attach.attach, Some(Box::new(Attachment { id: 41, ..Attachment::default() })));
    let body = json!({"name": "svc", "command": "/opt/svc/run --listen 0.0.0.0:9000",
        "state": "running", "mount": {"id": 44}});
    assert_eq!(without_nulls(echo_body("/container", &body.to_string())), body);
}
