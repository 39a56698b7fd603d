//! The ways to log in to a BMC (DSP0266, "Authentication"), tried in the order of their
//! [table](crate::forms::Form::TABLE).
//!
//! A way that the service does not have leads to the next one. A user name and password that the
//! BMC judged as wrong end the login: to send them again in another way could lock the account.

use std::sync::Arc;

use reqwest::Url;
use serde_json::{Value, json};

use super::Error;
use super::connection::{Connection, Credentials, Outgoing, with_other_slash};
use super::response::{Response, id, link};
use super::session::RedfishSession;
use crate::forms::Login;

/// The usual path of the collection of sessions, below the service root (DSP0266, "Redfish-defined
/// URIs").
const USUAL_PATH: &str = "SessionService/Sessions";
/// The usual path of the collection of systems, below the service root.
pub(super) const SYSTEMS_PATH: &str = "Systems";

/// The choice of ways to log in.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    /// All ways, the preferred one first.
    pub(super) order: Vec<Login>,
    /// True if the BMC refused the password in a request without a session, although it may be
    /// right.
    pub(super) is_basic_refused: bool,
}

/// A failed login.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// True if the BMC refused the password in a request without a session.
    pub(super) is_basic_refused: bool,
}

/// A login that is running.
struct Attempt<'a> {
    connection: &'a Arc<Connection>,
    /// The service root; null if it is not shown without a login.
    root: Value,
    /// The URLs at which no session could be opened.
    tried: Vec<Url>,
    /// True once the BMC refused a session for another reason than that there are none.
    is_refused: bool,
    /// The most relevant refusal so far.
    refusal: Option<Error>,
    /// Sessions that were opened and cannot be used.
    unusable: Vec<Url>,
}

/// Logs in to the BMC of `connection` by the first way that it accepts.
pub(super) async fn log_in(
    connection: &Arc<Connection>,
    ways: &Ways,
) -> Result<RedfishSession, Failed> {
    let failed = |error| Failed { error, is_basic_refused: ways.is_basic_refused };
    let root = read_root(connection).await.map_err(failed)?;
    let mut attempt = Attempt {
        connection,
        root,
        tried: Vec::new(),
        is_refused: false,
        refusal: None,
        unusable: Vec::new(),
    };
    let mut wrong_password = None;
    for way in &ways.order {
        let opened = match way {
            Login::Basic if ways.is_basic_refused => continue,
            Login::Basic => attempt.without_session().await,
            Login::RootLink
            | Login::RootLinkSlash
            | Login::ServiceLink
            | Login::ServiceLinkSlash
            | Login::UsualPath
            | Login::UsualPathSlash
            | Login::Members => attempt.session(*way).await,
        };
        match opened {
            Ok(Some(session)) => return Ok(session),
            Ok(None) => {}
            // Services may have Basic authentication switched off, and refuse it as they refuse a
            // wrong password.
            Err(Error::Denied(refusal)) if *way == Login::Basic => wrong_password = Some(refusal),
            Err(error) => return Err(failed(error)),
        }
    }
    let is_basic_refused = ways.is_basic_refused || wrong_password.is_some();
    let error = match (wrong_password, attempt.refusal) {
        (Some(wrong), refusal) if !attempt.is_refused || refusal.is_none() => Error::Denied(wrong),
        (_, Some(refusal)) => refusal,
        (_, None) => Error::Protocol("the service has no way to log in".into()),
    };
    Err(Failed { error, is_basic_refused })
}

