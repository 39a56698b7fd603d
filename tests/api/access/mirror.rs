//! Every public call over gRPC and by the REST mirror: the answers are the same, and so are the refusals.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gateway::routes::{CallRoute, InputSource, Routes};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind};
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Identity, Response};
use runtime::authority::SiteAuthority;
use runtime::{Caller, Role};
use serde_json::{Map, Value, json};
use tinwright::HardwareId;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::calls::{self, Client, POOL, SOON, path};
use super::requests::changing;
use super::site::Site;
use crate::support::RunningServer;

/// A client of the mirror.
struct RestClient {
    http: reqwest::Client,
    base: String,
}

/// An answer, or the code and reason of a refusal with the wrong fields.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Answer(Vec<Value>),
    Refused { code: String, reason: Option<String>, fields: Vec<String>, text: String },
}

fn rest_client(server: &RunningServer, caller: Option<&Caller>) -> RestClient {
    let site = SiteAuthority::open(&server.secrets()).unwrap();
    let authority = Certificate::from_pem(site.authority().as_bytes()).unwrap();
    let mut http = reqwest::Client::builder().tls_certs_only([authority]);
    if let Some(caller) = caller {
        let own = site.client(caller).unwrap();
        let pem = format!("{}{}", own.certificate, own.key.expose());
        http = http.identity(Identity::from_pem(pem.as_bytes()).unwrap());
    }
    let base = format!("https://{}/api/v1/", server.gateway);
    RestClient { http: http.timeout(SOON).build().unwrap(), base }
}

/// Adds the query parameters that set `field` to `value`.
fn add_parameters(
    query: &mut Vec<(String, String)>,
    name: &str,
    field: &FieldDescriptor,
    value: &Value,
) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Array(items) => {
            query.extend(items.iter().map(|item| (name.to_owned(), text(item))));
        }
        Value::Object(entries) if field.is_map() => {
            let entries = entries.iter();
            query.extend(entries.map(|(key, value)| (format!("{name}[{key}]"), text(value))));
        }
        Value::Object(members) => {
            let Kind::Message(message) = field.kind() else { panic!("{name} is not a message") };
            for (member, value) in members {
                let field = message.get_field_by_name(member).unwrap();
                add_parameters(query, &format!("{name}.{member}"), &field, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            query.push((name.to_owned(), text(value)));
        }
    }
}

impl RestClient {
    /// Makes the call of `route` with the request `json`.
    async fn send(&self, route: &CallRoute, json: &Value) -> Response {
        let (mut key, mut query, mut body) = (String::new(), Vec::new(), None);
        for input in &route.inputs {
            let name = input.field.name();
            let value = &json[name];
            match &input.source {
                InputSource::Body { key: own } => {
                    let mut object = value.clone();
                    if let Some(own) = own {
                        let own = object.as_object_mut().and_then(|it| it.remove(own.name()));
                        key = own.and_then(|it| Some(it.as_str()?.to_owned())).unwrap_or_default();
                    }
                    body = Some(if object.is_null() { json!({}) } else { object });
                }
                _ if value.is_null() => {}
                InputSource::Path => key = value.as_str().unwrap().to_owned(),
                InputSource::Query => add_parameters(&mut query, name, &input.field, value),
                InputSource::Member => {
                    body.get_or_insert_with(|| json!({}))[name] = value.clone();
                }
            }
        }
        let template = route.template();
        let path = template.strip_prefix("/api/v1/").unwrap();
        let path = route
            .key
            .as_ref()
            .map_or(path.to_owned(), |name| path.replace(&format!("{{{name}}}"), &key));
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.base)).unwrap();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(route.method.clone(), url);
        if route.is_stream() {
            request = request.header("Accept", "text/event-stream");
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        request.send().await.unwrap()
    }

    async fn outcome(&self, route: &CallRoute, json: &Value) -> Outcome {
        let mut response = self.send(route, json).await;
        let status = response.status();
        if status.is_success() && route.is_stream() {
            return read_events(&mut response).await;
        }
        let kind = response.headers()["content-type"].clone();
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        if status.is_success() {
            assert_eq!(kind, "application/json");
            return Outcome::Answer(vec![body]);
        }
        assert_eq!(kind, "application/problem+json", "{body}");
        assert_eq!(body["status"], status.as_u16());
        refused(&body)
    }
}

