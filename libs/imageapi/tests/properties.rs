//! Properties: no request makes the decoder panic, and what a response has to keep is kept.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod common;

use common::{ACCEPT_JSON, JSON_BODY, echo_body, error, post, request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// A property that is absent, `null` or has a value.
fn optional<S: Strategy<Value = Value> + 'static>(value: S) -> BoxedStrategy<Option<Value>> {
    option::of(prop_oneof![4 => value, 1 => Just(Value::Null)]).boxed()
}

fn text() -> impl Strategy<Value = Value> {
    "[ -~é\"\\\\]{0,8}".prop_map(Value::from)
}

fn texts() -> impl Strategy<Value = Value> {
    vec("[a-z=,]{0,5}", 0..3).prop_map(Value::from)
}

fn boolean() -> impl Strategy<Value = Value> {
    any::<bool>().prop_map(Value::from)
}

fn integer() -> impl Strategy<Value = Value> {
    prop_oneof![Just(0), any::<i64>()].prop_map(Value::from)
}

/// An object with the properties that are there.
fn object(properties: Vec<(&'static str, BoxedStrategy<Option<Value>>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = properties.into_iter().unzip();
    let object = values.prop_map(move |values| {
        let pairs = names.iter().zip(values);
        pairs.filter_map(|(name, value)| Some(((*name).to_owned(), value?))).collect::<Map<_, _>>()
    });
    object.prop_map(Value::Object).boxed()
}

fn required<S: Strategy<Value = Value> + 'static>(value: S) -> BoxedStrategy<Option<Value>> {
    value.prop_map(Some).boxed()
}

/// An object of `kind`, with its definition.
fn of_kind(kind: &'static str, definition: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    definition.prop_map(move |definition| json!({"kind": kind, kind: definition})).boxed()
}

fn reference() -> BoxedStrategy<Value> {
    prop_oneof![1..=i64::MAX, i64::MIN..0].prop_map(|id| json!({"id": id})).boxed()
}