/// Reads the service root, which needs no login. Returns null if a service shows it after a login
/// only.
async fn read_root(connection: &Connection) -> Result<Value, Error> {
    match connection.exchange(&Outgoing::get(&connection.root), &Credentials::Absent).await {
        Ok(response) => Ok(response.body),
        Err(error) if error.is_unauthorized() || error.is_forbidden() => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

impl Attempt<'_> {
    /// Opens a session in the given way. None if the service does not have it.
    async fn session(&mut self, way: Login) -> Result<Option<RedfishSession>, Error> {
        if self.is_refused {
            return Ok(None);
        }
        let Some(url) = self.url_of(way).await? else { return Ok(None) };
        if self.tried.contains(&url) {
            return Ok(None);
        }
        let Connection { username, password, .. } = &**self.connection;
        let body = json!({"UserName": username, "Password": password.expose()});
        let request = Outgoing::post(&url, &body);
        let opened = self.connection.exchange(&request, &Credentials::Absent).await;
        self.tried.push(url);
        match opened {
            Ok(response) => Ok(self.opened(way, response)),
            Err(Error::Response(refusal)) if refusal.is_unauthorized() => {
                Err(Error::Denied(refusal))
            }
            Err(error) if error.is_answer() => {
                // A redirect may have led to a place that is another way.
                self.tried.extend(error.refusal().map(|refusal| refusal.url.clone()));
                self.is_refused |= !error.is_missing() && !error.is_redirect();
                self.note(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the session that `response` opened. None if it has no token.
    fn opened(&mut self, way: Login, response: Response) -> Option<RedfishSession> {
        let Response { url, body, location, token, .. } = response;
        let own = [location, id(&body)].into_iter().flatten();
        let own = own.filter_map(|link| self.connection.resolve(&url, &link).ok());
        let by_id = body.get("Id").and_then(Value::as_str).and_then(|id| below(&url, id));
        let mut ends: Vec<Url> = Vec::new();
        for end in own.chain(by_id) {
            let is_collection =
                end.path().trim_end_matches('/') == url.path().trim_end_matches('/');
            if !is_collection && !ends.contains(&end) {
                ends.push(end);
            }
        }
        let Some(token) = token else {
            self.is_refused = true;
            self.note(Error::Protocol("a session without a token".into()));
            self.unusable.extend(ends.into_iter().next());
            return None;
        };
        let credentials = Credentials::Token(token);
        let collection = Some(url);
        Some(RedfishSession::new(self.connection.clone(), credentials, way, true, ends, collection))
    }

    /// Tries the password in a request without a session.
    async fn without_session(&mut self) -> Result<Option<RedfishSession>, Error> {
        let systems = link(&self.root, "Systems").unwrap_or_else(|| SYSTEMS_PATH.into());
        let url = self.connection.resolve(&self.connection.root, &systems)?;
        let answer = self.connection.exchange(&Outgoing::get(&url), &Credentials::Basic).await;
        let is_proven = answer.is_ok();
        match answer {
            Ok(_) => {}
            Err(Error::Response(refusal)) if refusal.is_unauthorized() => {
                return Err(Error::Denied(refusal));
            }
            // The request that needs the resource tells more.
            Err(error) if error.is_missing() => {}
            Err(error) if error.is_answer() => {
                self.note(error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        for url in std::mem::take(&mut self.unusable) {
            let _gone =
                self.connection.exchange(&Outgoing::delete(&url), &Credentials::Basic).await;
        }
        // A refusal of sessions may pass.
        let is_lasting = !self.is_refused;
        let (connection, basic) = (self.connection.clone(), Credentials::Basic);
        let session =
            RedfishSession::new(connection, basic, Login::Basic, is_lasting, Vec::new(), None);
        if is_proven {
            session.prove();
        }
        Ok(Some(session))
    }

    /// Returns the URL at which a session is opened in the given way, if the service has it.
    async fn url_of(&self, way: Login) -> Result<Option<Url>, Error> {
        let from_root = || self.root.get("Links").and_then(|links| link(links, "Sessions"));
        let has_sessions = from_root().is_some() || self.root.get("SessionService").is_some();
        let is_hidden = self.root.is_null();
        let resolve = |link: Option<String>| {
            link.map(|link| self.connection.resolve(&self.connection.root, &link)).transpose()
        };
        match way {
            Login::RootLink => resolve(from_root()),
            Login::RootLinkSlash => Ok(resolve(from_root())?.map(|url| with_other_slash(&url))),
            Login::ServiceLink => self.service_link().await,
            Login::ServiceLinkSlash => {
                Ok(self.service_link().await?.map(|url| with_other_slash(&url)))
            }
            Login::UsualPath if has_sessions || is_hidden => resolve(Some(USUAL_PATH.into())),
            Login::UsualPathSlash if has_sessions || is_hidden => {
                resolve(Some(format!("{USUAL_PATH}/")))
            }
            Login::Members if has_sessions || is_hidden => {
                resolve(Some(format!("{USUAL_PATH}/Members")))
            }
            Login::UsualPath | Login::UsualPathSlash | Login::Members | Login::Basic => Ok(None),
        }
    }

    /// Returns the link of the session service, if that is shown without a login.
    async fn service_link(&self) -> Result<Option<Url>, Error> {
        let Some(service) = link(&self.root, "SessionService") else { return Ok(None) };
        let url = self.connection.resolve(&self.connection.root, &service)?;
        match self.connection.exchange(&Outgoing::get(&url), &Credentials::Absent).await {
            Ok(response) => {
                let sessions = link(&response.body, "Sessions");
                sessions.map(|link| self.connection.resolve(&response.url, &link)).transpose()
            }
            Err(error) if error.is_answer() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps `error` if it tells more than what is kept.
    fn note(&mut self, error: Error) {
        let tells_more = |kept: &Error| kept.relevance() < error.relevance();
        if self.refusal.as_ref().is_none_or(tells_more) {
            self.refusal = Some(error);
        }
    }
}

/// Returns the URL of the member `id` of the collection at `url`.
fn below(url: &Url, id: &str) -> Option<Url> {
    let mut member = url.clone();
    let is_name = !id.is_empty() && !id.contains('/');
    member.path_segments_mut().ok().filter(|_| is_name)?.pop_if_empty().push(id);
    Some(member)
}