fn refused(problem: &Value) -> Outcome {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let fields = problem["fields"].as_array().cloned().unwrap_or_default();
    let fields = fields.iter().map(|it| it["field"].as_str().unwrap().to_owned()).collect();
    let reason = problem["reason"].as_str().map(str::to_owned);
    Outcome::Refused { code: text("code"), reason, fields, text: text("detail") }
}

/// Reads events until the watch is synced, or the stream ends.
async fn read_events(response: &mut Response) -> Outcome {
    let (mut text, mut read) = (String::new(), Vec::new());
    while let Some(chunk) = response.chunk().await.unwrap() {
        text += std::str::from_utf8(&chunk).unwrap();
        while let Some((event, rest)) = text.split_once("\n\n") {
            let (event, rest) = (event.to_owned(), rest.to_owned());
            let lines: BTreeMap<_, _> =
                event.lines().filter_map(|line| line.split_once(": ")).collect();
            let data: Option<Value> = lines.get("data").map(|it| serde_json::from_str(it).unwrap());
            let name = lines.get("event").copied();
            text = rest;
            let Some(data) = data else { continue };
            if name == Some("error") {
                return refused(&data);
            }
            // The name is that of the only member, if the message is one of several.
            assert!(name.is_none_or(|name| !data[name].is_null()), "{name:?}: {data}");
            read.push(data);
            if name == Some("synced") {
                return Outcome::Answer(read);
            }
        }
    }
    Outcome::Answer(read)
}

async fn by_grpc(client: &Client, route: &CallRoute, json: &Value) -> Outcome {
    let request = calls::request(&route.call, json.clone());
    match tokio::time::timeout(SOON, grpc_answers(client, route, request)).await.unwrap() {
        Ok(answers) => Outcome::Answer(answers),
        Err(status) => {
            let wrong = status.get_details_bad_request().map(|it| it.field_violations);
            let fields = wrong.into_iter().flatten().map(|it| it.field).collect();
            Outcome::Refused {
                code: gateway::errors::code_name(status.code()).to_owned(),
                reason: gateway::errors::reason(&status),
                fields,
                text: status.message().to_owned(),
            }
        }
    }
}

async fn grpc_answers(
    client: &Client,
    route: &CallRoute,
    request: DynamicMessage,
) -> Result<Vec<Value>, Status> {
    let mut responses = client.begin(&route.call, request).await?;
    let mut read = Vec::new();
    while let Some(response) = responses.message().await? {
        read.push(calls::json(&response));
        if !read.last().unwrap()["synced"].is_null() {
            break;
        }
    }
    Ok(read)
}

/// The objects of a site by the collection of the mirror.
const OBJECTS: &[(&str, &str)] = &[
    ("bmcs", "bmc"),
    ("credentials", "credential"),
    ("grants", "grant"),
    ("hardware", "occupied"),
    ("builds", "build"),
    ("images", "image"),
    ("instances", "instance"),
    ("location-bindings", "location binding"),
    ("locations", "location"),
    ("models", "model"),
    ("ranges", "range"),
    ("stacks", "stack"),
    ("subnets", "subnet"),
    ("templates", "template"),
    ("tenants", "tenant"),
    ("workflows", "pending"),
];

/// Returns a request for `route`: with a key if it has one, and else with no field.
fn reading(route: &CallRoute, site: &Site) -> Value {
    let mut request = Map::new();
    let object = OBJECTS.iter().find(|(collection, _)| *collection == route.collection);
    let id = object.map_or_else(|| HardwareId::new().to_string(), |(_, name)| site.id(name));
    let fields = route.fields_from(InputSource::Path);
    request.extend(fields.map(|field| (field.name().to_owned(), id.clone().into())));
    let first = route.selectors.first();
    if let Some(selector) = first.and_then(|it| route.call.input().get_field_by_name(it)) {
        let value = if let Kind::Message(message) = selector.kind() {
            // In a query a message without fields is no message.
            let text = message.fields().find(|field| field.kind() == Kind::String).unwrap();
            json!({text.name(): "nothing"})
        } else {
            match selector.name() {
                "hardware_id" => site.id("occupied").into(),
                "mac" => "02:00:00:00:00:02".into(),
                "name" => "lab".into(),
                _ => "203.0.113.100".into(),
            }
        };
        request.insert(selector.name().to_owned(), value);
    }
    request.into()
}

