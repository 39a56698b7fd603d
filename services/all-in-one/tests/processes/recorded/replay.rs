//! Reads of all objects of a program, and of the same objects by another one.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};

use super::client::{Client, decoded, method, methods, path};
use super::comparison::Comparison;
use super::recording::RecordedCall;
use super::site::Site;

/// Calls that read no objects, or not the same ones in another process.
const OTHER_READS: [&str; 3] = ["GetPowerState", "ListModelOffers", "GetBootEpoch"];
/// Fields that change without a call, or with the process.
const CHANGING: [&str; 5] =
    ["revision", "update_time", "last_seen_time", "next_page_token", "attempt"];
/// Nouns whose objects go after some time, so that an old store has fewer of them.
const EXPIRING: [&str; 8] = [
    "boot",
    "certificate",
    "event",
    "lease",
    "power_job",
    "revocation",
    "unknown_machine",
    "workflow",
];

/// Events that are read. The records of the store have all of them.
const MAX_EVENTS: usize = 60;

/// Lists the objects of each noun, gets one of them, and watches it until the watch is synced.
pub(crate) async fn read_all(site: &Site<'_>) {
    for list in methods(&site.client.pool).filter(|it| begins(it, "List")) {
        let listed = site.call(&path(&list), request(&list, json!({}))).await;
        let Some((element, objects)) = elements(&list, &listed) else { continue };
        for object in objects {
            read_logs(site, object).await;
        }
        let Some(object) = objects.first() else { continue };
        let of_service = list.parent_service().methods().collect::<Vec<_>>().into_iter();
        let reads_one = |it: &MethodDescriptor| {
            ["Get", "Watch"].iter().any(|verb| begins(it, verb)) && returns(it, &element)
        };
        for read in of_service.filter(reads_one) {
            site.call(&path(&read), request(&read, key(&read.input(), object))).await;
        }
    }
    site.call("IdentityService/WatchRevocations", json!({})).await;
    read_in_pages(site).await;
}

/// True if the name of the call begins with `verb`, and it reads objects.
fn begins(method: &MethodDescriptor, verb: &str) -> bool {
    let name = method.name();
    name.starts_with(verb) && !OTHER_READS.contains(&name)
}

/// Reads the logs of the actions, if `object` is a workflow.
async fn read_logs(site: &Site<'_>, object: &Value) {
    for action in object["actions"].as_array().into_iter().flatten() {
        let log = json!({"workflow_id": object["id"], "action_id": action["id"]});
        site.call("WorkflowService/ReadLog", log).await;
    }
}

/// Reads machines one after the other, by page tokens.
async fn read_in_pages(site: &Site<'_>) {
    let mut token = json!("");
    for _ in 0..3 {
        let list = json!({"page_size": 1, "page_token": token});
        token = site.call("HardwareService/ListHardware", list).await["next_page_token"].clone();
    }
}

/// Returns `json` with a full view and other fields, as far as requests of `method` have them.
fn request(method: &MethodDescriptor, mut json: Value) -> Value {
    if method.input().get_field_by_name("view").is_some() {
        json["view"] = "VIEW_FULL".into();
    }
    if method.input().get_field_by_name("show_deleted").is_some() {
        json["show_deleted"] = true.into();
    }
    if method.name() == "ListEvents" {
        json["page_size"] = MAX_EVENTS.into();
    }
    if method.input().get_field_by_name("owner").is_some() {
        json["owner"] = "node".into();
    }
    json
}

/// Returns the message of the elements in responses of `list`, and those of the response `listed`.
fn elements<'a>(
    list: &MethodDescriptor,
    listed: &'a Value,
) -> Option<(MessageDescriptor, &'a Vec<Value>)> {
    let is_elements = |it: &FieldDescriptor| it.is_list() && matches!(it.kind(), Kind::Message(_));
    let field = list.output().fields().find(is_elements)?;
    let Kind::Message(element) = field.kind() else { return None };
    Some((element, listed[field.name()].as_array()?))
}

fn returns(method: &MethodDescriptor, message: &MessageDescriptor) -> bool {
    let is_message = |field: FieldDescriptor| field.kind() == Kind::Message(message.clone());
    method.output().fields().any(is_message)
}

/// Returns the request field and the value by which `object` is read; nothing if there is none.
fn key(request: &MessageDescriptor, object: &Value) -> Value {
    let names = ["id", "mac", "address", "serial"].into_iter();
    let is_key =
        |name: &&str| request.get_field_by_name(name).is_some() && object[*name].is_string();
    let key = names.filter(is_key).map(|name| (name.to_owned(), object[name].clone())).next();
    Value::Object(key.into_iter().collect())
}

/// Makes the recorded reads again. Returns how the objects differ from the recorded ones.
pub(crate) async fn differences(client: &Client<'_>, recorded: &[RecordedCall]) -> Vec<String> {
    let mut all = Vec::new();
    for call in recorded {
        let method = method(&client.pool, &call.path);
        let caller = call.caller.parse().unwrap();
        let json = |bytes| decoded(&method.output(), bytes);
        let expected: Vec<_> = call.responses.iter().map(|bytes| json(bytes)).collect();
        let [request] = &call.requests[..] else { panic!("{} has one request", call.path) };
        let at = format!("{} {}", call.path, decoded(&method.input(), request));
        let is_expiring = EXPIRING.iter().any(|noun| is_noun(&method, noun));
        let mut comparison = Comparison { ignored: &CHANGING, is_expiring, found: Vec::new() };
        match client.responses(&caller, &method, request.clone()).await {
            Ok(found) => {
                let found: Vec<_> = found.iter().map(|bytes| json(bytes)).collect();
                comparison.compare(&expected.into(), &found.into(), &at);
                all.extend(comparison.found);
            }
            Err(status) if is_expiring && status.code() == tonic::Code::NotFound => {}
            Err(status) => all.push(format!("{at}: {status}")),
        }
    }
    all
}

/// Repeats the recorded calls with a request id. Each of them returns the object that it created.
/// Returns their number.
pub(crate) async fn repeat_creations(client: &Client<'_>, recorded: &[RecordedCall]) -> usize {
    let mut repeated = 0;
    for call in recorded {
        let method = method(&client.pool, &call.path);
        let request = decoded(&method.input(), &call.requests[0]);
        if !request["request_id"].is_string() {
            continue;
        }
        let caller = call.caller.parse().unwrap();
        let again = client.responses(&caller, &method, call.requests[0].clone()).await;
        let again = again.unwrap_or_else(|error| panic!("{} {request}: {error}", call.path));
        let ids =
            [&call.responses[0], &again[0]].map(|bytes| id(&decoded(&method.output(), bytes)));
        assert!(ids[0].is_some() && ids[0] == ids[1], "{} {request}: {ids:?}", call.path);
        repeated += 1;
    }
    repeated
}

/// Returns the id of the object in the response of a creation.
pub(crate) fn id(response: &Value) -> Option<String> {
    let mut objects = response.as_object()?.values();
    objects.find_map(|object| object["id"].as_str().map(str::to_owned))
}

/// True if the call `method` reads objects of `noun`, which is in the form of a field.
fn is_noun(method: &MethodDescriptor, noun: &str) -> bool {
    let name = method.name().to_lowercase();
    let noun = noun.replace('_', "");
    ["get", "list", "watch"].iter().any(|verb| {
        name.strip_prefix(verb)
            .is_some_and(|rest| rest.trim_end_matches('s') == noun || rest == noun)
    })
}
