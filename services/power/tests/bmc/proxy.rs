//! A proxy in front of the emulator. It injects faults, and adds the features that the emulator lacks (sessions, etags,
//! tasks).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A fault, injected once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 503 with Retry-After of one second; the request is dropped.
    Busy,
    /// The request is passed on, and the response is cut off.
    Cut,
    /// 202: the request is passed on at the second reading of its task.
    Task,
    /// As [`Task`](Self::Task), with this Retry-After in seconds.
    LongTask(u32),
    /// 202, and the task fails.
    FailedTask,
    /// 401: the session expires.
    Expired,
    /// 204; the request is dropped.
    Ignored,
    /// Another client changes the system first, so its etag differs.
    Conflict,
    /// 400 with this in its ExtendedInfo.
    Refused(&'static str),
    /// 307 to the same path on another host.
    Redirect,
}

/// Features that the emulator lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Sessions: all requests except those for the root need a token.
    pub(crate) sessions: bool,
    /// Etags: a PATCH must carry the present one.
    pub(crate) etags: bool,
    /// Virtual media as of an older service: at the manager only, and changed by a PATCH of the drive.
    pub(crate) old_media: bool,
}

#[derive(Debug, Default)]
struct Shared {
    emulator: String,
    extras: Extras,
    faults: Vec<(Method, Fault)>,
    requests: Vec<String>,
    version: u32,
    /// The number of sessions created, and the open ones.
    sessions: u32,
    open: BTreeSet<u32>,
    /// True if every change is answered with 204, and dropped.
    ignores_changes: bool,
    /// True while requests in a session get no response.
    held: watch::Sender<bool>,
    task: Option<(Request<Bytes>, u32, bool)>,
}

type Bmc = Arc<Mutex<Shared>>;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Its origin.
    pub(crate) url: String,
    shared: Bmc,
    server: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of `emulator`, a URL.
    pub(crate) async fn start(emulator: &str, extras: Extras) -> Self {
        let shared = Shared { emulator: emulator.to_owned(), extras, ..Shared::default() };
        let shared = Arc::new(Mutex::new(shared));
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let listener = listener.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(respond).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, shared, server }
    }

    /// Injects `fault` into the next request by `method` that is not a login.
    pub(crate) fn fail(&self, method: Method, fault: Fault) {
        self.shared.lock().unwrap().faults.push((method, fault));
    }

    /// Answers every request by another method than GET with 204, and drops it.
    pub(crate) fn ignore_changes(&self) {
        self.shared.lock().unwrap().ignores_changes = true;
    }

    /// The requests by other methods than GET, as `METHOD value`, in their order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.lock().unwrap().requests.clone()
    }

    /// The number of sessions created.
    pub(crate) fn sessions(&self) -> u32 {
        self.shared.lock().unwrap().sessions
    }

    /// True if a session is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.shared.lock().unwrap().open.is_empty()
    }

    /// Holds the responses to requests in a session, or sends them.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.lock().unwrap().held.send_replace(held);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(State(bmc): State<Bmc>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, to_bytes(body, 1 << 20).await.unwrap());
    if let Some(response) = session(&bmc, &request) {
        return response;
    }
    if request.headers().contains_key("x-auth-token") {
        let mut held = bmc.lock().unwrap().held.subscribe();
        held.wait_for(|held| !held).await.unwrap();
    }
    if request.uri().path() == "/task" {
        return read_task(&bmc).await;
    }
    record(&bmc, &request);
    let old_media = bmc.lock().unwrap().extras.old_media;
    let request = if old_media { as_action(request) } else { request };
    if request.method() != Method::GET && bmc.lock().unwrap().ignores_changes {
        return inject(&bmc, request, Fault::Ignored);
    }
    match take_fault(&bmc, request.method()) {
        None => forward(&bmc, request).await,
        Some(Fault::Cut) => {
            forward(&bmc, request).await;
            let cut = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
            (StatusCode::OK, Body::from_stream(cut)).into_response()
        }
        Some(Fault::Conflict) => {
            bmc.lock().unwrap().version += 1;
            forward(&bmc, request).await
        }
        Some(fault) => inject(&bmc, request, fault),
    }
}

/// Responds with `fault` instead of forwarding `request`.
fn inject(bmc: &Bmc, request: Request<Bytes>, fault: Fault) -> Response {
    match fault {
        Fault::Busy => {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")]).into_response()
        }
        Fault::Expired => {
            bmc.lock().unwrap().open.clear();
            StatusCode::UNAUTHORIZED.into_response()
        }
        Fault::Refused(text) => {
            let info = json!({"error": {"@Message.ExtendedInfo": [{"Message": text}]}});
            (StatusCode::BAD_REQUEST, info.to_string()).into_response()
        }
        Fault::Redirect => {
            let to = format!("http://127.0.0.2:9{}", request.uri().path());
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
        }
        Fault::Task | Fault::LongTask(_) | Fault::FailedTask => {
            bmc.lock().unwrap().task = Some((request, 0, fault == Fault::FailedTask));
            let after = if let Fault::LongTask(seconds) = fault { seconds } else { 1 }.to_string();
            let headers = [(header::LOCATION, "/task"), (header::RETRY_AFTER, &after)];
            (StatusCode::ACCEPTED, headers).into_response()
        }
        Fault::Ignored | Fault::Cut | Fault::Conflict => StatusCode::NO_CONTENT.into_response(),
    }
}

