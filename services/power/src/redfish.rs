//! A small Redfish client (DSP0266), for one BMC and one job at a time.
//!
//! Only the URL `/redfish/v1/` is fixed; all others are read from links. Requests carry
//! credentials. They are therefore sent only to the origin in the BMC's record.
//!
//! ```text
//! system, change, media, inventory ─▶ session ─▶ login ─▶ connection ─▶ http ─▶ reqwest, or openssl for legacy TLS
//! ```
//!
//! - [`system`]: the state of a system, parsed from its resources. `search`: finds the system.
//! - `change`: changes and their conditions. `media`: virtual drives. `inventory`: the parts of a
//!   machine. `monitor`: tasks.
//! - [`session`]: sessions, shared by all clients of a BMC. `login`: the ways to open one.
//! - `connection`: requests to the BMC's own origin. `http`: over the network. `unreachable`:
//!   failed connections, in words.
//! - [`error`]: failed requests, and the decision to repeat them. [`messages`]: what a BMC says of
//!   a request.

mod change;
mod connection;
pub mod error;
mod http;
mod inventory;
mod login;
pub mod media;
pub mod messages;
mod monitor;
mod response;
mod search;
mod session;
pub mod sessions;
pub mod system;
mod unreachable;

use std::sync::Arc;

use pinned_tls::CertificatePin;
use reqwest::{Method, Url};
use runtime::secret::Secret;
use serde_json::{Value, json};

use self::change::ResourceChange;
use self::connection::{Connection, Outgoing};
pub use self::error::Error;
use self::media::Parameters;
pub use self::media::VirtualDrive;
pub use self::response::ETag;
use self::response::Response;
use self::session::RedfishSession;
use self::sessions::Participation;
pub use self::sessions::Sessions;
pub use self::system::{BootOverride, Power, Protocol, System};
use crate::forms::{AcceptedForms, IfMatch};
use crate::plan::{BootRequest, Call, DriveKind};

/// The path of the service root.
const ROOT: &str = "/redfish/v1/";

/// The address and the credentials of a BMC.
#[derive(Clone, Debug)]
pub struct Target {
    /// The origin of its Redfish service.
    pub url: String,
    /// The system's path, id or name. If empty, the BMC must have exactly one.
    pub system: String,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret<String>,
    /// The verification of its certificate.
    pub trust: Trust,
    /// True if it is reached over old versions and ciphers of TLS.
    pub legacy_tls: bool,
    /// The forms of requests that it accepted.
    pub accepted: AcceptedForms,
    /// The sessions of this process.
    pub sessions: Sessions,
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

/// A client of one BMC.
#[derive(Debug)]
pub struct Redfish {
    target: Target,
    connection: Arc<Connection>,
    participation: Participation,
    /// The forms of requests that the BMC accepted, also before.
    accepted: AcceptedForms,
    /// The condition that the BMC requires of actions, if it does.
    action_condition: Option<IfMatch>,
    /// The URL of the system, once it was found.
    system: Option<Url>,
    /// The reset types in the resource that the system names for them, once it was read. Empty:
    /// all.
    reset_types: Option<Vec<String>>,
    /// The virtual drive that was read last.
    drive: Option<(DriveKind, Url)>,
    /// The parameters in the resource that a drive names for its insertion, once it was read. None:
    /// there is no such resource.
    insert_info: Option<(String, Option<Parameters>)>,
}

impl Redfish {
    /// Creates a client for `target`. Sends nothing yet.
    pub fn new(target: Target) -> Result<Self, Error> {
        let root = target.url.parse::<Url>().and_then(|url| url.join(ROOT));
        let root = root.map_err(|_| Error::Protocol(format!("{:?} is not a URL", target.url)))?;
        let pin = match target.trust {
            Trust::Certificate(digest) => Some(Arc::new(CertificatePin::new(Some(digest)))),
            Trust::FirstUse => Some(Arc::new(CertificatePin::new(None))),
            Trust::Roots => None,
        };
        let (username, password) = (target.username.clone(), target.password.clone());
        let connection = Connection::new(root, pin, target.legacy_tls, username, password)?;
        let participation = target.sessions.join(&connection);
        Ok(Self {
            connection: Arc::new(connection),
            participation,
            accepted: target.accepted.clone(),
            target,
            action_condition: None,
            system: None,
            reset_types: None,
            drive: None,
            insert_info: None,
        })
    }

    /// Returns the SHA-256 of the trusted certificate, if the client trusts only one and has
    /// received it.
    pub fn certificate(&self) -> Option<[u8; 32]> {
        self.connection.certificate()
    }

