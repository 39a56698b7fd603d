//! A BMC with the quirks of real ones, on a free port. It notes each request and its answer.

mod login;
mod media;
mod quirk;
mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::media::Media;
pub(crate) use self::quirk::{Outcome, Quirk};
use self::system::{Boot, Task};
pub(crate) use self::system::{MAC, UUID};

/// The path of the service root.
const ROOT: &str = "/redfish/v1";
/// The host in links of BMCs that name an internal one.
const INTERNAL: &str = "http://bmc.internal:8080";

/// A running BMC. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct QuirkyBmc {
    /// Its origin.
    pub(crate) url: String,
    state: Arc<Mutex<Bmc>>,
    server: JoinHandle<()>,
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The number of the job that it was sent in.
    pub(crate) job: u32,
    /// Method, path, condition, login and body.
    pub(crate) request: String,
    pub(crate) status: u16,
    /// True if the answer says that the request never succeeds.
    pub(crate) is_refused: bool,
}

#[derive(Debug, Default)]
struct Bmc {
    quirks: BTreeSet<Quirk>,
    /// The UUID of the machine.
    uuid: String,
    is_on: bool,
    boot: Boot,
    pending: Boot,
    media: Media,
    /// The version of all resources.
    version: u32,
    sessions: BTreeSet<u32>,
    last_session: u32,
    task: Option<Task>,
    job: u32,
    exchanges: Vec<Exchange>,
    /// The number of readings that were answered late, or abandoned before.
    slow_readings: u32,
}

/// A request that was received.
#[derive(Debug)]
struct Received {
    method: Method,
    /// With the query.
    path: String,
    headers: HeaderMap,
    /// None if there is none.
    body: Option<Value>,
}

/// An answer before it is sent.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl QuirkyBmc {
    pub(crate) async fn start(quirks: BTreeSet<Quirk>) -> Self {
        let mut bmc = Bmc { quirks, uuid: UUID.into(), ..Bmc::default() };
        bmc.boot = Boot::initial(bmc.has(Quirk::ModeUnreported));
        bmc.pending = bmc.boot.clone();
        let state = Arc::new(Mutex::new(bmc));
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let listener = listener.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(respond).with_state(state.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, state, server }
    }

    /// Notes further requests as those of the next job.
    pub(crate) fn next_job(&self) {
        self.state.lock().unwrap().job += 1;
    }

    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        self.state.lock().unwrap().exchanges.clone()
    }

    /// The number of open sessions.
    pub(crate) fn open_sessions(&self) -> usize {
        self.state.lock().unwrap().sessions.len()
    }

    /// The number of sessions that were opened.
    pub(crate) fn opened_sessions(&self) -> u32 {
        self.state.lock().unwrap().last_session
    }

    /// The number of readings that were answered late, or abandoned before.
    pub(crate) fn slow_readings(&self) -> u32 {
        self.state.lock().unwrap().slow_readings
    }

    /// Opens as many sessions of others as a BMC with few allows.
    pub(crate) fn fill_sessions(&self) {
        self.state.lock().unwrap().sessions.extend(1001..=1004);
    }

    /// Lists this UUID from now on, as the BMC of another machine.
    pub(crate) fn set_uuid(&self, uuid: &str) {
        uuid.clone_into(&mut self.state.lock().unwrap().uuid);
    }

    /// Ends all sessions, as a BMC does that restarts.
    pub(crate) fn restart(&self) {
        self.state.lock().unwrap().sessions.clear();
    }

    /// The override: enabled, target and mode.
    pub(crate) fn boot(&self) -> [String; 3] {
        let bmc = self.state.lock().unwrap();
        let Boot { enabled, target, mode } = bmc.in_force().clone();
        [enabled, target, mode]
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.lock().unwrap().is_on
    }

    pub(crate) fn image(&self) -> Option<String> {
        self.state.lock().unwrap().media.image.clone()
    }

    /// The system for the record: its id or its name.
    pub(crate) fn system(&self) -> &'static str {
        let bmc = self.state.lock().unwrap();
        if bmc.has_second() {
            system::NAME
        } else if bmc.has(Quirk::ManySystems) {
            system::ID
        } else {
            ""
        }
    }
}

