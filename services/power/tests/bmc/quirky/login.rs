//! Sessions and their quirks.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Answer, Bmc, INTERNAL, Quirk, ROOT, Received};
use crate::emulator::{PASSWORD, USER};

/// The path of the collection of sessions, below the root.
const SESSIONS: &str = "/SessionService/Sessions";
/// Sessions of a BMC that has few.
const FEW: usize = 4;

impl Bmc {
    /// Returns the redirect of a login, if it is redirected.
    pub(super) fn redirect(&self, request: &Received, path: &str) -> Option<Answer> {
        let moved = [
            (Quirk::LoginMoved301, 301),
            (Quirk::LoginMoved302, 302),
            (Quirk::LoginMoved307, 307),
            (Quirk::LoginMoved308, 308),
        ];
        let (_, status) = moved.iter().find(|(quirk, _)| self.has(*quirk))?;
        let is_login = request.method == Method::POST && path == format!("{ROOT}{SESSIONS}");
        is_login.then(|| Answer {
            status: *status,
            headers: vec![("location", format!("{}/", self.address(SESSIONS)))],
            body: Value::Null,
        })
    }

    /// Returns the refusal of a request without a valid login, if it needs one.
    pub(super) fn login(&self, request: &Received, path: &str) -> Option<Answer> {
        let is_root = path.trim_end_matches('/') == ROOT;
        let is_login =
            request.method == Method::POST && path.starts_with(&format!("{ROOT}{SESSIONS}"));
        let is_open = is_root && !self.has(Quirk::RootNeedsLogin) || is_login;
        let session = request.header("x-auth-token").and_then(|token| token.parse().ok());
        let has_session = session.is_some_and(|session| self.sessions.contains(&session));
        let pair = data_encoding::BASE64.encode(format!("{USER}:{PASSWORD}").as_bytes());
        let basic = request.header("authorization") == Some(format!("Basic {pair}"));
        let is_allowed = is_open || has_session || basic && !self.has(Quirk::NoBasic);
        (!is_allowed).then(|| Answer::refusal(self, 401, "NoValidSession", &[]))
    }

    pub(super) fn session_service(&self) -> Value {
        json!({"Sessions": self.link(SESSIONS)})
    }

    /// Answers a request for the sessions or one of them.
    pub(super) fn session(&mut self, request: &Received, rest: &[&str]) -> Answer {
        if self.has(Quirk::NoSessions) {
            return Answer::refusal(self, 404, "ResourceMissingAtURI", &[&request.path]);
        }
        match (&request.method, rest) {
            (&Method::POST, []) => self.open_session(request),
            (&Method::GET, []) => {
                let members = self.sessions.iter().map(|id| self.link(&format!("{SESSIONS}/{id}")));
                Answer::ok(json!({"Members": members.collect::<Vec<_>>()}))
            }
            (&Method::GET, [id]) if self.is_session(id) => Answer::ok(json!({"UserName": USER})),
            (&Method::DELETE, [id]) if self.is_session(id) => {
                let has_condition = request.header("if-match").is_some();
                if self.has(Quirk::LogoutNeedsCondition) && !has_condition {
                    return Answer::refusal(self, 428, "PreconditionRequired", &[]);
                }
                self.sessions.retain(|session| session.to_string() != *id);
                Answer::done()
            }
            (_, []) => Answer::refusal(self, 405, "OperationNotAllowed", &[]),
            _ => Answer::refusal(self, 404, "ResourceMissingAtURI", &[&request.path]),
        }
    }

    fn is_session(&self, id: &str) -> bool {
        self.sessions.iter().any(|session| session.to_string() == id)
    }

    fn open_session(&mut self, request: &Received) -> Answer {
        if self.has(Quirk::LoginNeedsSlash) && !request.path.ends_with('/') {
            return Answer::refusal(self, 404, "ResourceMissingAtURI", &[&request.path]);
        }
        if self.has(Quirk::SessionsDisabled) {
            return Answer::refusal(self, 403, "ServiceDisabled", &[SESSIONS]);
        }
        if self.has(Quirk::FewSessions) && self.sessions.len() >= FEW {
            return Answer::refusal(self, 503, "SessionLimitExceeded", &[]);
        }
        let text = |name| request.value(name).and_then(Value::as_str).unwrap_or_default();
        if (text("UserName"), text("Password")) != (USER, PASSWORD) {
            return Answer::refusal(self, 401, "ResourceAtUriUnauthorized", &[SESSIONS]);
        }
        self.last_session += 1;
        let id = self.last_session;
        self.sessions.insert(id);
        let path = format!("{SESSIONS}/{id}");
        let mut body = self.link(&path);
        let mut headers = vec![("x-auth-token", id.to_string())];
        if self.has(Quirk::NoLinkToSession) {
            body = json!({"Name": "User Session"});
        }
        let has_location = !self.has(Quirk::NoLocation) && !self.has(Quirk::NoLinkToSession);
        if has_location && self.has(Quirk::LocationIsCollection) {
            headers.push(("location", self.address(SESSIONS)));
        } else if has_location && self.has(Quirk::LocationOnInternalHost) {
            headers.push(("location", format!("{INTERNAL}{ROOT}{path}")));
        } else if has_location {
            headers.push(("location", self.address(&path)));
        }
        Answer { status: 201, headers, body }
    }
}