fn three_callers() -> [Option<Caller>; 3] {
    let viewer = Caller::from(Role::Viewer).with_tenant("acme".parse().unwrap()).unwrap();
    [None, Some(viewer), Some(Role::Admin.into())]
}

/// Replaces what differs between two sites: ids, times, revisions and keys.
fn normalized(outcome: Outcome, site: &Site) -> Outcome {
    match outcome {
        Outcome::Answer(answers) => {
            Outcome::Answer(answers.into_iter().map(|it| normal(it, site)).collect())
        }
        Outcome::Refused { code, reason, fields, text } => {
            Outcome::Refused { code, reason, fields, text: normal_text(&text, site) }
        }
    }
}

fn normal(value: Value, site: &Site) -> Value {
    let varies = |name: &str| {
        let names = ["revision", "serial", "certificate_pem", "authority_pem", "api_key"];
        names.contains(&name) || name.ends_with("_time")
    };
    match value {
        Value::Object(members) => {
            // The place in a queue is that of the moment.
            let is_of_moment = |name: &str| ["blocked_by", "state_reason"].contains(&name);
            let members = members.into_iter().filter(|(name, _)| !is_of_moment(name));
            let members = members.map(|(name, value)| {
                let value = if varies(&name) { "any".into() } else { normal(value, site) };
                (name, value)
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| normal(item, site)).collect(),
        Value::String(text) => normal_text(&text, site).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Returns `text` with the names of objects in place of their ids, and of other ids.
fn normal_text(text: &str, site: &Site) -> String {
    let mut text = text.to_owned();
    for (name, id) in &site.ids {
        text = text.replace(id.as_str(), name);
    }
    let is_id = |word: &str| word.len() == 36 && word.chars().filter(|it| *it == '-').count() == 4;
    let words = text.split_inclusive(|it: char| !it.is_ascii_hexdigit() && it != '-');
    words
        .map(|word| match word.get(..36).filter(|word| is_id(word)) {
            Some(id) => word.replace(id, "any"),
            None => word.to_owned(),
        })
        .collect()
}

/// True if both are the same. A caller without a role is told of the keys that a door takes, and the mirror has a text for a service that is not there.
fn is_same(grpc: &Outcome, rest: &Outcome) -> bool {
    match (grpc, rest) {
        (Outcome::Refused { code, .. }, Outcome::Refused { code: other, .. })
            if code == "UNAUTHENTICATED" =>
        {
            code == other
        }
        (
            Outcome::Refused { code, text, .. },
            Outcome::Refused { code: other, text: described, .. },
        ) if code == "UNIMPLEMENTED" && text.is_empty() => {
            code == other && described.starts_with("this server ")
        }
        _ => grpc == rest,
    }
}

fn assert_same(grpc: &Outcome, rest: &Outcome, name: &str) {
    assert!(is_same(grpc, rest), "{name}: {rest:?} in place of {grpc:?}");
}

#[tokio::test]
async fn every_public_call_answers_and_refuses_by_the_mirror_as_over_grpc() {
    let (site, other) = (Site::start().await, Site::start().await);
    let routes = Routes::new(&POOL);
    let requests = changing(&site).into_iter().zip(changing(&other));
    let requests: Vec<_> = requests.map(|((name, one), (_, two))| (name, one, two)).collect();
    let left_out: Vec<_> = routes.left_out().iter().map(|(call, _)| path(call)).collect();
    for caller in three_callers() {
        let is_admin = caller.as_ref().is_some_and(|it| it.role() == Role::Admin);
        let name = caller.as_ref().map_or("nobody".into(), Caller::to_string);
        let grpc = Client::new(site.server.channel_of(caller.clone()).await);
        let (here, there) = (
            rest_client(&site.server, caller.as_ref()),
            rest_client(&other.server, caller.as_ref()),
        );
        let mut made = Vec::new();
        let is_read =
            |route: &&CallRoute| !requests.iter().any(|it| path(&route.call).ends_with(it.0));
        for route in routes.iter().filter(is_read) {
            let (request, what) = (reading(route, &site), format!("{name}, {}", route.rpc()));
            made.push(route.rpc());
            // Changes by the services themselves may come between the two.
            let mut same =
                (by_grpc(&grpc, route, &request).await, here.outcome(route, &request).await);
            for _ in 0..20 {
                if is_same(&same.0, &same.1) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                same = (by_grpc(&grpc, route, &request).await, here.outcome(route, &request).await);
            }
            assert_same(&same.0, &same.1, &what);
        }
        for (call, ours, theirs) in &requests {
            let mut of_call = routes.iter().filter(|route| path(&route.call).ends_with(call));
            let Some(route) = of_call.next() else { continue };
            made.push(route.rpc());
            let grpc = by_grpc(&grpc, route, ours).await;
            let rest = there.outcome(route, theirs).await;
            if is_admin && let Outcome::Refused { text, .. } = &grpc {
                eprintln!("{call}: refused: {text}");
            }
            assert_same(
                &normalized(grpc, &site),
                &normalized(rest, &other),
                &format!("{name}, {call}"),
            );
        }
        let forgotten = calls::methods().into_iter().map(|call| path(&call));
        let forgotten: Vec<_> =
            forgotten.filter(|it| !made.contains(it) && !left_out.contains(it)).collect();
        assert_eq!(forgotten, [""; 0], "{name}");
    }
    site.server.end().await;
    other.server.end().await;
}

/// The time after which the streams of a deleted credential end at the latest (docs/gateway.md).
const REVOCATION_LIMIT: Duration = Duration::from_secs(5);
/// The most credentials whose streams are measured: a busy host may be late.
const MAX_MEASURED: usize = 5;

/// A watch that was opened by an API key.
struct KeyedWatch {
    id: Value,
    key: HeaderValue,
    events: Response,
}

impl KeyedWatch {
    /// Creates a key and opens a watch of machines with it.
    async fn open(admin: &Client, rest: &RestClient) -> Self {
        let credential = json!({"credential": {"role": "ROLE_OPERATOR"}});
        let created = admin.call("IdentityService/CreateCredential", credential).await.unwrap();
        let key = HeaderValue::from_str(created["api_key"].as_str().unwrap()).unwrap();
        let watch = rest.http.get(format!("{}hardware", rest.base)).header("X-Api-Key", &key);
        let mut events = watch.header("Accept", "text/event-stream").send().await.unwrap();
        assert_eq!(events.status(), 200);
        let synced = read_events(&mut events).await;
        let Outcome::Answer(synced) = synced else { panic!("it is refused: {synced:?}") };
        assert_eq!(synced.len(), 6);
        Self { id: created["credential"]["id"].clone(), key, events }
    }

    /// Deletes the key. Returns the time after which the watch ended because of that.
    async fn revoke(&mut self, admin: &Client) -> Duration {
        let delete = json!({"id": self.id});
        admin.call("IdentityService/DeleteCredential", delete).await.unwrap();
        let deleted = Instant::now();
        let ended = tokio::time::timeout(SOON, read_events(&mut self.events)).await.unwrap();
        let Outcome::Refused { code, .. } = ended else {
            panic!("it ends with an error: {ended:?}")
        };
        assert_eq!(code, gateway::errors::code_name(Code::Unauthenticated));
        deleted.elapsed()
    }
}

#[tokio::test]
async fn a_watch_by_an_api_key_goes_on_until_the_key_is_revoked() {
    let site = Site::start().await;
    let admin = Client::new(site.server.channel(Some(Role::Admin)).await);
    let rest = rest_client(&site.server, None);
    let mut watch = KeyedWatch::open(&admin, &rest).await;
    let key = watch.key.clone();
    let state = json!({"state": "STATE_MAINTENANCE", "reason": "x"}).to_string();
    let url = format!("{}hardware/{}:setState", rest.base, site.id("spare"));
    let set =
        rest.http.post(url).header("Authorization", format!("Bearer {}", key.to_str().unwrap()));
    let set = set.header("Content-Type", "application/json").body(state).send().await.unwrap();
    assert_eq!(set.status(), 200);
    let chunk = watch.events.chunk().await.unwrap().unwrap();
    let text = String::from_utf8(chunk.to_vec()).unwrap();
    assert!(text.starts_with("event: hardware\n") && text.contains("STATE_MAINTENANCE"), "{text}");
    let mut took = watch.revoke(&admin).await;
    let again = rest.http.get(format!("{}hardware", rest.base)).header("X-Api-Key", &key);
    assert_eq!(again.send().await.unwrap().status(), 401);
    for _ in 1..MAX_MEASURED {
        if took <= REVOCATION_LIMIT {
            break;
        }
        took = KeyedWatch::open(&admin, &rest).await.revoke(&admin).await;
    }
    assert!(took <= REVOCATION_LIMIT, "the watch ended after {took:?}");
    site.server.end().await;
}