impl Drop for QuirkyBmc {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(State(state): State<Arc<Mutex<Bmc>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let body = (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).unwrap_or(json!("?")));
    let received = Received { method: parts.method, path, headers: parts.headers, body };
    let is_lost = state.lock().unwrap().hangs(&received);
    if is_lost {
        std::future::pending::<()>().await;
    }
    let delay = state.lock().unwrap().delay(&received);
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    let mut bmc = state.lock().unwrap();
    let answer = bmc.answer(&received);
    let (job, request, status) = (bmc.job, received.text(), answer.status);
    let exchange = Exchange { job, request, status, is_refused: answer.is_final() };
    bmc.exchanges.push(exchange);
    if bmc.breaks(&received) {
        return broken_response();
    }
    answer.into_response()
}

/// Returns a response whose body fails, which ends the connection.
fn broken_response() -> Response {
    let broken = Err::<Vec<u8>, _>(std::io::Error::other("broken"));
    Body::from_stream(stream::iter([broken])).into_response()
}

impl Bmc {
    fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    fn answer(&mut self, request: &Received) -> Answer {
        let path = request.path.clone();
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        if let Some(answer) = self.redirect(request, path).or_else(|| self.login(request, path)) {
            return answer;
        }
        let below = path.strip_prefix(ROOT).unwrap_or_default().trim_matches('/');
        let parts: Vec<_> = below.split('/').collect();
        match (&request.method, parts.as_slice()) {
            (&Method::GET, [""]) => Answer::ok(self.root()),
            (&Method::GET, ["SessionService"]) => Answer::ok(self.session_service()),
            (_, ["SessionService", "Sessions", rest @ ..]) => self.session(request, rest),
            (&Method::GET, ["Systems"]) => Answer::ok(self.systems(query)),
            (&Method::GET, ["Tasks", _]) => self.read_task(),
            (_, ["Systems", id, rest @ ..]) if *id == system::ID => match rest {
                ["VirtualMedia", rest @ ..] => self.virtual_media(request, rest),
                _ => self.system(request, rest),
            },
            (&Method::GET, ["Systems", _]) if self.has(Quirk::SecondSystemUnauthorized) => {
                Answer::refusal(self, 401, "NoValidSession", &[])
            }
            (&Method::GET, ["Systems", _]) => {
                Answer::refusal(self, 503, "ServiceTemporarilyUnavailable", &[])
            }
            _ => Answer::refusal(self, 404, "ResourceMissingAtURI", &[path]),
        }
    }

    fn root(&self) -> Value {
        let mut root = json!({"Systems": self.link("/Systems")});
        if !self.has(Quirk::NoSessions) {
            root["SessionService"] = self.link("/SessionService");
            if !self.has(Quirk::NoLinkToSessions) {
                root["Links"] = json!({"Sessions": self.link("/SessionService/Sessions")});
            }
        }
        root
    }

    /// Returns a link to the resource at `path` below the root.
    fn link(&self, path: &str) -> Value {
        json!({"@odata.id": self.address(path)})
    }

    fn address(&self, path: &str) -> String {
        let host = if self.has(Quirk::LinksToInternalHost) { INTERNAL } else { "" };
        format!("{host}{ROOT}{path}")
    }

    /// Returns an answer with `body` and the version of the resource.
    fn versioned(&self, mut body: Value) -> Answer {
        let [header, property] = self.etags();
        if let Some(property) = property {
            body["@odata.etag"] = json!(property);
        }
        let mut answer = Answer::ok(body);
        answer.headers.extend(header.map(|header| ("etag", header)));
        answer
    }

    /// The version in the header and in the property.
    fn etags(&self) -> [Option<String>; 2] {
        let (weak, strong) = (format!("W/\"{}\"", self.version), format!("\"{}\"", self.version));
        if self.has(Quirk::NoETags) {
            [None, None]
        } else if self.has(Quirk::HeaderETagTwiceQuoted) {
            [Some(format!("\"{strong}\"")), Some(strong)]
        } else if self.has(Quirk::NoHeaderETag) {
            [None, Some(weak)]
        } else {
            [Some(weak.clone()), Some(weak)]
        }
    }

