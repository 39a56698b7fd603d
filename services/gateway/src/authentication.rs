//! The client of a request: by an API key, by the fields of a credential, or by a client certificate of the site.
//!
//! Fields are compared by the identity service. Its answer is used again for [`REMEMBERED`], so that a client with many requests costs
//! one call; meanwhile a revocation is noticed by the feed, here and at the services.
//!
//! Many clients may share an address, so its wrong keys must not keep right ones out:
//!
//! ```text
//! was right within a day        checked, whatever else the address sends
//! was wrong within a minute     checked at a rate of its own: one wrong key that is repeated is one guess
//! neither                       checked, unless the address had too many such keys that were wrong
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use http::{Extensions, HeaderMap, HeaderName, header};
use runtime::bounded_map::ExpiringMap;
use runtime::forwarding::ForwardCaller;
use runtime::rate_limit::{Rate, RateLimiter, TokenBucket};
use runtime::revocation::Revocations;
use runtime::serve::UnknownClient;
use runtime::{Caller, Channel, Clock, Role};
use tinwright::identity::v1::{AuthenticateRequest, Credential};
use tinwright::status;
use tokio::sync::Mutex as AsyncMutex;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;

/// The header with an API key; `Authorization: Bearer <key>` is the other way to send it.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The name of the field of a credential that an API key is.
const API_KEY_FIELD: &str = "api_key";
/// Lifetime of a stored answer of the identity service.
const REMEMBERED: Duration = Duration::from_secs(4);
/// The most answers that are remembered.
const MAX_REMEMBERED: usize = 4096;
/// Wrong keys from one address, and checks of one wrong key: more than a few are guesses.
const FAILURES: Rate = Rate::per_second(2).with_burst(30);
/// The time after which an address with too many refused attempts may try again.
const FAILURE_DELAY: Duration = Duration::from_secs(1);
/// Time to remember that a key was right, from its last check on.
const RIGHT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Time to remember that a key was wrong, from its first check on.
const WRONG_LIFETIME: Duration = Duration::from_secs(60);

/// A channel for calls on behalf of a client.
pub type ClientChannel = InterceptedService<Channel, ForwardCaller>;

/// The client of a request.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its rights.
    pub caller: Caller,
    /// Its credential, if it identified itself by one.
    pub credential: Option<Credential>,
}

impl Client {
    /// Returns a channel to the service at `channel` for calls as this client.
    pub fn channel(&self, channel: &Channel) -> ClientChannel {
        InterceptedService::new(channel.clone(), ForwardCaller::new(&self.caller))
    }

    /// Records this client as the one of the request with these `extensions`. Its connection is no
    /// longer one of an unknown client, before the response is made.
    pub(crate) fn identify(&self, extensions: &Extensions) {
        if let Some(connection) = extensions.get::<UnknownClient>() {
            connection.identified();
        }
        if let Some(request) = extensions.get::<RequestClient>() {
            let _is_first = request.0.set(self.clone());
        }
    }

    /// Passes if its credential is not limited to hubs or locations: the services do not know hubs, and a location limits more calls than they
    /// could filter by it.
    pub(crate) fn check_unlimited(&self) -> Result<(), Status> {
        let credential = self.credential.as_ref();
        if credential.is_some_and(|it| !it.hubs.is_empty() || !it.locations.is_empty()) {
            let text = "a credential that is limited to hubs or locations cannot be used here";
            return Err(Status::permission_denied(text));
        }
        Ok(())
    }

    /// True if its credential has not ended at `now`.
    fn is_valid(&self, now: SystemTime) -> bool {
        let end = self.credential.as_ref().and_then(|it| it.expire_time);
        let end = end.map(SystemTime::try_from);
        // An end that no clock reaches.
        end.is_none_or(|end| end.map_or(true, |end| now < end))
    }
}

/// The client of a request, once its credential or certificate is accepted; in the extensions of
/// the request. The access log names it whoever answers, also after a timeout.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestClient(Arc<OnceLock<Client>>);

impl RequestClient {
    /// Returns the client; none if it is unknown.
    pub(crate) fn get(&self) -> Option<&Client> {
        self.0.get()
    }
}

