//! The REST mirror: every public call of the contract as JSON over HTTP, by the routes of [`crate::routes`]. It has no code for a call.
//!
//! ```text
//! request ─▶ route ─▶ client ─▶ message ─gRPC─▶ service ─▶ message ─▶ JSON, or server-sent events
//! ```
//!
//! - `request`: the message of a request, `form`: the forms of its values. `call`: the call, which
//!   returns the bytes of the response. `transcode`: their JSON. `response`: the response with it.
//!   `events`: streams.

mod call;
mod events;
mod form;
mod json;
mod request;
mod response;
mod transcode;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tonic::{Code, Status};

use self::json::JsonObjects;
use self::transcode::Transcoder;
use crate::errors::Problem;
use crate::layers::Refusal;
use crate::routes::{CallRoute, MatchedPath, Routes};
use crate::{Door, Gateway};
use runtime::unread_body::{close, finish, read};

/// The largest body of a request: that of a call over gRPC.
const MAX_BODY_BYTES: usize = 4 << 20;
/// The longest time until a response begins.
const DEADLINE: Duration = Duration::from_secs(30);
const EVENT_STREAM: &str = "text/event-stream";

/// The mirror.
struct Mirror {
    gateway: Gateway,
    /// Read from the descriptors at the first request: they take several MiB.
    contract: LazyLock<Contract>,
}

/// What the descriptors say of the contract.
struct Contract {
    routes: Routes,
    objects: JsonObjects,
    transcoder: Transcoder,
}

impl Contract {
    fn read() -> Self {
        let pool = tinwright::json::pool();
        Self {
            routes: pool.map(Routes::new).unwrap_or_default(),
            objects: pool.map(JsonObjects::new).unwrap_or_default(),
            transcoder: pool.map(Transcoder::new).unwrap_or_default(),
        }
    }
}

/// Returns the door at `/api/v1`.
pub fn door(gateway: &Gateway) -> Door {
    let mirror = Mirror { gateway: gateway.clone(), contract: LazyLock::new(Contract::read) };
    Door {
        name: "rest",
        prefix: "/api/v1",
        router: Router::new().fallback(answer).with_state(Arc::new(mirror)),
        max_body_bytes: MAX_BODY_BYTES,
        deadline: DEADLINE,
        refuse: |refusal| too_large_or(refusal).into_response(),
    }
}

fn too_large_or(refusal: &Refusal) -> Problem {
    Problem::with_http(refusal.http_status(), refusal.status())
}

async fn answer(State(mirror): State<Arc<Mirror>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let response = mirror.respond(&parts, &mut body).await;
    let mut response = response.unwrap_or_else(Problem::into_response);
    finish(body, parts.version, &mut response).await;
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // Of this one a part was read.
        close(parts.version, &mut response);
    }
    response
}

impl Mirror {
    /// Answers a request. The body is taken when it is read.
    async fn respond(&self, parts: &Parts, body: &mut Option<Body>) -> Result<Response, Problem> {
        let path = parts.uri.path().trim_start_matches('/');
        let Contract { routes, objects, transcoder } = &*self.contract;
        let target = routes.find(path);
        let target = target.ok_or_else(|| Problem::from(Status::not_found("no such path")))?;
        let client = self.gateway.client(parts).await?;
        let query = request::query(parts.uri.query().unwrap_or_default());
        let route = select(routes, &target, &parts.method, &parts.headers, &query)?;
        let too_large = || too_large_or(&Refusal::TooLarge(MAX_BODY_BYTES));
        let incomplete = |text| Problem::from(Status::invalid_argument(text));
        let body = read(body, MAX_BODY_BYTES, too_large, incomplete).await?;
        let http = request::HttpRequest { key: target.key, query, headers: &parts.headers, body };
        let message = http.message(route, routes, objects)?;
        let package = route.call.parent_service().package_name().to_owned();
        let channel = self.gateway.backend.of_package(&package);
        let channel = channel.ok_or_else(|| Status::unimplemented("no service has this call"))?;
        let channel = client.channel(channel);
        if route.is_stream() {
            let messages = call::stream(channel, route, &message).await;
            let messages = messages.map_err(|status| with_service(status, &package))?;
            let end = self.gateway.authenticator.end(&client);
            let limits = events::Limits { stop: self.gateway.stop.clone(), end };
            return Ok(events::response(route.call.output(), messages, transcoder.clone(), limits));
        }
        let answered = call::unary(channel, route, &message).await;
        let answered = answered.map_err(|status| with_service(status, &package));
        let answered = answered.map_err(|status| with_precondition(status, &parts.headers))?;
        response::response(&route.call.output(), &answered, transcoder)
    }
}

