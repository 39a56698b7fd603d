//! Sessions with BMCs: one at a time for each account, shared by all clients of this process, since
//! a BMC has four to eight.
//!
//! A client takes part in the session of its account. The last one that leaves ends it: also a
//! client that is dropped, such as that of a call whose caller has gone away. A login goes on
//! without the caller that needed it, and is then ended too.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use super::Error;
use super::connection::Connection;
use super::login::{self, Failed, Ways};
use super::session::RedfishSession;
use crate::forms::{AcceptedForms, Login};

/// Timeout of ending a session.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sessions of this process.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    registry: Arc<Mutex<Registry>>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Registry {
    accounts: HashMap<Account, Weak<Shared>>,
    /// The origins of BMCs whose sessions could not be ended: each would be lost until it expires.
    endless: HashSet<String>,
}

/// An account of a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Account {
    origin: String,
    username: String,
    /// SHA-256 of the password: a session does not prove that another password is right.
    password: [u8; 32],
}

/// The session of an account.
#[derive(Debug)]
struct Shared {
    account: Account,
    /// Held during a login and a logout.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of clients that take part.
    clients: usize,
    session: Option<Arc<RedfishSession>>,
    /// True if the BMC refused the password in a request without a session.
    is_basic_refused: bool,
}

/// The part of one client in a session. The session ends when the last one is dropped.
#[derive(Debug)]
pub(super) struct Participation {
    shared: Arc<Shared>,
    sessions: Sessions,
}

impl Sessions {
    /// Waits for the logouts that are running.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Takes part in the session of the account of `connection`. Sends nothing yet.
    pub(super) fn join(&self, connection: &Connection) -> Participation {
        let account = Account {
            origin: connection.root.origin().ascii_serialization(),
            username: connection.username.clone(),
            password: Sha256::digest(connection.password.expose()).into(),
        };
        let mut registry = lock(&self.registry);
        registry.accounts.retain(|_, shared| shared.strong_count() > 0);
        let existing = registry.accounts.get(&account).and_then(Weak::upgrade);
        let shared = existing.unwrap_or_else(|| {
            let shared = Shared {
                account: account.clone(),
                turn: tokio::sync::Mutex::default(),
                state: Mutex::default(),
            };
            let shared = Arc::new(shared);
            registry.accounts.insert(account, Arc::downgrade(&shared));
            shared
        });
        lock(&shared.state).clients += 1;
        drop(registry);
        Participation { shared, sessions: self.clone() }
    }
}

impl Participation {
    /// Returns the session, after a login if there is none but `stale`, which the BMC refused.
    pub(super) async fn session(
        &self,
        connection: &Arc<Connection>,
        accepted: &AcceptedForms,
        stale: Option<Arc<RedfishSession>>,
    ) -> Result<Arc<RedfishSession>, Error> {
        if let Some(session) = self.shared.current(stale.as_ref()) {
            return Ok(session);
        }
        let (connection, accepted) = (connection.clone(), accepted.clone());
        let login = self.another().log_in(connection, accepted, stale);
        // The response of a login has the only token to end the session: it is read even if nobody
        // waits for it any more.
        let login = self.sessions.tasks.spawn(login);
        login.await.unwrap_or_else(|_| Err(Error::Protocol("the login did not end".into())))
    }

    /// Leaves the session, and waits for its end if no other client takes part in it.
    pub(super) async fn leave(self) {
        let (shared, sessions) = (self.shared.clone(), self.sessions.clone());
        drop(self);
        Box::pin(end_if_unused(shared, sessions)).await;
    }

    fn another(&self) -> Self {
        lock(&self.shared.state).clients += 1;
        Self { shared: self.shared.clone(), sessions: self.sessions.clone() }
    }

    async fn log_in(
        self,
        connection: Arc<Connection>,
        accepted: AcceptedForms,
        stale: Option<Arc<RedfishSession>>,
    ) -> Result<Arc<RedfishSession>, Error> {
        let _turn = self.shared.turn.lock().await;
        if let Some(session) = self.shared.current(stale.as_ref()) {
            return Ok(session);
        }
        // It may have been refused for another reason than that it has expired.
        if let Some(stale) = stale {
            let _gone = tokio::time::timeout(LOGOUT_TIMEOUT, stale.end()).await;
        }
        let mut order = accepted.in_order::<Login>();
        if lock(&self.sessions.registry).endless.contains(&self.shared.account.origin) {
            order.sort_by_key(|way| *way != Login::Basic);
        }
        let is_basic_refused = lock(&self.shared.state).is_basic_refused;
        let opened = login::log_in(&connection, &Ways { order, is_basic_refused }).await;
        let mut state = lock(&self.shared.state);
        match opened {
            Ok(session) => {
                let session = Arc::new(session);
                state.session = Some(session.clone());
                Ok(session)
            }
            Err(Failed { error, is_basic_refused }) => {
                state.session = None;
                state.is_basic_refused = is_basic_refused;
                Err(error)
            }
        }
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.clients -= 1;
        let is_unused = state.clients == 0 && state.session.is_some();
        drop(state);
        if let (true, Ok(runtime)) = (is_unused, tokio::runtime::Handle::try_current()) {
            let end = end_if_unused(self.shared.clone(), self.sessions.clone());
            self.sessions.tasks.spawn_on(end, &runtime);
        }
    }
}

/// Ends the session of an account that no client takes part in.
async fn end_if_unused(shared: Arc<Shared>, sessions: Sessions) {
    // A client that joins meanwhile finds either the session or its turn to log in.
    let _turn = shared.turn.lock().await;
    let session = {
        let mut state = lock(&shared.state);
        if state.clients > 0 {
            return;
        }
        state.session.take()
    };
    let Some(session) = session else { return };
    let ended = tokio::time::timeout(LOGOUT_TIMEOUT, session.end()).await;
    if let Ok(false) = ended {
        let origin = shared.account.origin.clone();
        tracing::warn!(bmc.url = origin, "BMC session not ended: it expires by itself");
        lock(&sessions.registry).endless.insert(origin);
    }
}

impl Shared {
    /// Returns the session, unless it is `stale`.
    fn current(&self, stale: Option<&Arc<RedfishSession>>) -> Option<Arc<RedfishSession>> {
        let session = lock(&self.state).session.clone()?;
        stale.is_none_or(|stale| !Arc::ptr_eq(stale, &session)).then_some(session)
    }
}

// The values are consistent between any two statements that use them, so a panic elsewhere does not
// damage them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