/// A digest of fields.
type Digest = [u8; 32];

/// Finds the clients of requests.
#[derive(Debug)]
pub struct Authenticator {
    identity: Channel,
    revocations: Revocations,
    attempts: Attempts,
    remembered: Mutex<ExpiringMap<Digest, Client>>,
    /// The key of digests of fields: the fields themselves are not stored.
    digest_key: hmac::Key,
    clock: Clock,
}

impl Authenticator {
    /// Asks the identity service at `identity`.
    pub fn new(identity: Channel, revocations: Revocations, clock: Clock) -> Self {
        let mut key = [0; 32];
        // Without randomness nothing is remembered, because no digest could be trusted.
        let random = aws_lc_rs::rand::SecureRandom::fill(&SystemRandom::new(), &mut key);
        let lifetime = if random.is_ok() { REMEMBERED } else { Duration::ZERO };
        Self {
            identity,
            revocations,
            attempts: Attempts::new(random.is_ok()),
            remembered: Mutex::new(ExpiringMap::new(MAX_REMEMBERED, lifetime)),
            digest_key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            clock,
        }
    }

    /// Returns the client that the headers of a request name, or else the one of the connection's certificate; none if there is
    /// neither. The request is from `source`.
    pub async fn by_request(
        &self,
        headers: &HeaderMap,
        connection: Option<&Caller>,
        source: Option<IpAddr>,
    ) -> Result<Option<Client>, Status> {
        if let Some(key) = api_key(headers)? {
            let fields = BTreeMap::from([(API_KEY_FIELD.to_owned(), key.to_owned())]);
            return self.by_fields(&fields, source).await.map(Some);
        }
        connection.map(by_certificate).transpose()
    }

    /// Returns the client whose credential has these fields, in a request from `source`. `UNAUTHENTICATED` if there is none,
    /// `RESOURCE_EXHAUSTED` if they were not checked, because there were too many wrong ones from `source`.
    pub async fn by_fields(
        &self,
        fields: &BTreeMap<String, String>,
        source: Option<IpAddr>,
    ) -> Result<Client, Status> {
        let digest = self.digest(fields);
        if let Some(client) = self.remembered(&digest) {
            return Ok(client);
        }
        let now = self.clock.monotonic();
        let _turn = match source.filter(|_| !self.attempts.is_known(&digest, now)) {
            Some(source) => Some(self.attempts.turn(source).lock_owned().await),
            None => None,
        };
        if !self.attempts.may_check(&digest, source, now) {
            let text = "too many refused attempts from this address";
            return Err(status::overloaded(text, FAILURE_DELAY));
        }
        let request = AuthenticateRequest { fields: fields.clone() };
        let answer = match runtime::call(self.identity.clone(), request).await {
            Ok(answer) => answer,
            Err(refused) => {
                if refused.code() == tonic::Code::Unauthenticated {
                    self.attempts.record_wrong(digest, source, now);
                }
                return Err(refused);
            }
        };
        let caller = answer.caller.parse();
        let caller =
            caller.map_err(|_| Status::internal("the identity service named no caller"))?;
        let client = Client { caller, credential: answer.credential };
        self.attempts.record_right(digest, now);
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.insert(digest, client.clone(), now);
        Ok(client)
    }

    /// Returns the end of the credential of `client`, and the clock to wait for it; none if it has none that a clock reaches.
    pub fn end(&self, client: &Client) -> Option<(Clock, SystemTime)> {
        let end = client.credential.as_ref()?.expire_time?;
        Some((self.clock.clone(), SystemTime::try_from(end).ok()?))
    }

