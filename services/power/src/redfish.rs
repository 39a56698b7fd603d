//! A small Redfish client (DSP0266), for one BMC and one job at a time.
//!
//! Only `/redfish/v1/` is known beforehand; every other place is read from a link. Nothing is sent to another origin than
//! the one the BMC's record names, whatever a link or a redirect says, since each request carries credentials.
//!
//! - [`system`]: what a system says of itself, as a value.
//! - [`error`]: what went wrong, and whether asking again may help.

mod answer;
pub mod error;
mod monitor;
pub mod system;
mod trust;

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, IF_MATCH};
use reqwest::{Client, Method, StatusCode, Url};
use runtime::secret::Secret;
use serde_json::{Value, json};

use self::answer::{Answer, link};
pub use self::error::Error;
pub use self::system::{Override, Power, System};
use crate::plan::How;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long a BMC may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long saying good-bye may take.
const LOGOUT: Duration = Duration::from_secs(3);
/// How many redirects are followed.
const REDIRECTS: usize = 5;
/// How many systems are looked at to find one by its name.
const SYSTEMS: usize = 64;

/// Where a BMC is and how to get in.
#[derive(Clone, Debug)]
pub struct Target {
    /// Root of its service: an origin.
    pub url: String,
    /// The system's id or name. Empty: the only one.
    pub system: String,
    /// Who we are to it.
    pub username: String,
    /// And how we prove it.
    pub password: Secret<String>,
    /// SHA-256 of its certificate. None: one that the machine's roots vouch for.
    pub certificate: Option<[u8; 32]>,
}

/// How a request says who sends it.
#[derive(Debug)]
enum Login {
    /// Nothing was sent yet.
    None,
    /// A session's token, and the session's place.
    Session { token: Secret<String>, place: Option<Url> },
    /// RFC 7617, for services without sessions.
    Basic,
}

/// A BMC that can be talked to.
#[derive(Debug)]
pub struct Redfish {
    http: Client,
    root: Url,
    target: Target,
    login: Login,
    /// Where the system was found.
    place: Option<Url>,
}

impl Redfish {
    /// A client for `target`; nothing is sent yet.
    pub fn new(target: Target) -> Result<Self, Error> {
        let root = target.url.parse::<Url>().and_then(|url| url.join("/redfish/v1/"));
        let root = root.map_err(|_| Error::Odd(format!("{:?} is no URL", target.url)))?;
        let builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(REQUEST);
        let builder = match target.certificate {
            Some(digest) => builder.tls_backend_preconfigured(trust::pinned(digest)?),
            None => builder,
        };
        Ok(Self { http: builder.build()?, root, target, login: Login::None, place: None })
    }

    /// What the system says now.
    pub async fn system(&mut self) -> Result<System, Error> {
        let place = match &self.place {
            Some(place) => place.clone(),
            None => self.find().await?,
        };
        let answer = self.get(&place).await?;
        let mut system = System::read(&answer.body, answer.etag);
        if let Some(info) = system.action_info.take() {
            let info = self.get(&self.at(&info)?).await?;
            system.reset_types = system::allowable_reset_types(&info.body);
        }
        if let Some(settings) = &system.settings {
            let settings = self.get(&self.at(settings)?).await?;
            system.pending = Some(Override::read(&settings.body));
            system.settings_etag = settings.etag;
        }
        self.place = Some(place);
        Ok(system)
    }

    /// Asks `system` for something, and waits until the BMC said yes to it: that is not yet proof.
    pub async fn ask(&mut self, system: &System, how: &How) -> Result<(), Error> {
        let missing = |what: &str| Error::Odd(format!("the system has no {what}"));
        let (method, place, body, etag) = match how {
            How::Reset(kind) => {
                let place = system.reset.as_ref().ok_or_else(|| missing("reset action"))?;
                (Method::POST, self.at(place)?, json!({"ResetType": kind}), None)
            }
            How::System(body) => {
                let place = self.place.clone().ok_or_else(|| missing("place"))?;
                (Method::PATCH, place, body.clone(), system.etag.as_deref())
            }
            How::Settings(body) => {
                let place = system.settings.as_ref().ok_or_else(|| missing("settings"))?;
                let etag = system.settings_etag.as_deref();
                (Method::PATCH, self.at(place)?, body.clone(), etag)
            }
        };
        let answer = self.send(method, &place, Some(&body), etag).await?;
        monitor::finish(self, answer).await
    }

    /// Ends the session, if there is one: BMCs allow few. Best effort, and brief.
    pub async fn close(mut self) {
        let Login::Session { place: Some(place), token } = &self.login else { return };
        let request = self.http.delete(place.clone()).header("X-Auth-Token", token.expose());
        let _answer = tokio::time::timeout(LOGOUT, request.send()).await;
        self.login = Login::None;
    }

