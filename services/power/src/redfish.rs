//! A small Redfish client (DSP0266), for one BMC and one job at a time.
//!
//! Only the URL `/redfish/v1/` is fixed; all others are read from links. Requests carry credentials. They are therefore sent
//! only to the origin in the BMC's record, and links and redirects to other origins are refused.
//!
//! - [`system`]: the state of a system, parsed from its resources.
//! - `inventory`: the parts of a machine. `media`: virtual drives.
//! - [`error`]: failed requests, and the decision to retry them.

pub mod error;
mod inventory;
pub mod media;
mod monitor;
mod response;
pub mod system;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use reqwest::header::{CONTENT_TYPE, IF_MATCH};
use reqwest::{Client, Method, Url};
use runtime::secret::Secret;
use serde_json::{Value, json};

pub use self::error::Error;
pub use self::media::VirtualDrive;
use self::response::{Response, id, link};
pub use self::system::{BootOverride, Power, Protocol, System};
use self::trust::CertificatePin;
use crate::plan::{BootRequest, Call};

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of ending a session.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// Maximum number of systems that are read to find one by its name.
const MAX_SYSTEMS: usize = 64;

/// The address and the credentials of a BMC.
#[derive(Clone, Debug)]
pub struct Target {
    /// The origin of its Redfish service.
    pub url: String,
    /// The system's id or name. If empty, the BMC must have exactly one.
    pub system: String,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret<String>,
    /// The verification of its certificate.
    pub trust: Trust,
}

/// The verification of a BMC's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Only the certificate with this SHA-256.
    Certificate([u8; 32]),
    /// The first certificate that is received, and from then on only that.
    FirstUse,
    /// Every certificate that is signed by a root of this host.
    Roots,
}

/// The authentication of requests.
#[derive(Debug)]
enum Login {
    /// Not logged in yet.
    None,
    /// The token of a session, and the session's URL.
    Session { token: Secret<String>, url: Option<Url> },
    /// The password in every request (RFC 7617), for services without sessions.
    Basic,
}

/// A client of one BMC.
#[derive(Debug)]
pub struct Redfish {
    http: Client,
    /// The trusted certificate; none if any that is signed by a root is trusted.
    pin: Option<Arc<CertificatePin>>,
    root: Url,
    target: Target,
    login: Login,
    /// The URL of the system, once it was found.
    system: Option<Url>,
}