    /// Returns the refusal of the condition of a change, if it is refused.
    fn condition(&self, request: &Received) -> Option<Answer> {
        let condition = request.header("if-match");
        let strong = format!("\"{}\"", self.version);
        let [header, property] = self.etags();
        let is_required = self.has(Quirk::ConditionRequired) || self.has(Quirk::OnlyAnyVersion);
        let is_right = match condition.as_deref() {
            None if is_required => {
                return Some(Answer::refusal(self, 428, "PreconditionRequired", &[]));
            }
            None => true,
            Some(_) if self.has(Quirk::NoConditions) => false,
            Some(condition) if self.has(Quirk::OnlyAnyVersion) => condition == "*",
            Some(condition) if self.has(Quirk::StrongComparison) => condition == strong,
            Some("*") => true,
            Some(condition) if self.has(Quirk::HeaderETagTwiceQuoted) => {
                property.as_deref() == Some(condition)
            }
            Some(condition) => [header, property].contains(&Some(condition.to_owned())),
        };
        (!is_right).then(|| Answer::refusal(self, 412, "PreconditionFailed", &[]))
    }

    /// True if a PATCH or an action may be done.
    fn is_read_only(&self) -> bool {
        self.has(Quirk::AccountReadsOnly)
    }
}

impl Received {
    fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// The request in one line, without a token, which differs with each session.
    fn text(&self) -> String {
        let login = match (self.header("authorization"), self.header("x-auth-token")) {
            (Some(_), _) => "Basic",
            (None, Some(_)) => "token",
            (None, None) => "-",
        };
        let condition = self.header("if-match").unwrap_or_else(|| "-".into());
        let body = self.body.as_ref().map_or_else(String::new, Value::to_string);
        format!("{} {} {condition} {login} {body}", self.method, self.path)
    }

    /// The value of a property or parameter of the body.
    fn value(&self, name: &str) -> Option<&Value> {
        self.body.as_ref()?.get(name)
    }
}

impl Answer {
    fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }

    /// True if the same request would get the same answer. An expired session, and a mistake that
    /// is called an internal error without a word, do not say that.
    fn is_final(&self) -> bool {
        match self.status {
            401 => false,
            500 => !self.body.is_null(),
            status => (400..500).contains(&status),
        }
    }

    fn done() -> Self {
        Self { status: 204, headers: Vec::new(), body: Value::Null }
    }

    /// Returns an error with the message `id` of the Base registry, as the BMC words it.
    fn refusal(bmc: &Bmc, status: u16, id: &str, arguments: &[&str]) -> Self {
        let is_mistake = status == 400;
        let status = if is_mistake && bmc.has(Quirk::InternalErrors) { 500 } else { status };
        let text = format!("{id} {}", arguments.join(" "));
        let text = text.trim();
        let body = if bmc.has(Quirk::SilentRefusals) {
            Value::Null
        } else if bmc.has(Quirk::RefusalsWithoutIds) {
            let words = match id {
                "PropertyMissing" | "ActionParameterMissing" => "is required but missing",
                _ => "is not supported",
            };
            json!({"error": {"message": format!("{} {words}", arguments.last().unwrap_or(&""))}})
        } else {
            let info = json!([{
                "MessageId": format!("Base.1.8.{id}"), "Message": text, "MessageArgs": arguments
            }]);
            json!({"error": {"message": "General", "@Message.ExtendedInfo": info}})
        };
        Self { status, headers: Vec::new(), body }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let Self { status, headers, body } = self;
        let named = headers.into_iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap())
        });
        let headers: HeaderMap = named.collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
    }
}

/// The requests that were sent again in the same job after a refusal for good.
pub(crate) fn repeated_refusals(exchanges: &[Exchange]) -> Vec<String> {
    let mut refused: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for one in exchanges.iter().filter(|one| one.is_refused) {
        *refused.entry((one.job, &one.request)).or_default() += 1;
    }
    let repeated = refused.into_iter().filter(|(_, times)| *times > 1);
    repeated.map(|((job, request), times)| format!("job {job}, {times} times: {request}")).collect()
}