    /// Returns the forms of requests that the BMC accepted, also before.
    pub fn accepted(&self) -> &AcceptedForms {
        &self.accepted
    }

    /// Notes forms of requests that the BMC accepted.
    pub fn accept(&mut self, forms: AcceptedForms) {
        self.accepted.extend(forms);
    }

    /// Reads the state of the system.
    pub async fn system(&mut self) -> Result<System, Error> {
        let url = self.system_url().await?;
        let response = self.get(&url).await?;
        let mut system = System::read(&response.body, response.etag);
        if let Some(info) = system.action_info.take() {
            system.reset_types = self.reset_types(&url, &info).await?;
        }
        if let Some(link) = &system.settings {
            match self.get_if_present(&url, link).await? {
                Some(settings) => {
                    system.pending = Some(BootOverride::read(&settings.body));
                    system.settings_etag = settings.etag;
                }
                None => system.settings = None,
            }
        }
        Ok(system)
    }

    /// Reads the reset types in the resource `info`, once. A service without the resource lists
    /// none.
    async fn reset_types(&mut self, base: &Url, info: &str) -> Result<Vec<String>, Error> {
        if let Some(types) = &self.reset_types {
            return Ok(types.clone());
        }
        let info = self.get_if_present(base, info).await?;
        let types = info.map(|info| system::allowable_reset_types(&info.body)).unwrap_or_default();
        self.reset_types = Some(types.clone());
        Ok(types)
    }

    /// Sends `call` to `system`, and waits for the task that it starts. The caller has to read the
    /// system again to verify the effect.
    pub async fn call(&mut self, system: &System, call: &Call) -> Result<(), Error> {
        let resource = self.system_url().await?;
        let (method, link, body, etag) = match call {
            Call::Media(change) => {
                let no_drive = || Error::Protocol("the virtual drive was not read".into());
                return self
                    .change_drive(system.drive.as_ref().ok_or_else(no_drive)?, change)
                    .await;
            }
            Call::Reset(reset_type) => {
                let usual = || {
                    format!(
                        "{}/Actions/ComputerSystem.Reset",
                        resource.path().trim_end_matches('/')
                    )
                };
                let link = system.reset.clone().unwrap_or_else(usual);
                (Method::POST, link, json!({"ResetType": reset_type}), &system.etag)
            }
            Call::Boot { request, in_settings: false } => {
                (Method::PATCH, resource.path().to_owned(), boot_body(request), &system.etag)
            }
            Call::Boot { request, in_settings: true } => {
                let no_settings = || Error::Protocol("the system has no settings".into());
                let link = system.settings.clone().ok_or_else(no_settings)?;
                (Method::PATCH, link, boot_body(request), &system.settings_etag)
            }
        };
        let url = self.connection.resolve(&resource, &link)?;
        // The version of an action is that of the system.
        let resource = if method == Method::PATCH { url.clone() } else { resource };
        let change = ResourceChange { method, url, resource, body: Some(&body), etag };
        let response = self.change(change).await?;
        monitor::wait_for_task(self, response).await
    }

    /// Leaves the session, and ends it if no other client takes part in it, since BMCs limit the
    /// number of sessions.
    pub async fn close(self) {
        self.participation.leave().await;
    }

    async fn get(&mut self, url: &Url) -> Result<Response, Error> {
        self.send(Outgoing::get(url)).await
    }

    /// Reads the resource that `link` refers to from an answer of `base`. None if it does not
    /// exist.
    async fn get_if_present(&mut self, base: &Url, link: &str) -> Result<Option<Response>, Error> {
        let url = self.connection.resolve(base, link)?;
        match self.get(&url).await {
            Ok(response) => Ok(Some(response)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request. Logs in before the first one, and again if the session has expired.
    async fn send(&mut self, request: Outgoing<'_>) -> Result<Response, Error> {
        let session = self.session(None).await?;
        match self.connection.exchange(&request, &session.credentials).await {
            Ok(response) => {
                session.prove();
                Ok(response)
            }
            Err(error) if error.is_unauthorized() && session.may_expire() => {
                let renewed = self.session(Some(session)).await?;
                self.connection.exchange(&request, &renewed.credentials).await
            }
            Err(Error::Response(refusal)) if refusal.is_unauthorized() && !session.is_proven() => {
                Err(Error::Denied(refusal))
            }
            Err(error) => Err(error),
        }
    }

    async fn session(
        &mut self,
        stale: Option<Arc<RedfishSession>>,
    ) -> Result<Arc<RedfishSession>, Error> {
        let session = self.participation.session(&self.connection, &self.accepted, stale).await?;
        if session.is_lasting {
            self.accepted.accept(session.way);
        }
        Ok(session)
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