impl Redfish {
    /// Creates a client for `target`. Sends nothing yet.
    pub fn new(target: Target) -> Result<Self, Error> {
        let root = target.url.parse::<Url>().and_then(|url| url.join("/redfish/v1/"));
        let root = root.map_err(|_| Error::Protocol(format!("{:?} is not a URL", target.url)))?;
        let builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT);
        let pin = match target.trust {
            Trust::Certificate(digest) => Some(Arc::new(CertificatePin::new(Some(digest)))),
            Trust::FirstUse => Some(Arc::new(CertificatePin::new(None))),
            Trust::Roots => None,
        };
        let builder = match &pin {
            Some(pin) => builder.tls_backend_preconfigured(trust::pin_certificate(pin.clone())?),
            None => builder,
        };
        Ok(Self { http: builder.build()?, pin, root, target, login: Login::None, system: None })
    }

    /// Returns the SHA-256 of the trusted certificate, if the client trusts only one and has received it.
    pub fn certificate(&self) -> Option<[u8; 32]> {
        self.pin.as_ref()?.digest()
    }

    /// Reads the state of the system.
    pub async fn system(&mut self) -> Result<System, Error> {
        let url = match &self.system {
            Some(url) => url.clone(),
            None => self.find().await?,
        };
        let response = self.get(&url).await?;
        let mut system = System::read(&response.body, response.etag);
        if let Some(info) = system.action_info.take() {
            let info = self.get(&self.resolve(&info)?).await?;
            system.reset_types = system::allowable_reset_types(&info.body);
        }
        if let Some(settings) = &system.settings {
            let settings = self.get(&self.resolve(settings)?).await?;
            system.pending = Some(BootOverride::read(&settings.body));
            system.settings_etag = settings.etag;
        }
        self.system = Some(url);
        Ok(system)
    }

    /// Sends `call` to `system`, and waits for the task that it starts. The caller has to read the system again to verify the
    /// effect.
    pub async fn call(&mut self, system: &System, call: &Call) -> Result<(), Error> {
        if let Call::Media(change) = call {
            let no_drive = || Error::Protocol("the virtual drive was not read".into());
            return self.change_drive(system.drive.as_ref().ok_or_else(no_drive)?, change).await;
        }
        let missing = |name: &str| Error::Protocol(format!("the system has no {name}"));
        let (method, url, body, etag) = match call {
            Call::Reset(reset_type) => {
                let url = system.reset.as_ref().ok_or_else(|| missing("reset action"))?;
                (Method::POST, self.resolve(url)?, json!({"ResetType": reset_type}), None)
            }
            Call::Boot { request, in_settings: false } => {
                let url = self.system.clone().ok_or_else(|| missing("address"))?;
                (Method::PATCH, url, boot_body(request), system.etag.as_deref())
            }
            Call::Boot { request, in_settings: true } => {
                let url = system.settings.as_ref().ok_or_else(|| missing("settings"))?;
                let etag = system.settings_etag.as_deref();
                (Method::PATCH, self.resolve(url)?, boot_body(request), etag)
            }
            Call::Media(_) => return Err(missing("drive")),
        };
        let response = self.send(method, &url, Some(&body), etag).await?;
        monitor::wait_for_task(self, response).await
    }

    /// Ends the session, if there is one, since BMCs limit the number of sessions. Errors are ignored.
    pub async fn close(self) {
        let Login::Session { url: Some(url), token } = &self.login else { return };
        let request = self.http.delete(url.clone()).header("X-Auth-Token", token.expose());
        let _response = tokio::time::timeout(LOGOUT_TIMEOUT, request.send()).await;
    }

    /// Finds the system in the BMC's record: by its id, else by its name, else the only one.
    async fn find(&mut self) -> Result<Url, Error> {
        let root = self.get(&self.root.clone()).await?;
        let systems = link(&root.body, "Systems")
            .ok_or_else(|| Error::Protocol("the service has no systems".into()))?;
        let systems = self.get(&self.resolve(&systems)?).await?.body;
        let members = systems.get("Members").and_then(Value::as_array);
        let members = members.into_iter().flatten().filter_map(id).take(MAX_SYSTEMS);
        let urls: Vec<Url> = members.map(|url| self.resolve(&url)).collect::<Result<_, _>>()?;
        let name = self.target.system.clone();
        if name.is_empty() {
            return match urls.as_slice() {
                [only] => Ok(only.clone()),
                urls => Err(Error::AmbiguousSystem(urls.len())),
            };
        }
        let has_id =
            |url: &&Url| url.path().trim_end_matches('/').rsplit('/').next() == Some(name.as_str());
        if let Some(url) = urls.iter().find(has_id) {
            return Ok(url.clone());
        }
        for url in urls {
            let system = self.get(&url).await?.body;
            let mut names = ["Id", "Name", "UUID", "HostName"].into_iter();
            if names.any(|key| system.get(key).is_some_and(|value| *value == *name)) {
                return Ok(url);
            }
        }
        Err(Error::NoSystem(name))
    }

    /// Returns the URL that `link` refers to, if it has the BMC's origin.
    fn resolve(&self, link: &str) -> Result<Url, Error> {
        match self.root.join(link) {
            Ok(url) if url.origin() == self.root.origin() => Ok(url),
            Ok(_) => Err(Error::Protocol(format!("{link:?} is not on the BMC's origin"))),
            Err(_) => Err(Error::Protocol(format!("{link:?} is not a URL"))),
        }
    }

    async fn get(&mut self, url: &Url) -> Result<Response, Error> {
        self.send(Method::GET, url, None, None).await
    }

    /// Sends a request. Logs in before the first one, and again if the session has expired.
    async fn send(
        &mut self,
        method: Method,
        url: &Url,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Response, Error> {
        if matches!(self.login, Login::None) {
            self.log_in().await?;
        }
        match self.send_once(&method, url, body, etag).await {
            Err(error) if error.is_unauthorized() => {
                self.log_in().await?;
                self.send_once(&method, url, body, etag).await
            }
            response => response,
        }
    }

    /// Sends a request with the current login, and follows its redirects.
    async fn send_once(
        &self,
        method: &Method,
        url: &Url,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Response, Error> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.http.request(method.clone(), url.clone());
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
            let response = Response::read(self.send_request(request).await?).await?;
            let Some(location) = response.redirect(method) else { return response.checked() };
            url = self.resolve(url.join(location).as_ref().map_or(location, Url::as_str))?;
        }
        Err(Error::Protocol(format!("more than {MAX_REDIRECTS} redirects to {url}")))
    }

    /// Sends `request`. A changed certificate is an error of its own.
    async fn send_request(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, Error> {
        request.send().await.map_err(|error| {
            match self.pin.as_ref().and_then(|pin| pin.refusal()) {
                Some((expected, received)) => Error::CertificateChanged {
                    expected: HEXLOWER.encode(&expected),
                    received: HEXLOWER.encode(&received),
                },
                None => error.into(),
            }
        })
    }

    /// Opens a session if the service has sessions, else uses the password in every request. The service root is read without
    /// a login.
    async fn log_in(&mut self) -> Result<(), Error> {
        self.login = Login::None;
        let root = self.send_once(&Method::GET, &self.root, None, None).await?.body;
        let Some(sessions) = self.sessions(&root).await? else {
            self.login = Login::Basic;
            return Ok(());
        };
        let Target { username, password, .. } = &self.target;
        let body = json!({"UserName": username, "Password": password.expose()});
        self.login = match self.send_once(&Method::POST, &sessions, Some(&body), None).await {
            Err(error) if error.is_missing() => Login::Basic,
            response => {
                let Response { token, location, .. } = response?;
                let token =
                    token.ok_or_else(|| Error::Protocol("a session without a token".into()))?;
                Login::Session { token, url: location.and_then(|url| self.resolve(&url).ok()) }
            }
        };
        Ok(())
    }

    /// Returns the URL of the session collection, if there is one.
    async fn sessions(&self, root: &Value) -> Result<Option<Url>, Error> {
        let mut sessions = root.get("Links").and_then(|links| link(links, "Sessions"));
        if sessions.is_none()
            && let Some(service) = link(root, "SessionService")
        {
            let url = self.resolve(&service)?;
            sessions = match self.send_once(&Method::GET, &url, None, None).await {
                Err(error) if error.is_denied() || error.is_missing() => None,
                service => link(&service?.body, "Sessions"),
            };
        }
        sessions.map(|sessions| self.resolve(&sessions)).transpose()
    }
}

/// Returns the PATCH that sets a boot override.
fn boot_body(request: &BootRequest) -> Value {
    let BootRequest { enabled, target, mode, http_url } = request;
    let mut boot = json!({"BootSourceOverrideEnabled": enabled});
    if let Some(target) = target {
        boot["BootSourceOverrideTarget"] = json!(target);
    }
    if let Some(mode) = mode {
        boot["BootSourceOverrideMode"] = json!(mode);
    }
    if !http_url.is_empty() {
        boot["HttpBootUri"] = json!(http_url);
    }
    json!({"Boot": boot})
}