/// Returns the route of `target`, among all `routes`, that this request selects.
fn select<'a>(
    routes: &Routes,
    target: &MatchedPath<'a>,
    method: &Method,
    headers: &HeaderMap,
    query: &[(String, String)],
) -> Result<&'a CallRoute, Problem> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let verb = || unknown_verb(routes, target).filter(|_| method == Method::POST);
    let routes = target.routes.iter().copied().filter(|route| route.method == *method);
    let routes: Vec<_> = routes.collect();
    if routes.is_empty() {
        return Err(not_allowed(target, verb()));
    }
    let accepted = Accepted::of(headers);
    let events = routes.iter().find(|route| route.is_alternative());
    if let Some(events) = events.filter(|_| accepted.events) {
        return Ok(events);
    }
    let others = || routes.iter().copied().filter(|route| !route.is_alternative());
    let is_stream = others().any(CallRoute::is_stream);
    if !(accepted.json && !is_stream || accepted.events && is_stream || accepted.any) {
        return Err(not_acceptable(&routes));
    }
    let names = |route: &&CallRoute| {
        let is_named = |selector: &String| query.iter().any(|(name, _)| is_of(name, selector));
        route.selectors.iter().any(is_named)
    };
    let plain = || others().find(|route| route.selectors.is_empty());
    let selected = others().find(names).or_else(plain);
    selected.ok_or_else(|| {
        let keys: Vec<_> = others().flat_map(|route| route.selectors.clone()).collect();
        let first = keys.first().cloned().unwrap_or_default();
        Problem::field(&first, format!("is missing: set one of {}", keys.join(", ")))
    })
}

/// True if the query parameter `name` sets `field`, or a field of it.
fn is_of(name: &str, field: &str) -> bool {
    name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The representations that a client accepts.
struct Accepted {
    json: bool,
    events: bool,
    any: bool,
}

impl Accepted {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let kinds = values.flat_map(|value| value.split(','));
        let kinds = kinds.filter_map(|kind| kind.split(';').next()).map(str::trim);
        let kinds: Vec<_> = kinds.filter(|kind| !kind.is_empty()).collect();
        let has = |wanted: &[&str]| {
            kinds.iter().any(|kind| wanted.iter().any(|it| kind.eq_ignore_ascii_case(it)))
        };
        Self {
            json: has(&["application/json", "application/*"]),
            events: has(&[EVENT_STREAM]),
            any: kinds.is_empty() || has(&["*/*"]),
        }
    }
}

/// The problem of a method that `target` does not have, or of an unknown `verb`.
fn not_allowed(target: &MatchedPath<'_>, verb: Option<String>) -> Problem {
    let mut methods: Vec<_> = target.routes.iter().map(|route| route.method.as_str()).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.dedup();
    let allowed = methods.join(", ");
    let text = verb.unwrap_or_else(|| format!("this path has other methods: {allowed}"));
    let mut problem =
        Problem::with_http(StatusCode::METHOD_NOT_ALLOWED, Status::unimplemented(text));
    let allowed = HeaderValue::from_str(&allowed);
    problem.headers.extend(allowed.ok().map(|allowed| (header::ALLOW, allowed)));
    problem
}

/// Returns the error of a path that ends with a verb, if the collection has others only.
fn unknown_verb(routes: &Routes, target: &MatchedPath<'_>) -> Option<String> {
    let (_, verb) = target.key?.rsplit_once(':')?;
    let collection = &target.routes.first()?.collection;
    let of_objects = |it: &&CallRoute| it.collection == *collection && it.key.is_some();
    let verbs = routes.iter().filter(of_objects).filter_map(|it| it.verb.as_deref());
    let verbs: Vec<_> = verbs.map(|verb| format!(":{verb}")).collect();
    if verbs.is_empty() || !verb.chars().all(|letter| letter.is_ascii_alphabetic()) {
        return None;
    }
    let wrong = format!(":{verb}");
    Some(match verbs.iter().find(|it| it.eq_ignore_ascii_case(&wrong)) {
        Some(meant) => format!("{collection} has no verb {wrong}: did you mean {meant}?"),
        None => format!("{collection} has no verb {wrong}; verbs: {}", verbs.join(", ")),
    })
}

fn not_acceptable(routes: &[&CallRoute]) -> Problem {
    let kinds = routes
        .iter()
        .map(|route| if route.is_stream() { EVENT_STREAM } else { "application/json" });
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_unstable();
    kinds.dedup();
    let text = format!("Accept: this path has {}", kinds.join(" and "));
    Problem::with_http(StatusCode::NOT_ACCEPTABLE, Status::invalid_argument(text))
}

/// Names the service that this server does not have: without it, the status has no text.
fn with_service(status: Status, package: &str) -> Status {
    if status.code() != Code::Unimplemented || !status.message().is_empty() {
        return status;
    }
    Status::unimplemented(match package {
        "tinwright.netboot.v1" => {
            "this server does not boot machines: use the one with --netboot-interface".to_owned()
        }
        "tinwright.metadata.v1" => "this server serves no metadata: use the one with --metadata-listen or --metadata-link-local".to_owned(),
        _ => format!("this server does not have the call: no service of {package} answers"),
    })
}

/// A revision that is not the stored one is a failed precondition of HTTP, if the client sent it as one.
fn with_precondition(status: Status, headers: &HeaderMap) -> Problem {
    if status.code() == Code::Aborted && headers.contains_key(header::IF_MATCH) {
        return Problem::with_http(StatusCode::PRECONDITION_FAILED, status);
    }
    status.into()
}

#[cfg(test)]
mod tests;