    /// Looks for the system: by its id, else by its name, else the only one.
    async fn find(&mut self) -> Result<Url, Error> {
        let root = self.get(&self.root.clone()).await?;
        let systems = link(&root.body, "Systems")
            .ok_or_else(|| Error::Odd("the service has no systems".into()))?;
        let systems = self.get(&self.at(&systems)?).await?.body;
        let members = systems.get("Members").and_then(Value::as_array);
        let members = members.into_iter().flatten().filter_map(answer::id).take(SYSTEMS);
        let places: Vec<Url> = members.map(|place| self.at(&place)).collect::<Result<_, _>>()?;
        let wanted = self.target.system.clone();
        match places.as_slice() {
            [only] if wanted.is_empty() => return Ok(only.clone()),
            many if wanted.is_empty() => return Err(Error::Which(many.len())),
            _ => {}
        }
        let last = |place: &&Url| {
            place.path().trim_end_matches('/').rsplit('/').next() == Some(wanted.as_str())
        };
        if let Some(place) = places.iter().find(last) {
            return Ok(place.clone());
        }
        for place in places {
            let system = self.get(&place).await?.body;
            let named = ["Id", "Name", "UUID", "HostName"].into_iter();
            if named.filter_map(|key| system.get(key)?.as_str()).any(|name| name == wanted) {
                return Ok(place);
            }
        }
        Err(Error::NoSystem(wanted))
    }

    /// Where `link` leads, if that is the BMC.
    fn at(&self, link: &str) -> Result<Url, Error> {
        let place = self.root.join(link).map_err(|_| Error::Odd(format!("{link:?} is no link")))?;
        match place.origin() == self.root.origin() {
            true => Ok(place),
            false => Err(Error::Odd(format!("{link:?} leads away from the BMC"))),
        }
    }

    async fn get(&mut self, place: &Url) -> Result<Answer, Error> {
        self.send(Method::GET, place, None, None).await
    }

    /// Sends a request; logs in before it, and once more where the session was forgotten.
    async fn send(
        &mut self,
        method: Method,
        place: &Url,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Answer, Error> {
        if matches!(self.login, Login::None) {
            self.log_in().await?;
        }
        match self.once(&method, place, body, etag).await {
            Err(Error::Denied { status, .. }) if status == StatusCode::UNAUTHORIZED => {
                self.log_in().await?;
                self.once(&method, place, body, etag).await
            }
            answer => answer,
        }
    }

    /// Sends a request as we are logged in, and follows its redirects.
    async fn once(
        &self,
        method: &Method,
        place: &Url,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Answer, Error> {
        let mut place = place.clone();
        for _ in 0..=REDIRECTS {
            let mut request = self.http.request(method.clone(), place.clone());
            request = request.header("OData-Version", "4.0").header("Accept", "application/json");
            request = match &self.login {
                Login::None => request,
                Login::Session { token, .. } => request.header("X-Auth-Token", token.expose()),
                Login::Basic => {
                    request.basic_auth(&self.target.username, Some(self.target.password.expose()))
                }
            };
            if let Some(body) = body {
                request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
            }
            if let Some(etag) = etag {
                request = request.header(IF_MATCH, etag);
            }
            let answer = Answer::read(request.send().await?).await?;
            match answer.redirect(method) {
                Some(to) => place = self.at(&absolute(&place, to))?,
                None => return answer.checked(),
            }
        }
        Err(Error::Odd(format!("{place} redirects without end")))
    }

    /// A session where the service has them, else a password with every request. The root needs neither.
    async fn log_in(&mut self) -> Result<(), Error> {
        self.login = Login::None;
        let root = self.once(&Method::GET, &self.root, None, None).await?.body;
        let Some(sessions) = self.sessions(&root).await? else {
            self.login = Login::Basic;
            return Ok(());
        };
        let Target { username, password, .. } = &self.target;
        let body = json!({"UserName": username, "Password": password.expose()});
        match self.once(&Method::POST, &sessions, Some(&body), None).await {
            Ok(answer) => {
                let token =
                    answer.token.ok_or_else(|| Error::Odd("a session without token".into()))?;
                let place = answer.location.as_deref().and_then(|place| self.at(place).ok());
                self.login = Login::Session { token, place };
            }
            Err(error) if error.is_not_there() => self.login = Login::Basic,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Where sessions are made, if anywhere.
    async fn sessions(&self, root: &Value) -> Result<Option<Url>, Error> {
        let direct = root.get("Links").and_then(|links| link(links, "Sessions"));
        let found = match (direct, link(root, "SessionService")) {
            (Some(sessions), _) => Some(sessions),
            (None, None) => None,
            (None, Some(service)) => {
                match self.once(&Method::GET, &self.at(&service)?, None, None).await {
                    Ok(service) => link(&service.body, "Sessions"),
                    Err(Error::Denied { .. }) => None,
                    Err(error) if error.is_not_there() => None,
                    Err(error) => return Err(error),
                }
            }
        };
        found.map(|sessions| self.at(&sessions)).transpose()
    }
}

/// What `to` means in an answer from `from`.
fn absolute(from: &Url, to: &str) -> String {
    from.join(to).map_or_else(|_| to.to_owned(), String::from)
}

/// Whether `status` says that the thing is not there, or not in this way.
fn is_not_there(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 405 | 501)
}