    fn remembered(&self, digest: &Digest) -> Option<Client> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let client = remembered.get(digest, self.clock.monotonic())?.clone();
        let is_revoked = self.revocations.contains(client.caller.subject());
        (!is_revoked && client.is_valid(self.clock.wall())).then_some(client)
    }

    fn digest(&self, fields: &BTreeMap<String, String>) -> Digest {
        let mut context = hmac::Context::with_key(&self.digest_key);
        for text in fields.iter().flat_map(|(name, value)| [name, value]) {
            // With its length: else two fields could look like one.
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

/// The fields that were checked, and limits on further checks.
#[derive(Debug)]
struct Attempts {
    /// Fields that are wrong for the first time, by address.
    failures: RateLimiter<IpAddr>,
    earlier: Mutex<Earlier>,
    turns: Mutex<HashMap<IpAddr, Weak<AsyncMutex<()>>>>,
}

/// The results of earlier checks.
#[derive(Debug)]
struct Earlier {
    right: ExpiringMap<Digest, ()>,
    /// With the further checks of the same fields.
    wrong: ExpiringMap<Digest, TokenBucket>,
}

impl Attempts {
    /// Remembers results if `are_stored`.
    fn new(are_stored: bool) -> Self {
        let limited = |lifetime| if are_stored { lifetime } else { Duration::ZERO };
        let right = ExpiringMap::new(MAX_REMEMBERED, limited(RIGHT_LIFETIME));
        let wrong = ExpiringMap::new(MAX_REMEMBERED, limited(WRONG_LIFETIME));
        let earlier = Mutex::new(Earlier { right, wrong });
        Self { failures: RateLimiter::new(FAILURES), earlier, turns: Mutex::default() }
    }

    /// True if the fields of `digest` were checked earlier.
    fn is_known(&self, digest: &Digest, now: Instant) -> bool {
        let earlier = self.earlier();
        earlier.right.get(digest, now).is_some() || earlier.wrong.get(digest, now).is_some()
    }

    /// Returns the turn of unknown fields from `source`: they are checked one after the other, so that a wrong one counts before the next.
    fn turn(&self, source: IpAddr) -> Arc<AsyncMutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= MAX_REMEMBERED {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = turns.entry(source).or_default();
        turn.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *turn = Arc::downgrade(&new);
            new
        })
    }

    /// True if the fields of `digest` may be checked at `now` for a request from `source`.
    fn may_check(&self, digest: &Digest, source: Option<IpAddr>, now: Instant) -> bool {
        let mut earlier = self.earlier();
        if earlier.right.get(digest, now).is_some() {
            return true;
        }
        if let Some(bucket) = earlier.wrong.get_mut(digest, now) {
            return bucket.take(now).is_ok();
        }
        !source.is_some_and(|source| self.failures.is_exhausted(&source, now))
    }

    fn record_right(&self, digest: Digest, now: Instant) {
        let mut earlier = self.earlier();
        earlier.wrong.remove(&digest);
        earlier.right.insert(digest, (), now);
    }

    fn record_wrong(&self, digest: Digest, source: Option<IpAddr>, now: Instant) {
        let mut earlier = self.earlier();
        earlier.right.remove(&digest);
        if earlier.wrong.get(&digest, now).is_some() {
            return;
        }
        earlier.wrong.insert(digest, TokenBucket::new(FAILURES), now);
        if let Some(source) = source {
            // This one was answered; the next one is refused.
            let _empty = self.failures.take(source, now);
        }
    }

    fn earlier(&self) -> MutexGuard<'_, Earlier> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the API key in `headers`; none if there is none.
fn api_key(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let unreadable = |text| Err(Status::unauthenticated(text));
    let mut keys = headers.get_all(API_KEY).iter().chain(headers.get_all(header::AUTHORIZATION));
    let Some(value) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return unreadable("send one API key: X-Api-Key, or Authorization: Bearer");
    }
    let Some(key) = value.to_str().ok() else {
        return unreadable("the API key has other characters than a key");
    };
    if headers.contains_key(API_KEY) {
        return Ok(Some(key.trim()));
    }
    match key.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(key.trim())),
        Some(_) | None => unreadable("Authorization has to be Bearer, with an API key"),
    }
}

/// Returns the client with a certificate of the site, which names `caller`.
fn by_certificate(caller: &Caller) -> Result<Client, Status> {
    match caller.role() {
        Role::Viewer | Role::Operator | Role::Admin => {
            Ok(Client { caller: caller.clone(), credential: None })
        }
        Role::Service | Role::Edge | Role::Door | Role::Builder | Role::Machine(..) => {
            let text = format!("{} does not use the gateway", caller.role());
            Err(Status::permission_denied(text))
        }
    }
}

#[cfg(test)]
mod tests;
