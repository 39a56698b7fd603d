//! One login at a BMC, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::connection::{Connection, Credentials, Outgoing};
use super::response::id;
use crate::forms::Login;

/// The pause before a session is ended again, if the BMC is busy.
const LOGOUT_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of sessions that are read to find one.
const MAX_SESSIONS: usize = 32;

/// A login that counts until it is ended.
#[derive(Debug)]
pub(super) struct RedfishSession {
    connection: Arc<Connection>,
    pub(super) credentials: Credentials,
    /// The way in which it was opened.
    pub(super) way: Login,
    /// True if the way is the right one for later logins.
    pub(super) is_lasting: bool,
    /// True once a request in it had success.
    is_proven: AtomicBool,
    /// The URLs by which it can be ended.
    ends: Vec<Url>,
    /// The collection that it is in.
    collection: Option<Url>,
}

impl RedfishSession {
    pub(super) fn new(
        connection: Arc<Connection>,
        credentials: Credentials,
        way: Login,
        is_lasting: bool,
        ends: Vec<Url>,
        collection: Option<Url>,
    ) -> Self {
        let is_proven = AtomicBool::new(false);
        Self { connection, credentials, way, is_lasting, is_proven, ends, collection }
    }

    /// Notes that a request in the session had success.
    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }

    /// True if the BMC has accepted the user name and the password.
    pub(super) fn is_proven(&self) -> bool {
        self.collection.is_some() || self.is_proven.load(Ordering::Relaxed)
    }

    /// True if it is a session of the BMC, which may expire.
    pub(super) fn may_expire(&self) -> bool {
        matches!(self.credentials, Credentials::Token(_))
    }

    /// Ends it at the BMC. False if the BMC offers no way to do that.
    pub(super) async fn end(&self) -> bool {
        if !self.may_expire() {
            return true;
        }
        for url in &self.ends {
            if self.end_at(url).await {
                return true;
            }
        }
        match self.find().await {
            Some(url) if !self.ends.contains(&url) => self.end_at(&url).await,
            Some(_) | None => false,
        }
    }

    /// Deletes the session at `url`. True if it is gone.
    async fn end_at(&self, url: &Url) -> bool {
        let (mut request, mut credentials) = (Outgoing::delete(url), self.credentials.clone());
        loop {
            let error = match self.connection.exchange(&request, &credentials).await {
                Ok(_) => return true,
                Err(error) => error,
            };
            if error.is_unauthorized() {
                // It has expired. Of the password alone that is not known.
                return matches!(credentials, Credentials::Token(_));
            } else if error.is_precondition() && request.if_match.is_none() {
                request.if_match = Some("*");
            } else if error.is_forbidden() && matches!(credentials, Credentials::Token(_)) {
                credentials = Credentials::Basic;
            } else if error.is_transient() {
                // Until the timeout of the logout.
                tokio::time::sleep(LOGOUT_PAUSE).await;
            } else {
                return false;
            }
        }
    }

    /// Finds the session in its collection: the only one of the user.
    async fn find(&self) -> Option<Url> {
        let collection = self.collection.as_ref()?;
        let read = async |url: &Url| {
            let response = self.connection.exchange(&Outgoing::get(url), &self.credentials).await;
            response.ok().filter(|response| response.status == StatusCode::OK)
        };
        let response = read(collection).await?;
        let members = response.body.get("Members").and_then(Value::as_array)?;
        let urls = members.iter().filter_map(id);
        let urls = urls.filter_map(|link| self.connection.resolve(&response.url, &link).ok());
        let urls: Vec<Url> = urls.take(MAX_SESSIONS).collect();
        if let [only] = urls.as_slice() {
            return Some(only.clone());
        }
        let mut own = Vec::new();
        for url in urls {
            let user = read(&url).await.and_then(|session| {
                Some(session.body.get("UserName")?.as_str()? == self.connection.username)
            });
            // A session whose user is not shown may be this one.
            if user != Some(false) {
                own.push(url);
            }
        }
        match own.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }
}