/// The properties of a path below a base, which is `inner` if there is one.
fn based(
    inner: Option<BoxedStrategy<Value>>,
    mut others: Vec<(&'static str, BoxedStrategy<Option<Value>>)>,
) -> BoxedStrategy<Value> {
    let base = if inner.is_some() { "mount" } else { "root" };
    others.push(("base", required(Just(json!(base)))));
    others.push(("path", required(text())));
    others.extend(inner.map(|inner| ("mount", required(inner))));
    object(others)
}

fn rbd() -> BoxedStrategy<Value> {
    let options = object(vec![
        ("name", required("[a-z]{1,5}".prop_map(Value::from))),
        ("secret", required("[a-z]{1,5}".prop_map(Value::from))),
        ("ip", optional(select(vec!["", "192.0.2.9"]).prop_map(Value::from))),
        ("crc", optional(boolean())),
        ("ro", optional(boolean())),
        ("alloc_size", optional(integer())),
    ]);
    let monitors = vec("[0-9]{1,3}(\\.[0-9]{1,3}){3}", 1..3).prop_map(Value::from);
    object(vec![
        ("monitors", required(monitors)),
        ("pool", required("[a-z]{1,5}".prop_map(Value::from))),
        ("image", required("[a-z]{1,5}".prop_map(Value::from))),
        ("snapshot", optional(text())),
        ("options", required(options)),
    ])
}

/// An attachment, perhaps over one of the mounts `inner`.
fn attachment(inner: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let iscsi = object(vec![
        ("initiator", required(text())),
        ("target", required(text())),
        ("host", required(text())),
        ("port", optional(integer())),
        ("lun", optional(integer())),
        ("max_comands", optional(integer())),
        ("queue_depth", optional(integer())),
        ("scheduler", optional(text())),
    ]);
    let partitions = || vec![("readPartitions", optional(boolean()))];
    prop_oneof![
        reference(),
        of_kind("iscsi", iscsi),
        of_kind("local", object(vec![("path", required(text()))])),
        of_kind("loopback", based(None, partitions())),
        of_kind("loopback", based(Some(inner), partitions())),
        of_kind("rbd", rbd()),
    ]
    .boxed()
}

/// A mount over some of the mounts `inner`.
fn layer(inner: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let attach = object(vec![
        ("attach", required(attachment(inner.clone()))),
        ("fs_type", required(text())),
        ("mount_options", optional(texts())),
    ]);
    let flags = || vec![("ro", optional(boolean())), ("recursive", optional(boolean()))];
    let lower = vec(inner.clone(), 1..4).prop_map(Value::from);
    prop_oneof![
        of_kind("attach", attach),
        of_kind("bind", based(None, flags())),
        of_kind("bind", based(Some(inner), flags())),
        of_kind("overlay", object(vec![("lower", required(lower))])),
    ]
    .boxed()
}

fn mount() -> BoxedStrategy<Value> {
    let nfs = object(vec![
        ("host", required(text())),
        ("path", required(text())),
        ("ro", optional(boolean())),
        ("version", optional(text())),
        ("options", optional(texts())),
    ]);
    let leaf = prop_oneof![reference(), of_kind("nfs", nfs)];
    leaf.prop_recursive(4, 16, 3, |inner| layer(inner.boxed())).boxed()
}

fn container() -> BoxedStrategy<Value> {
    let states = select(vec!["", "created", "running"]).prop_map(Value::from);
    let spaces = ["cgroup", "ipc", "net", "mnt", "pid", "time", "user", "uts"];
    let spaces = vec(select(spaces.to_vec()), 0..4).prop_map(Value::from);
    object(vec![
        ("command", required(text())),
        ("mount", required(mount())),
        ("name", optional("[A-Za-z0-9._-]{0,9}".prop_map(Value::from))),
        ("systemd", optional(boolean())),
        ("state", optional(states)),
        ("namespaces", optional(spaces)),
    ])
}

/// Properties that are in every response.
const ALWAYS: [&str; 4] = ["namespaces", "mount_options", "options", "lower"];
/// Properties that are in a response exactly if they are in the request.
const GIVEN: [&str; 8] = [
    "recursive",
    "ro",
    "version",
    "readPartitions",
    "port",
    "max_comands",
    "queue_depth",
    "scheduler",
];

/// True if the property `name` of `object` is there although its value is zero.
fn keeps_zero(object: &Map<String, Value>, name: &str) -> bool {
    let is_rbd_option = object.contains_key("secret");
    let is_required = ["command", "path", "host", "initiator", "target", "fs_type"].contains(&name);
    is_required || (GIVEN.contains(&name) && !is_rbd_option)
}

/// What a response has of the request `sent`: written from the rules, without the tables.
fn kept(sent: &Value) -> Value {
    let Value::Object(object) = sent else {
        return match sent {
            Value::Array(array) => array.iter().map(kept).collect(),
            other => other.clone(),
        };
    };
    let is_zero = |value: &Value| [json!(0), json!(false), json!("")].contains(value);
    let mut response = Map::new();
    for (name, value) in object {
        if value.is_null() || (is_zero(value) && !keeps_zero(object, name)) {
            continue;
        }
        let empty_list = ALWAYS.contains(&name.as_str()) && *value == json!([]);
        response.insert(name.clone(), if empty_list { Value::Null } else { kept(value) });
    }
    let lists = [("command", "namespaces"), ("fs_type", "mount_options"), ("host", "options")];
    for (beside, list) in lists {
        if response.contains_key(beside) && !response.contains_key("target") {
            response.entry(list).or_insert(Value::Null);
        }
    }
    Value::Object(response)
}

/// A change of a body at a place.
#[derive(Clone, Debug)]
enum Mutation {
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    Replace(usize, u8),
    Repeat(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let tokens = [
        "null",
        "{}",
        "[]",
        "[null]",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\ud800",
        "-1",
        "0",
        "1e2",
        "5.0",
        "99999999999999999999",
        "true",
        "\"id\":7,",
        "\"kind\":\"uri\",",
        "\"refs\":1,",
        "\"\":",
    ];
    let tokens = select(tokens.to_vec()).prop_map(|token| token.as_bytes().to_vec());
    prop_oneof![
        (any::<usize>(), 0..20_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (any::<usize>(), prop_oneof![tokens, vec(any::<u8>(), 0..4)])
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (any::<usize>(), 0..60_usize).prop_map(|(at, count)| Mutation::Repeat(at, count)),
    ]
}

fn mutate(body: &mut Vec<u8>, mutation: Mutation) {
    let place = |at: usize| at % (body.len() + 1);
    match mutation {
        Mutation::Remove(at, count) => {
            let start = place(at);
            body.drain(start..(start + count).min(body.len()));
        }
        Mutation::Insert(at, bytes) => {
            let start = place(at);
            body.splice(start..start, bytes);
        }
        Mutation::Replace(at, byte) => {
            let start = place(at);
            if let Some(place) = body.get_mut(start) {
                *place = byte;
            }
        }
        Mutation::Repeat(at, count) => {
            let start = place(at);
            let part = body[start..(start + count).min(body.len())].to_vec();
            body.splice(start..start, part);
        }
    }
}

proptest! {
    #[test]
    fn a_response_keeps_of_the_request_what_it_has_to(body in container()) {
        prop_assert_eq!(echo_body("/container", &body.to_string()), kept(&body));
    }

    #[test]
    fn a_response_can_be_sent_as_a_request_with_the_same_meaning(body in mount()) {
        prop_assume!(body.get("id").is_none());
        let first = post("/mount", body.to_string().as_bytes()).unwrap();
        let again = echo_body("/mount", &body.to_string()).to_string();
        prop_assert_eq!(post("/mount", again.as_bytes()).unwrap(), first);
    }

    #[test]
    fn mutated_bodies_are_decoded_or_refused_with_an_error_object(
        body in container(),
        mutations in vec(mutation(), 1..6),
        path in select(vec!["/attach", "/mount", "/container"]),
    ) {
        let mut body = body.to_string().into_bytes();
        mutations.into_iter().for_each(|mutation| mutate(&mut body, mutation));
        if let Err(refused) = post(path, &body) {
            let (status, code, message) = error(refused);
            prop_assert!(matches!(status, 400 | 422 | 501), "{status}");
            prop_assert!(code == u64::from(status) || (602..=619).contains(&code), "{code}");
            prop_assert!(!message.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(body in vec(any::<u8>(), 0..200)) {
        if let Err(refused) = post("/attach", &body) {
            prop_assert!(matches!(refused.status.as_u16(), 400 | 422 | 501));
        }
    }

    #[test]
    fn any_method_path_query_and_header_is_decoded_or_refused(
        method in "[A-Z]{1,7}|GET|DELETE|PATCH",
        path in "/?(attach|mount|container|[ -~]{0,9})/?",
        query in "([a-z]{0,5}|id|name|force|kind|state)=?[ -~]{0,9}&?([ -~]{0,20}|id=[0-9]{1,20})",
        accept in "[ -~]{0,20}|[a-z*]{1,5}/[a-z*]{1,5}(;q=[0-9.]{0,4})?",
    ) {
        let target = format!("{path}?{query}");
        let headers = [("accept", accept.as_str()), JSON_BODY];
        if let Err(refused) = request(&method, &target, &headers, b"") {
            prop_assert!(matches!(error(refused).0, 400 | 404 | 405 | 406 | 422));
        }
        let accepted = [ACCEPT_JSON];
        if let Err(refused) = request(&method, &target, &accepted, b"") {
            prop_assert!(matches!(error(refused).0, 400 | 404 | 405 | 422));
        }
    }
}