/// Responds to session requests, and to requests without a valid token.
fn session(bmc: &Bmc, request: &Request<Bytes>) -> Option<Response> {
    let mut bmc = bmc.lock().unwrap();
    let path = request.uri().path();
    if !bmc.extras.sessions || path == "/redfish/v1/" {
        return None;
    }
    let token = request.headers().get("x-auth-token");
    let token: Option<u32> = token.and_then(|token| token.to_str().ok()?.parse().ok());
    let is_open = token.is_some_and(|token| bmc.open.contains(&token));
    match (request.method(), path) {
        (&Method::POST, "/sessions") => {
            bmc.sessions += 1;
            let token = bmc.sessions;
            bmc.open.insert(token);
            let (token, url) = (token.to_string(), format!("/sessions/{token}"));
            let headers = [("x-auth-token", token), ("location", url)];
            Some((StatusCode::CREATED, headers).into_response())
        }
        _ if !is_open => Some(StatusCode::UNAUTHORIZED.into_response()),
        (&Method::DELETE, session) if session.starts_with("/sessions/") => {
            let number = session.trim_start_matches("/sessions/").parse().unwrap();
            bmc.open.remove(&number);
            Some(StatusCode::NO_CONTENT.into_response())
        }
        _ => None,
    }
}

/// Responds with a task, which ends at the second reading.
async fn read_task(bmc: &Bmc) -> Response {
    let task = bmc.lock().unwrap().task.take();
    match task {
        None => StatusCode::NOT_FOUND.into_response(),
        Some((request, 0, fails)) => {
            bmc.lock().unwrap().task = Some((request, 1, fails));
            (StatusCode::ACCEPTED, json!({"TaskState": "Running"}).to_string()).into_response()
        }
        Some((_, _, true)) => {
            let messages = json!([{"Message": "The fan is missing."}]);
            json!({"TaskState": "Exception", "Messages": messages}).to_string().into_response()
        }
        Some((request, _, false)) => forward(bmc, request).await,
    }
}

fn take_fault(bmc: &Bmc, method: &Method) -> Option<Fault> {
    let mut bmc = bmc.lock().unwrap();
    let at = bmc.faults.iter().position(|(wanted, _)| wanted == method)?;
    Some(bmc.faults.remove(at).1)
}

fn record(bmc: &Bmc, request: &Request<Bytes>) {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let value = body.get("ResetType").or(body.pointer("/Boot/BootSourceOverrideTarget"));
    if *request.method() != Method::GET {
        let value = value.and_then(Value::as_str).unwrap_or_default();
        bmc.lock().unwrap().requests.push(format!("{} {value}", request.method()));
    }
}

/// Forwards `request` to the emulator.
async fn forward(bmc: &Bmc, request: Request<Bytes>) -> Response {
    let (emulator, extras, version) = {
        let bmc = bmc.lock().unwrap();
        (bmc.emulator.clone(), bmc.extras, format!("W/\"{}\"", bmc.version))
    };
    let (parts, body) = request.into_parts();
    let patch = parts.method == Method::PATCH;
    let etag = parts.headers.get(header::IF_MATCH).and_then(|etag| etag.to_str().ok());
    if extras.etags && patch && etag != Some(version.as_str()) {
        return StatusCode::PRECONDITION_FAILED.into_response();
    }
    let mut headers = HeaderMap::new();
    for name in [header::CONTENT_TYPE, header::AUTHORIZATION] {
        parts.headers.get(&name).map(|value| headers.insert(name, value.clone()));
    }
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    let to = format!("{emulator}{}", parts.uri.path());
    let sent = client.build().unwrap().request(parts.method, to).headers(headers).body(body);
    let response = sent.send().await.unwrap();
    let (status, mut headers) = (response.status(), HeaderMap::new());
    if let Some(location) = response.headers().get(header::LOCATION) {
        headers.insert(header::LOCATION, location.clone());
    }
    if extras.etags {
        headers.insert(header::ETAG, HeaderValue::from_str(&version).unwrap());
    }
    let mut bytes = response.bytes().await.unwrap();
    if extras.sessions && parts.uri.path() == "/redfish/v1/" {
        let mut root: Value = serde_json::from_slice(&bytes).unwrap();
        root["Links"] = json!({"Sessions": {"@odata.id": "/sessions"}});
        bytes = root.to_string().into();
    }
    if extras.old_media {
        bytes = without_new_media(&bytes);
    }
    (status, headers, bytes).into_response()
}

/// Returns the action that the PATCH of a virtual drive stands for; any other request as it is.
fn as_action(request: Request<Bytes>) -> Request<Bytes> {
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::PATCH && parts.uri.path().contains("/VirtualMedia/") {
        let patch: Value = serde_json::from_slice(&body).unwrap();
        let action = if patch["Image"].is_null() { "EjectMedia" } else { "InsertMedia" };
        let path = format!("{}/Actions/VirtualMedia.{action}", parts.uri.path());
        (parts.method, parts.uri) = (Method::POST, path.parse().unwrap());
    }
    Request::from_parts(parts, body)
}

/// Returns `body` without the drives of a system, and without the actions of a drive.
fn without_new_media(body: &Bytes) -> Bytes {
    let Ok(Value::Object(mut resource)) = serde_json::from_slice(body) else { return body.clone() };
    let kind = resource.get("@odata.type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.starts_with("#ComputerSystem.") {
        resource.remove("VirtualMedia");
    } else if kind.starts_with("#VirtualMedia.") {
        resource.remove("Actions");
    }
    Value::Object(resource).to_string().into()
}
