//! The connection to a member of the cluster.
//!
//! One connection carries every call and the watch. If its member cannot answer a call, the connection is dropped, and the next
//! call connects to the next endpoint. Calls that are in progress on the old connection end by themselves.
//!
//! A token belongs to its connection. If etcd no longer accepts it (it restarted, or its users were changed), the connection is
//! dropped as well. Etcd checks the token first, so a commit that is refused for its token can be sent again.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status, Streaming};

use super::options::{Login, Options, Tls};
use super::wire::pb::auth_client::AuthClient;
use super::wire::pb::kv_client::KvClient;
use super::wire::pb::watch_client::WatchClient;
use super::wire::pb::{AuthenticateRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use super::wire::pb::{WatchCreateRequest, WatchRequest, WatchResponse, watch_request};
use crate::Error;

/// Time limit of a call, with connecting and trying other members.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for one endpoint to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A watch is silent while nothing changes, so a stopped member is detected by the missing response to a ping. Etcd disconnects
/// clients that ping more often than every five seconds (`--grpc-keepalive-min-time`).
const PING_INTERVAL_TIMEOUT: (Duration, Duration) =
    (Duration::from_secs(6), Duration::from_secs(4));
/// Bytes of the largest response: a list requests at most
/// [`MAX_PAIRS_PER_REQUEST`](crate::page::MAX_PAIRS_PER_REQUEST) values at a time.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// A failure to reach any member.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The endpoint is not an address.
    #[error("no etcd endpoint is {0}")]
    Address(String, #[source] tonic::transport::Error),
    /// The authority or the client certificate is unusable.
    #[error("TLS for etcd at {0}")]
    Tls(String, #[source] tonic::transport::Error),
    /// There are no endpoints.
    #[error("no etcd endpoint is given")]
    Nowhere,
    /// The member does not accept a connection.
    #[error("connecting to etcd at {0}")]
    Connect(String, #[source] tonic::transport::Error),
    /// The member refused the call, or the connection broke.
    #[error("etcd at {0}")]
    Refused(String, #[source] Box<Status>),
    /// The member did not respond in time.
    #[error("no answer from etcd at {0}")]
    Silent(String),
}

impl Fault {
    /// True if another member may answer.
    fn elsewhere(&self) -> bool {
        match self {
            Self::Connect(..) | Self::Silent(_) => true,
            Self::Address(..) | Self::Tls(..) | Self::Nowhere => false,
            Self::Refused(_, status) => matches!(
                status.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Internal
                    | Code::Unknown
            ),
        }
    }

    /// True if the member refused the call because of a token that it no longer knows.
    fn stale(&self) -> bool {
        let Self::Refused(_, status) = self else { return false };
        let old = || status.message().contains("revision of auth store is old");
        status.code() == Code::Unauthenticated || status.code() == Code::InvalidArgument && old()
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::unavailable(fault)
    }
}

/// The cluster's endpoints, and the connection to one of them.
#[derive(Debug)]
pub(super) struct Link {
    endpoints: Vec<Endpoint>,
    login: Option<Login>,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    /// Number of the current endpoint, incremented without limit.
    turn: usize,
    member: Option<Member>,
}

/// A connection to a member, and the token for it.
#[derive(Clone, Debug)]
struct Member {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

impl Link {
    /// Connects on the first call.
    pub(super) fn new(options: &Options) -> Result<Self, Fault> {
        let Options { endpoints, prefix: _, followed: _, tls, login } = options;
        let endpoints = endpoints.iter().map(|address| endpoint(address, tls.as_ref()));
        let (endpoints, login) = (endpoints.collect::<Result<_, _>>()?, login.clone());
        Ok(Self { endpoints, login, current: Mutex::default() })
    }

    /// Reads from the first member that responds.
    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Fault> {
        let until = deadline(REQUEST_TIMEOUT);
        let share =
            REQUEST_TIMEOUT / u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let mut left = self.endpoints.len(); // one attempt more: the connection may have broken since its last use
        loop {
            let by = until.min(deadline(share));
            let call = |member: Member| {
                let range = range.clone();
                async move { member.kv().range(member.led(range)).await }
            };
            match self.call(by, call).await {
                Err(fault)
                    if (fault.elsewhere() || fault.stale())
                        && left > 0
                        && deadline(Duration::ZERO) < until =>
                {
                    left -= 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes. The request is sent again only if a member refused its token before it read the request.
    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Fault> {
        let by = deadline(REQUEST_TIMEOUT);
        let call = |member: Member| {
            let txn = txn.clone();
            async move { member.kv().txn(member.led(txn)).await }
        };
        match self.call(by, call).await {
            Err(fault) if fault.stale() => self.call(by, call).await,
            outcome => outcome,
        }
    }

    /// Streams changes until the connection breaks.
    pub(super) async fn watch(
        &self,
        create: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>, Fault> {
        let union = Some(watch_request::RequestUnion::CreateRequest(create));
        // Etcd ends a watch if the client closes its stream of requests.
        let requests = tokio_stream::once(WatchRequest { request_union: union });
        let requests = requests.chain(tokio_stream::pending());
        let by = deadline(REQUEST_TIMEOUT);
        let watch =
            |member: Member| async move { member.watch().watch(member.led(requests)).await };
        self.call(by, watch).await
    }

    /// Makes one call on the current connection. Drops the connection if another member may answer.
    async fn call<T, F>(&self, by: Instant, call: impl FnOnce(Member) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (turn, member) = self.connected(by).await?;
        let outcome = match timeout_at(by, call(member)).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => Fault::Refused(self.name(turn), Box::new(status)),
            Err(_elapsed) => Fault::Silent(self.name(turn)),
        };
        if outcome.elsewhere() || outcome.stale() {
            self.give_up(turn).await;
        }
        Err(outcome)
    }

    /// Returns the current connection, or connects to the first endpoint that accepts one.
    async fn connected(&self, by: Instant) -> Result<(usize, Member), Fault> {
        let mut fault = Fault::Nowhere;
        for _ in &self.endpoints {
            let Ok(mut current) = timeout_at(by, self.current.lock()).await else { break };
            if let Some(member) = &current.member {
                return Ok((current.turn, member.clone()));
            }
            let Some(endpoint) = self.at(current.turn) else { break };
            match timeout_at(by, self.connect(endpoint)).await {
                Ok(Ok(member)) => {
                    current.member = Some(member.clone());
                    return Ok((current.turn, member));
                }
                Ok(Err(error)) => fault = error,
                Err(_elapsed) => fault = Fault::Silent(self.name(current.turn)),
            }
            current.turn = current.turn.wrapping_add(1);
        }
        Err(fault)
    }

    /// Connects to `endpoint`, and logs in.
    async fn connect(&self, endpoint: &Endpoint) -> Result<Member, Fault> {
        let name = endpoint.uri().to_string();
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| Fault::Connect(name.clone(), error))?;
        let token = match &self.login {
            Some(login) => Some(token(channel.clone(), login).await),
            None => None,
        };
        let token = token.transpose().map_err(|status| Fault::Refused(name, Box::new(status)))?;
        Ok(Member { channel, token })
    }

    /// Drops the connection made at `turn` if it is still the current one.
    async fn give_up(&self, turn: usize) {
        let mut current = self.current.lock().await;
        if current.turn == turn {
            *current = Current { turn: turn.wrapping_add(1), member: None };
        }
    }

    fn at(&self, turn: usize) -> Option<&Endpoint> {
        self.endpoints.get(turn.checked_rem(self.endpoints.len())?)
    }

    fn name(&self, turn: usize) -> String {
        self.at(turn).map_or_else(String::new, |endpoint| endpoint.uri().to_string())
    }
}

impl Member {
    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    /// Adds the token, and has the member refuse, rather than wait, once it has lost its leader.
    fn led<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

/// Returns the time at which `limit` from now ends.
#[expect(clippy::disallowed_methods, reason = "runtime::clock is not below this crate")]
fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit
}

/// Requests a token for a name and its password.
async fn token(channel: Channel, login: &Login) -> Result<MetadataValue<Ascii>, Status> {
    let Login { user: name, password } = login.clone();
    let mut auth = AuthClient::new(channel);
    let answer = auth.authenticate(AuthenticateRequest { name, password }).await?;
    let token = answer.into_inner().token.parse();
    let mut token: MetadataValue<_> =
        token.map_err(|_| Status::internal("the token is not a header value"))?;
    token.set_sensitive(true);
    Ok(token)
}

/// Returns the endpoint of a member.
fn endpoint(address: &str, tls: Option<&Tls>) -> Result<Endpoint, Fault> {
    let endpoint = Endpoint::from_shared(address.to_owned());
    let endpoint = endpoint.map_err(|error| Fault::Address(address.to_owned(), error))?;
    let (interval, patience) = PING_INTERVAL_TIMEOUT;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(interval)
        .keep_alive_timeout(patience)
        .tcp_nodelay(true);
    let Some(tls) = tls else { return Ok(endpoint) };
    endpoint.tls_config(trust(tls)).map_err(|error| Fault::Tls(address.to_owned(), error))
}

/// Converts `tls` into the transport's type.
fn trust(tls: &Tls) -> ClientTlsConfig {
    let trust = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.authority))
        .timeout(CONNECT_TIMEOUT);
    match &tls.identity {
        Some(own) => trust.identity(Identity::from_pem(&own.certificate, &own.key)),
        None => trust,
    }
}
